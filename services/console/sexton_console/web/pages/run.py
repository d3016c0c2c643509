"""One run: the state rail, the waterfall of its trace under it, its logs, and what it left."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from sexton import errors
from sexton.v1 import run_pb2
from sexton_console.traces.rail import rail_of
from sexton_console.traces.service_logs import About
from sexton_console.traces.waterfall import attempts_of, pushed_at, waterfall
from sexton_console.web import definition, query
from sexton_console.web.desk import Desk, desk_of
from sexton_console.web.render import render
from sexton_console.web.rows import rows_of
from sexton_console.web.shared import shared
from sexton_console.web.urls import run_url, with_query
from sexton_console.words import ended, enum_word, job_name, run_name, run_state, zone_of
from sexton_runtime import otlp

LINES: Final = 5_000
"""Log lines that are shown at once."""
_AFTERWARDS_NS: Final = 20_000_000_000
"""Spans and lines may come in for so long after a run has ended."""
_MANY: Final = 2_000
"""A page with so many spans is not made again and again once its run has ended."""
_ZONE_S: Final = 60.0


async def show(request: Request) -> Response:
    """Shows a run."""
    desk = desk_of(request)
    namespace, job, run_id = (request.path_params[name] for name in ("namespace", "job", "run"))
    run = await desk.api.run(run_name(namespace, job, run_id))
    state = run_state(run.state)
    context = otlp.trace_of(run.traceparent)
    trace = b"" if context is None else context.trace_id
    spans = await desk.traces.spans(trace) if trace else []
    lines = await desk.traces.lines(trace, limit=LINES) if trace else []
    sessions = tuple({attempt.session for attempt in run.attempts})
    now = desk.clock.wall_ns()
    rail = rail_of(run, now, pushed_at(spans))
    said = await desk.logs.about(
        About(run_id, trace, sessions, rail.start, rail.end + _AFTERWARDS_NS)
    )
    zone = query.text(request, "zone") or await job_zone(desk, job_name(namespace, job))
    falls = waterfall(rail, spans, lines, attempts_of(context, rail))
    rows = rows_of(request, falls, run_url(namespace, job, run_id))
    return render(
        request,
        "run.html",
        title=run_id,
        section="runs",
        live=not rows["begin"]
        and (not ended(state) or (now - rail.end < _AFTERWARDS_NS and len(spans) < _MANY)),
        namespace=namespace,
        job=job,
        run_id=run_id,
        run=run,
        state=state,
        is_over=ended(state),
        origin=enum_word(run_pb2.RunOrigin, run.origin, "RUN_ORIGIN_"),
        rail=rail,
        **rows,
        lines=lines,
        more_lines=len(lines) == LINES,
        said=said,
        spans=len(spans),
        trace=trace.hex(),
        sampled=context is not None and context.sampled,
        task=definition.task_lines(run.task),
        zone=zone,
        all_lines=with_query(f"/api/runs/{namespace}/{job}/{run_id}/logs", format="text"),
    )


async def job_zone(desk: Desk, name: str) -> str:
    """Gives the zone of a job as it is now; UTC where that can't be had."""

    async def ask() -> str:
        return zone_of((await desk.api.job(name)).spec)

    try:
        return await shared(desk, f"zone {name}", _ZONE_S, ask)
    except errors.SextonError:
        return "UTC"
