"""The list of runs, filtered; paged by the API."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from sexton.v1 import run_pb2
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
    run_state,
    run_state_number,
)

PAGE: Final = 100
ENOUGH_S: Final = 0.1
"""Where few runs fit, it is looked for more of them for so long; then the page may be short."""
GROUPS: Final = {"live": tuple(run_state(number) for number in LIVE_STATES),
          "bad": ("failed", "timed_out", "lost", "expired")}  # fmt: skip


async def show(request: Request) -> Response:
    """Shows the list."""
    desk = desk_of(request)
    state = query.choice(request, "state", (*GROUPS, *RUN_STATES))
    job = query.text(request, "job")
    token = request.query_params.get("page", "")
    numbers = [run_state_number(word) for word in GROUPS.get(state, (state,)) if word]
    namespace, slash, short = job.rpartition("/")
    parent = job_name(namespace if slash else "default", short) if short else ""
    zone = await job_zone(desk, parent) if parent else "UTC"
    after, before = (query.moment(request, name, zone) for name in ("after", "before"))
    found: list[run_pb2.Run] = []
    following, begun_s = token, desk.clock.monotonic_ns() / 1e9
    while True:
        answer = await desk.api.runs(
            parent,
            states=[number for number in numbers if number is not None],
            after=after,
            before=before,
            size=PAGE - len(found),
            token=following,
        )
        found += answer.runs
        following = answer.next_page_token
        took_s = desk.clock.monotonic_ns() / 1e9 - begun_s
        if not following or len(found) >= PAGE or took_s > ENOUGH_S:
            break
    shown: dict[str, Any] = {
        "job": job,
        "state": state,
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
