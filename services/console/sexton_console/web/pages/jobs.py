"""The list of jobs: searched, filtered, sorted.

As they come they are paged by the API. What is searched is looked for among all of them, in the
background where there are many. What became of their runs only the console's own numbers tell: by
that those are listed of which it has seen a run end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from sexton.v1 import job_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_console.mesh.numbers import FAILED, Numbers, Outcome
from sexton_console.web import query
from sexton_console.web.desk import Desk, desk_of
from sexton_console.web.render import render
from sexton_console.web.urls import with_query
from sexton_console.words import LIVE_STATES, job_name, job_parts, run_parts, schedule_text, zone_of

PAGE: Final = 100
MAX_FOUND: Final = 1_000
"""Jobs that fit a search, or are sorted by their runs; further ones are not listed."""
STATES: Final = ("active", "paused", "failing", "running")
SORTS: Final = ("name", "next", "last", "late", "took")
_BY_RUNS: Final = ("last", "late", "took")
_LIVE: Final = 5_000
"""Runs in flight among which the jobs that run are looked for."""
_NAMES: Final = 1_000
_KEPT_S: Final = 2.0
_PAUSED: Final = {"active": False, "paused": True}


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


class Asked(NamedTuple):
    """What an address asks for."""

    words: str
    state: str
    sort: str

    @property
    def paused(self) -> bool | None:
        """Gives whether jobs have to be paused; None: either."""
        return _PAUSED.get(self.state)

    @property
    def order(self) -> api.JobOrder.ValueType:
        """Gives the order in which the API lists them."""
        return api.JOB_ORDER_NEXT_TIME if self.sort == "next" else api.JOB_ORDER_NAME

    @property
    def is_plain(self) -> bool:
        """Tells whether the API's pages are the answer."""
        return not self.words and not self.state and self.sort not in _BY_RUNS

    @property
    def by_runs(self) -> bool:
        """Tells whether only what became of runs answers it."""
        return self.state in ("failing", "running") or self.sort in _BY_RUNS


@dataclass(slots=True)
class Search:
    """What has been found."""

    jobs: list[job_pb2.Job] = field(default_factory=list)
    scanned: int = 0
    """Jobs that were looked at."""
    more: bool = False
    """Whether there are more that fit."""


async def show(request: Request) -> Response:
    """Shows the list."""
    desk = desk_of(request)
    asked = Asked(
        query.text(request, "q"),
        query.choice(request, "state", STATES),
        query.choice(request, "sort", SORTS, "name"),
    )
    token = request.query_params.get("page", "")
    search, complete, absent, following = Search(), True, "", ""
    if asked.is_plain:
        answer = await desk.api.jobs(order=asked.order, size=PAGE, token=token)
        jobs: Sequence[job_pb2.Job] = answer.jobs
        following = answer.next_page_token
    else:
        found = await desk.errands.answer(
            f"jobs {asked}", _KEPT_S, lambda: _looked_for(desk, asked)
        )
        search, complete, absent = found.value or search, found.complete, found.absent
        begin = query.number(request, "page", MAX_FOUND)
        jobs = search.jobs[begin : begin + PAGE]
        if begin + PAGE < len(search.jobs):
            following = str(begin + PAGE)
    shown = {
        "q": asked.words,
        "state": asked.state,
        "sort": asked.sort if asked.sort != "name" else "",
    }
    return render(
        request,
        "jobs.html",
        title="Jobs",
        section="jobs",
        live=not token,
        rows=[row_of(desk, job) for job in jobs],
        asked=asked,
        search=search,
        complete=complete,
        absent=absent,
        start=with_query("/jobs", **shown),
        next_page=with_query("/jobs", **shown, page=following) if following else "",
        first=not token,
        sorts=SORTS,
        states=STATES,
    )


async def _looked_for(desk: Desk, asked: Asked) -> AsyncIterator[Search]:
    """Looks for the jobs that fit, page by page; gives what was found so far."""
    search = Search()
    pages = _of_names(desk, asked) if asked.by_runs else _of_all(desk, asked)
    async for page in pages:
        search.scanned += page.scanned
        search.jobs += page.jobs
        if len(search.jobs) > MAX_FOUND:
            search.more = True
            del search.jobs[MAX_FOUND:]
        yield search
        if search.more:
            break
    if asked.by_runs and asked.sort == "next":
        search.jobs.sort(key=lambda job: job.next_time.ToNanoseconds() or 2**63)
        yield search


async def _of_all(desk: Desk, asked: Asked) -> AsyncIterator[api.ListJobsResponse]:
    token = ""
    while True:
        answer = await desk.api.jobs(
            words=asked.words, paused=asked.paused, order=asked.order, size=_NAMES, token=token
        )
        yield answer
        token = answer.next_page_token
        if not token:
            return


async def _of_names(desk: Desk, asked: Asked) -> AsyncIterator[api.ListJobsResponse]:
    """Reads the jobs that the console's own numbers name, or the runs in flight, in their order."""
    if asked.state == "running":
        names = await _running(desk)
    else:
        known = desk.follower.numbers.jobs_ended()
        names = [job for job, last in known if asked.state != "failing" or last.state in FAILED]
    names = _sorted(desk.follower.numbers, names, asked.sort)
    for begin in range(0, len(names), _NAMES):
        some = [job_name(*name.split("/")) for name in names[begin : begin + _NAMES]]
        token = ""
        while True:
            answer = await desk.api.jobs(
                names=some, words=asked.words, paused=asked.paused, size=_NAMES, token=token
            )
            yield answer
            token = answer.next_page_token
            if not token:
                break


async def _running(desk: Desk) -> list[str]:
    """Gives the jobs of the runs in flight."""
    found: dict[str, None] = {}
    token, looked_at = "", 0
    while looked_at < _LIVE:
        answer = await desk.api.runs(states=LIVE_STATES, size=1_000, token=token)
        found.update(dict.fromkeys("/".join(run_parts(run.name)[:2]) for run in answer.runs))
        looked_at += len(answer.runs)
        token = answer.next_page_token
        if not token:
            break
    return list(found)


def _sorted(numbers: Numbers, names: Iterable[str], sort: str) -> list[str]:
    """Sorts jobs by their newest outcome, the largest first; else by name."""

    def key(name: str) -> tuple[float, str]:
        outcomes = numbers.outcomes(name)
        if sort not in _BY_RUNS or not outcomes:
            return 0.0, name
        last = outcomes[-1]
        return -{"last": last.ended_s, "late": last.late_s, "took": last.took_s}[sort], name

    return sorted(names, key=key)


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
