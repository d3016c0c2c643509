"""The console's own answers for programs: a run's trace and logs, and the numbers of now."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from sexton import errors
from sexton.v1 import run_pb2
from sexton_console.traces.model import LogLine, Span
from sexton_console.traces.store import MAX_TRACE_ITEMS
from sexton_console.web import query
from sexton_console.web.desk import Desk, desk_of
from sexton_console.web.pages.mesh import LEVELS
from sexton_console.words import ended, run_name, run_state
from sexton_runtime import otlp

_LOG_LINES: Final = 1_000
_LAST: Final = 2**62
"""The largest cursor."""
_FOLLOW_S: Final = 0.5
_QUIET_S: Final = 15.0
_AFTERWARDS_S: Final = 2.0
"""Lines may come in for so long after a run has ended."""
_PASSING: Final = (errors.Unavailable, errors.DeadlineExceeded)


def routes() -> list[Route]:
    """Gives the routes."""
    run = "/api/runs/{namespace}/{job}/{run}"
    return [
        Route(f"{run}/trace", _trace, methods=["GET"]),
        Route(f"{run}/logs", _logs, methods=["GET"]),
        Route("/api/now", _now, methods=["GET"]),
        Route("/api/logs", _service_logs, methods=["GET"]),
    ]


async def _trace(request: Request) -> Response:
    """Gives the spans of a run's trace."""
    desk = desk_of(request)
    _, trace = await _run(desk, request)
    spans = await desk.traces.spans(trace) if trace else []
    return JSONResponse({"trace_id": trace.hex(), "spans": [_span(span) for span in spans]})


async def _logs(request: Request) -> Response:
    """Gives the log lines of a run: a JSON object a line, or with `format=text` the lines alone.

    `after`: only lines behind this cursor. `follow=1`: goes on until the run has ended, with an
    empty line now and then where nothing is written, so that both sides know of each other.
    """
    desk = desk_of(request)
    run, trace = await _run(desk, request)
    given = request.query_params
    text = given.get("format") == "text"
    after = query.number(request, "after", _LAST)
    if given.get("follow") == "1":
        lines = _follow(desk, run, trace, after)
        if text:
            told = (_text(line) async for line in lines if line is not None)
            return StreamingResponse(told, media_type="text/plain")
        told = (_json(line) if line is not None else "\n" async for line in lines)
        return StreamingResponse(told, media_type="application/x-ndjson")
    found = await desk.traces.lines(trace, after=after, limit=MAX_TRACE_ITEMS) if trace else []
    body = "".join(_text(line) if text else _json(line) for line in found)
    if text:
        return PlainTextResponse(body)
    return Response(body, media_type="application/x-ndjson")


async def _service_logs(request: Request) -> Response:
    """Gives what services log, the newest line first: a JSON object a line.

    `service` and `level`: only these; `before`: only lines before this cursor.
    """
    lines = await desk_of(request).logs.newest(
        service=query.text(request, "service"),
        severity=LEVELS[query.choice(request, "level", LEVELS, "debug")],
        before=query.number(request, "before", _LAST),
        limit=_LOG_LINES,
    )
    body = "".join(_json(line) for line in lines)
    return Response(body, media_type="application/x-ndjson")


async def _now(request: Request) -> Response:
    """Gives the numbers of the first page."""
    desk = desk_of(request)
    desk.follower.somebody_watches()
    numbers, now_s = desk.follower.numbers, desk.now_s
    late = numbers.lateness(now_s)
    return JSONResponse(
        {
            "problem": desk.follower.problem,
            "estimated": numbers.estimated(now_s),
            "minutes": [
                {"start_s": each.number * 60, "due": each.due, "done": each.done,
                 "failed": each.failed}
                for each in numbers.minutes(now_s)
            ],
            "lateness_s": {"p50": late.p50, "p95": late.p95, "p99": late.p99},
            "failures": [
                {"job": each.job, "kind": each.kind, "message": each.message, "count": each.count,
                 "last_s": each.last_s, "runs": list(each.runs)}
                for each in numbers.failures(now_s - 3_600)[:50]
            ],
        }
    )  # fmt: skip


async def _follow(
    desk: Desk, run: run_pb2.Run, trace: bytes, after: int
) -> AsyncIterator[LogLine | None]:
    """Gives lines as they come in; None where none has come in for some time."""
    left_s, quiet_s = _AFTERWARDS_S, 0.0
    while trace:
        lines = await desk.traces.lines(trace, after=after, limit=MAX_TRACE_ITEMS)
        for line in lines:
            after, quiet_s = line.cursor, 0.0
            yield line
        if quiet_s >= _QUIET_S:
            quiet_s = 0.0
            yield None
        if ended(run_state(run.state)):
            if left_s <= 0:
                return
            left_s -= _FOLLOW_S
        else:
            with suppress(*_PASSING):  # another coordinator takes the lead; lines come in meanwhile
                run = await desk.api.run(run.name)
        await asyncio.sleep(_FOLLOW_S)
        quiet_s += _FOLLOW_S


async def _run(desk: Desk, request: Request) -> tuple[run_pb2.Run, bytes]:
    parts = (request.path_params[name] for name in ("namespace", "job", "run"))
    run = await desk.api.run(run_name(*parts))
    context = otlp.trace_of(run.traceparent)
    return run, b"" if context is None else context.trace_id


def _span(span: Span) -> dict[str, Any]:
    return {
        "span_id": span.span_id,
        "parent_id": span.parent_id,
        "name": span.name,
        "kind": span.kind,
        "start_ns": span.start,
        "end_ns": span.end,
        "service": span.service,
        "failed": span.failed,
        "message": span.message,
        "attributes": span.attributes,
    }


def _json(line: LogLine) -> str:
    value = {
        "cursor": line.cursor,
        "time_ns": line.at,
        "span_id": line.span_id,
        "severity": line.severity,
        "service": line.service,
        "body": line.body,
        "attributes": line.attributes,
    }
    return json.dumps(value, ensure_ascii=False) + "\n"


def _text(line: LogLine) -> str:
    return line.body.rstrip("\n") + "\n"
