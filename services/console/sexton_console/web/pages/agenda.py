"""The agenda: a day behind and a day ahead of every schedule, on one axis."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from sexton.v1 import job_pb2, run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_console.mesh.api import MeshApi, Part, part
from sexton_console.web import query
from sexton_console.web.desk import Desk, desk_of
from sexton_console.web.render import render
from sexton_console.web.shared import shared
from sexton_console.web.urls import with_query
from sexton_console.words import job_parts, run_state, schedule_text, zone_of
from sexton_core.instants import SECOND, from_datetime
from sexton_core.zones import get_zone

LANES: Final = 25
SPAN: Final = timedelta(hours=24)
BINS: Final = 288
"""Of the whole axis: ten minutes each."""
_BIN_S: Final = int(2 * SPAN.total_seconds()) // BINS
_MOST: Final = 1_000
_KEPT_S: Final = 15.0
_AT_ONCE: Final = 8

_RANK: Final = {
    "failed": 9, "timed_out": 9, "lost": 9, "missed": 8, "expired": 8, "dropped": 7, "skipped": 6,
    "excluded": 5, "cancelled": 4, "terminated": 4, "running": 3, "waiting": 3, "retrying": 3,
    "buffered": 3, "due": 2, "succeeded": 1, "fired": 1, "forecast": 0,
}  # fmt: skip
"""Of several decisions in one mark the one that a person should see first is shown."""


class Mark(NamedTuple):
    """What became, or will become, of the instants in one part of the axis."""

    place: int
    state: str
    times: int
    start_s: int


class Lane(NamedTuple):
    """One job."""

    namespace: str
    job: str
    schedule: str
    zone: str
    paused: bool
    marks: tuple[Mark, ...]
    changes: tuple[int, ...]
    """Parts of the axis in which the clock of its zone changes."""
    cut: bool
    """Whether there are more instants than were read."""


class Pile(NamedTuple):
    """How much is due in one part of the axis."""

    place: int
    times: int
    height: float
    jobs: str


async def show(request: Request) -> Response:
    """Shows the agenda."""
    desk = desk_of(request)
    prefix = query.text(request, "prefix")
    token = request.query_params.get("page", "")
    middle = query.moment(request, "at") or datetime.fromtimestamp(desk.now_s // 60 * 60, UTC)
    start, end = middle - SPAN, middle + SPAN
    now = datetime.fromtimestamp(desk.now_s, UTC)
    answer = await desk.api.jobs(prefix=prefix, size=LANES, token=token)
    turns = asyncio.Semaphore(_AT_ONCE)
    lanes, load = await asyncio.gather(
        asyncio.gather(*(_lane(desk, job, start, end, now, turns) for job in answer.jobs)),
        part(
            shared(desk, f"load {start}", 60.0,
                   lambda: desk.api.forecast(max(start, now), max(end, now + SPAN), _BIN_S))
        ),
    )  # fmt: skip
    at = request.query_params.get("at", "")
    return render(
        request,
        "agenda.html",
        title="Agenda",
        section="agenda",
        live=not at and not token,
        prefix=prefix,
        at=at,
        lanes=lanes,
        piles=_piles(load, start),
        load=load,
        hours=_hours(start),
        start=start,
        middle=middle,
        end=end,
        bins=BINS,
        now_bin=(now - start) / (end - start) * BINS,
        earlier=with_query("/agenda", prefix=prefix, at=_text(start), page=token),
        later=with_query("/agenda", prefix=prefix, at=_text(end), page=token),
        next_page=with_query("/agenda", prefix=prefix, at=at, page=answer.next_page_token)
        if answer.next_page_token
        else "",
    )


async def _lane(  # noqa: PLR0917 - what an axis is
    desk: Desk,
    job: job_pb2.Job,
    start: datetime,
    end: datetime,
    now: datetime,
    turns: asyncio.Semaphore,
) -> Lane:
    namespace, short = job_parts(job.name)
    zone = zone_of(job.spec)
    async with turns:
        found, cut = await shared(
            desk, f"agenda {job.name} {job.etag} {start}", _KEPT_S,
            lambda: _decisions(desk.api, job, start, end, now),
        )  # fmt: skip
    return Lane(
        namespace=namespace,
        job=short,
        schedule=", ".join(schedule_text(each) for each in job.spec.schedules) or "by hand only",
        zone=zone,
        paused=job.paused,
        marks=_marks(found, start),
        changes=_clock_changes(zone, start, end),
        cut=cut,
    )


async def _decisions(
    mesh: MeshApi, job: job_pb2.Job, start: datetime, end: datetime, now: datetime
) -> tuple[list[tuple[datetime, str]], bool]:
    """Gives what became of the instants behind, and those ahead; and whether there are more."""
    behind, ahead = await asyncio.gather(
        _behind(mesh, job.name, start, min(end, now)),
        part(mesh.preview(job.name, after=max(start, now), until=end, count=_MOST))
        if end > now and job.spec.schedules
        else _nothing(),
    )
    found, cut = behind
    if ahead.value is not None:
        times = ahead.value.times
        found += [(each.nominal_time.ToDatetime(UTC), "forecast") for each in times]
        cut = cut or len(times) >= _MOST
    elif job.HasField("next_time") and start <= job.next_time.ToDatetime(UTC) <= end:
        found.append((job.next_time.ToDatetime(UTC), "forecast"))
    return found, cut


async def _behind(
    mesh: MeshApi, name: str, start: datetime, end: datetime
) -> tuple[list[tuple[datetime, str]], bool]:
    if end <= start:
        return [], False
    ledger = await part(mesh.decisions(name, start=start, end=end, size=_MOST))
    if ledger.value is not None:
        entries = ledger.value.entries
        return [(e.nominal_time.ToDatetime(UTC), _state(e)) for e in entries], bool(
            ledger.value.next_page_token
        )
    runs = await mesh.runs(name, after=start, before=end, size=500)
    return [
        (run.nominal_time.ToDatetime(UTC), run_state(run.state))
        for run in runs.runs
        if run.origin == run_pb2.RUN_ORIGIN_SCHEDULE
    ], bool(runs.next_page_token)


async def _nothing() -> Part[api.PreviewJobResponse]:
    return Part(api.PreviewJobResponse())


def _state(entry: api.LedgerEntry) -> str:
    return run_state(entry.run.state) if entry.HasField("run") else entry.decision


def _marks(found: Sequence[tuple[datetime, str]], start: datetime) -> tuple[Mark, ...]:
    states: dict[int, str] = {}
    counts: dict[int, int] = {}
    for time, state in found:
        place = int((time - start).total_seconds()) // _BIN_S
        if 0 <= place < BINS:
            counts[place] = counts.get(place, 0) + 1
            if _RANK.get(state, 0) >= _RANK.get(states.get(place, ""), -1):
                states[place] = state
    first = int(start.timestamp())
    return tuple(
        Mark(place, states[place], counts[place], first + place * _BIN_S)
        for place in sorted(counts)
    )


def _piles(load: Part[api.ForecastLoadResponse], start: datetime) -> tuple[Pile, ...]:
    if load.value is None:
        return ()
    found: dict[int, tuple[int, str]] = {}
    for interval in load.value.intervals:
        since = (interval.start_time.ToDatetime(UTC) - start).total_seconds()
        place = int(since) // _BIN_S
        if 0 <= place < BINS:
            jobs = ", ".join("/".join(job_parts(name)) for name in interval.jobs)
            found[place] = (found.get(place, (0, ""))[0] + interval.count, jobs)
    highest = max((count for count, _ in found.values()), default=1)
    return tuple(
        Pile(place, count, 100 * count / highest, jobs)
        for place, (count, jobs) in sorted(found.items())
    )


def _hours(start: datetime) -> list[tuple[float, str]]:
    """Gives labels of the axis: every three hours of UTC, days by their date."""
    first = start.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    found = []
    for hour in range(48):
        time = first + timedelta(hours=hour)
        if time.hour % 3 == 0:
            place = (time - start).total_seconds() / _BIN_S
            found.append((place, f"{time:%a %d}" if time.hour == 0 else f"{time:%H}"))
    return found


def _clock_changes(zone: str, start: datetime, end: datetime) -> tuple[int, ...]:
    first, last = from_datetime(start) // SECOND, from_datetime(end) // SECOND
    known = get_zone(zone)
    return tuple(
        place
        for place in range(BINS)
        if known.offset(first + place * _BIN_S)
        != known.offset(min(last, first + (place + 1) * _BIN_S))
    )


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
