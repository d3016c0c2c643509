"""The list of runs, filtered; paged by the API."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from sexton.v1 import run_pb2
from sexton_console.mesh import numbers
from sexton_console.web import query
from sexton_console.web.desk import desk_of
from sexton_console.web.pages.job import run_row
from sexton_console.web.pages.run import job_zone
from sexton_console.web.render import render
from sexton_console.web.urls import with_query
from sexton_console.words import (
    LIVE_STATES,
    RUN_STATES,
    job_name,
    run_parts,
    run_state,
    run_state_number,
)

PAGE: Final = 100
ENOUGH_S: Final = 0.1
"""Where few runs fit, it is looked for more of them for so long; then the page may be short."""
_LIVE: Final = tuple(run_state(number) for number in LIVE_STATES)
GROUPS: Final = {"live": _LIVE, "late": _LIVE,
          "bad": ("failed", "timed_out", "lost", "expired")}  # fmt: skip


async def show(request: Request) -> Response:
    """Shows the list."""
    desk = desk_of(request)
    state = query.choice(request, "state", (*GROUPS, *RUN_STATES))
    job = query.text(request, "job")
    alike = query.text(request, "alike")
    token = request.query_params.get("page", "")
    states = [run_state_number(word) for word in GROUPS.get(state, (state,)) if word]
    namespace, slash, short = job.rpartition("/")
    parent = job_name(namespace if slash else "default", short) if short else ""
    zone = await job_zone(desk, parent) if parent else "UTC"
    after, before = (query.moment(request, name, zone) for name in ("after", "before"))
    found: list[run_pb2.Run] = []
    following, begun_s = token, desk.clock.monotonic_ns() / 1e9
    while True:
        answer = await desk.api.runs(
            parent,
            states=[number for number in states if number is not None],
            after=after,
            before=before,
            size=PAGE - len(found),
            token=following,
        )
        found += [run for run in answer.runs if _fits(run, state, alike, desk.now_s)]
        following = answer.next_page_token
        took_s = desk.clock.monotonic_ns() / 1e9 - begun_s
        if not following or len(found) >= PAGE or took_s > ENOUGH_S:
            break
    shown: dict[str, Any] = {
        "job": job,
        "state": state,
        "alike": alike,
        "after": request.query_params.get("after", ""),
        "before": request.query_params.get("before", ""),
    }
    return render(
        request,
        "runs.html",
        title="Runs",
        section="runs",
        live=not token,
        zone=zone,
        rows=[run_row(run) for run in found],
        next_page=with_query("/runs", **shown, page=following) if following else "",
        first=not token,
        groups=GROUPS,
        states=RUN_STATES,
        **shown,
    )


def _fits(run: run_pb2.Run, state: str, alike: str, now_s: float) -> bool:
    """Tells whether a run is one of those that a number counted, where states alone don't say."""
    if state == "late" and not run_row(run).is_late(now_s):
        return False
    if not alike:
        return True
    namespace, short, _ = run_parts(run.name)
    return numbers.alike(f"{namespace}/{short}", run.error.kind, run.error.message) == alike
