"""The list of jobs: searched, filtered, sorted; paged by the API where it is plain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from sexton.v1 import job_pb2
from sexton_console.mesh.numbers import FAILED, Outcome
from sexton_console.web import query
from sexton_console.web.desk import Desk, desk_of
from sexton_console.web.render import render
from sexton_console.web.shared import shared
from sexton_console.web.urls import with_query
from sexton_console.words import job_parts, schedule_text, zone_of

PAGE: Final = 100
LOOKED_AT: Final = 5_000
"""Jobs among which those that fit are looked for, where the API can't."""
SHOWN: Final = 300
STATES: Final = ("active", "paused", "failing", "running")
SORTS: Final = ("name", "next", "last", "late", "took")


class Row(NamedTuple):
    """One job."""

    namespace: str
    job: str
    schedules: tuple[str, ...]
    zone: str
    next_time: float
    paused: bool
    pause_reason: str
    live: int
    queue: str
    description: str
    outcomes: tuple[Outcome, ...]

    @property
    def last(self) -> Outcome | None:
        """Gives the newest outcome, where one is known."""
        return self.outcomes[-1] if self.outcomes else None

    @property
    def state(self) -> str:
        """Gives the state that is shown."""
        return "paused" if self.paused else "active"


async def show(request: Request) -> Response:
    """Shows the list."""
    desk = desk_of(request)
    wanted = query.text(request, "q")
    state = query.choice(request, "state", STATES)
    sort = query.choice(request, "sort", SORTS, "name")
    token = request.query_params.get("page", "")
    plain = not wanted and not state and sort == "name"
    looked_at, complete, next_page = 0, True, ""
    if plain:
        answer = await desk.api.jobs(size=PAGE, token=token)
        rows = _rows(desk, answer.jobs)
        if answer.next_page_token:
            next_page = with_query("/jobs", page=answer.next_page_token)
    else:
        known, complete = await shared(desk, "all jobs", 2.0, lambda: _all(desk))
        looked_at = len(known)
        rows = [row for row in _rows(desk, known) if _fits(row, wanted, state)]
        rows.sort(key=_ORDER[sort])
    return render(
        request,
        "jobs.html",
        title="Jobs",
        section="jobs",
        live=not token,
        rows=rows[:SHOWN],
        found=len(rows),
        wanted=wanted,
        state=state,
        sort=sort,
        plain=plain,
        looked_at=looked_at,
        complete=complete,
        next_page=next_page,
        first=not token,
        sorts=SORTS,
        states=STATES,
    )


async def _all(desk: Desk) -> tuple[Sequence[job_pb2.Job], bool]:
    found: list[job_pb2.Job] = []
    token = ""
    while len(found) < LOOKED_AT:
        answer = await desk.api.jobs(size=1_000, token=token)
        found += answer.jobs
        token = answer.next_page_token
        if not token:
            return found, True
    return found, False


def _rows(desk: Desk, jobs: Sequence[job_pb2.Job]) -> list[Row]:
    return [row_of(desk, job) for job in jobs]


def row_of(desk: Desk, job: job_pb2.Job) -> Row:
    """Gives what is listed of a job."""
    namespace, name = job_parts(job.name)
    return Row(
        namespace=namespace,
        job=name,
        schedules=tuple(schedule_text(each) for each in job.spec.schedules),
        zone=zone_of(job.spec),
        next_time=job.next_time.ToNanoseconds() / 1e9 if job.HasField("next_time") else 0.0,
        paused=job.paused,
        pause_reason=job.pause_reason,
        live=len(job.live_runs),
        queue=job.spec.queue or "default",
        description=job.spec.description,
        outcomes=desk.follower.numbers.outcomes(f"{namespace}/{name}"),
    )


def _fits(row: Row, wanted: str, state: str) -> bool:
    said = f"{row.namespace}/{row.job} {row.description} {row.queue}".lower()
    if not all(word in said for word in wanted.lower().split()):
        return False
    match state:
        case "active":
            return not row.paused
        case "paused":
            return row.paused
        case "running":
            return row.live > 0
        case "failing":
            return row.last is not None and row.last.state in FAILED
    return True


_ORDER: Final = {
    "name": lambda row: (row.namespace, row.job),
    "next": lambda row: (row.next_time or float("inf"), row.job),
    "last": lambda row: (-(row.last.ended_s if row.last else 0.0), row.job),
    "late": lambda row: (-(row.last.late_s if row.last else -1.0), row.job),
    "took": lambda row: (-(row.last.took_s if row.last else -1.0), row.job),
}
