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
from sexton_console.mesh.api import MeshApi, part
from sexton_console.web import query
from sexton_console.web.desk import Desk, desk_of
from sexton_console.web.errands import Found
from sexton_console.web.render import render
from sexton_console.web.shared import shared
from sexton_console.web.urls import with_query
from sexton_console.words import job_parts, run_state, schedule_text, zone_of
from sexton_core.errors import FieldError
from sexton_core.instants import SECOND, from_datetime
from sexton_core.zones import get_zone

LANES: Final = 25
SPAN: Final = timedelta(hours=24)
BINS: Final = 288
"""Of the whole axis: ten minutes each."""
_BIN_S: Final = int(2 * SPAN.total_seconds()) // BINS
_MINUTE_S: Final = 60
_FULLEST: Final = 5
"""Minutes that are named below the axis."""
_LABEL: Final = 8
"""Parts of the axis that a label takes."""
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
    bands: tuple[tuple[float, float], ...]
    """Where there are more instants than were read: begin and end, in parts of the axis."""


class Axis(NamedTuple):
    """From when to when, and where now is."""

    start: datetime
    end: datetime
    now: datetime

    def place(self, time: datetime) -> float:
        """Gives where a time is, in parts of the axis."""
        return (time - self.start) / (self.end - self.start) * BINS


class Read(NamedTuple):
    """What was read of a job: its instants with what became of them, and where there are more."""

    found: list[tuple[datetime, str]]
    unread: list[tuple[datetime, datetime]]


class Pile(NamedTuple):
    """The fullest minute of one part of the axis."""

    place: int
    start_s: int
    times: int
    height: float
    jobs: tuple[str, ...]
    """`NAMESPACE/JOB` of those with most of it."""


async def show(request: Request) -> Response:
    """Shows the agenda."""
    desk = desk_of(request)
    prefix = query.text(request, "prefix")
    token = request.query_params.get("page", "")
    middle = query.moment(request, "at") or datetime.fromtimestamp(desk.now_s // 60 * 60, UTC)
    axis = Axis(middle - SPAN, middle + SPAN, datetime.fromtimestamp(desk.now_s, UTC))
    start, end, now = axis
    answer = await desk.api.jobs(prefix=prefix, size=LANES, token=token)
    turns = asyncio.Semaphore(_AT_ONCE)
    lanes, load = await asyncio.gather(
        asyncio.gather(*(_lane(desk, job, axis, turns) for job in answer.jobs)),
        _load(desk, axis),
    )
    piles = _piles(load.value, start)
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
        piles=piles,
        fullest=sorted(piles, key=lambda pile: (-pile.times, pile.start_s))[:_FULLEST],
        load=load,
        hours=_hours(start),
        start=start,
        middle=middle,
        end=end,
        bins=BINS,
        now_bin=axis.place(now),
        earlier=with_query("/agenda", prefix=prefix, at=_text(start), page=token),
        later=with_query("/agenda", prefix=prefix, at=_text(end), page=token),
        next_page=with_query("/agenda", prefix=prefix, at=at, page=answer.next_page_token)
        if answer.next_page_token
        else "",
    )


async def _load(desk: Desk, axis: Axis) -> Found[api.ForecastLoadResponse]:
    """Counts what is due by minute, of all jobs: where there are many it takes its time."""
    first = max(axis.start, axis.now).timestamp() // _BIN_S * _BIN_S
    last = max(axis.end, axis.now + SPAN).timestamp() // _BIN_S * _BIN_S + _BIN_S
    begin, end = (datetime.fromtimestamp(moment, UTC) for moment in (first, last))
    key = f"load {first:.0f} {last:.0f}"
    return await desk.errands.once(key, 60.0, lambda: desk.api.forecast(begin, end, _MINUTE_S))


async def _lane(desk: Desk, job: job_pb2.Job, axis: Axis, turns: asyncio.Semaphore) -> Lane:
    namespace, short = job_parts(job.name)
    zone = zone_of(job.spec)
    async with turns:
        read = await shared(
            desk,
            f"agenda {job.name} {job.etag} {axis.start}",
            _KEPT_S,
            lambda: _read(desk.api, job, axis),
        )
    return Lane(
        namespace=namespace,
        job=short,
        schedule=", ".join(schedule_text(each) for each in job.spec.schedules) or "by hand only",
        zone=zone,
        paused=job.paused,
        marks=_marks(read.found, axis.start),
        changes=_clock_changes(zone, axis),
        bands=tuple((axis.place(first), axis.place(last)) for first, last in read.unread),
    )


async def _read(mesh: MeshApi, job: job_pb2.Job, axis: Axis) -> Read:
    """Reads what became of the instants behind, and what is asked for ahead."""
    behind, ahead = await asyncio.gather(_behind(mesh, job, axis), _ahead(mesh, job, axis))
    return Read([*behind.found, *ahead.found], [*behind.unread, *ahead.unread])


async def _behind(mesh: MeshApi, job: job_pb2.Job, axis: Axis) -> Read:
    first, last = axis.start, min(axis.end, axis.now)
    if last <= first:
        return Read([], [])
    ledger = await part(mesh.decisions(job.name, start=first, end=last, size=_MOST))
    if ledger.value is not None:
        found = [(e.nominal_time.ToDatetime(UTC), _state(e)) for e in ledger.value.entries]
        more = ledger.value.next_page_token
    else:
        runs = await mesh.runs(job.name, after=first, before=last, size=_MOST)
        found = [
            (run.nominal_time.ToDatetime(UTC), run_state(run.state))
            for run in runs.runs
            if run.origin == run_pb2.RUN_ORIGIN_SCHEDULE
        ]
        more = runs.next_page_token
    return Read(found, [(first, min(found)[0])] if more and found else [])


async def _ahead(mesh: MeshApi, job: job_pb2.Job, axis: Axis) -> Read:
    first, last = max(axis.start, axis.now), axis.end
    if last <= first or not job.spec.schedules or job.paused:
        return Read([], [])
    preview = await part(mesh.preview(job.name, after=first, until=last, count=_MOST))
    if preview.value is not None:
        found = [(e.nominal_time.ToDatetime(UTC), "forecast") for e in preview.value.times]
        return Read(found, [(found[-1][0], last)] if len(found) >= _MOST else [])
    following = job.next_time.ToDatetime(UTC)
    known = job.HasField("next_time") and first <= following <= last
    return Read([(following, "forecast")] if known else [], [])


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


def _piles(load: api.ForecastLoadResponse | None, start: datetime) -> tuple[Pile, ...]:
    """Gives the fullest minute of each part of the axis in which something is due."""
    fullest: dict[int, api.LoadInterval] = {}
    for minute in load.intervals if load is not None else ():
        place = int((minute.start_time.ToDatetime(UTC) - start).total_seconds()) // _BIN_S
        known = fullest.get(place)
        if 0 <= place < BINS and (known is None or minute.count > known.count):
            fullest[place] = minute
    highest = max((minute.count for minute in fullest.values()), default=1)
    return tuple(
        Pile(
            place,
            minute.start_time.seconds,
            minute.count,
            100 * minute.count / highest,
            tuple("/".join(job_parts(name)) for name in minute.jobs),
        )
        for place, minute in sorted(fullest.items())
    )


def _hours(start: datetime) -> list[tuple[float, str]]:
    """Gives labels of the axis: every three hours of UTC, days by their date."""
    first = start.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    found = []
    for hour in range(48):
        time = first + timedelta(hours=hour)
        place = (time - start).total_seconds() / _BIN_S
        if time.hour % 3 == 0 and place < BINS - _LABEL:
            found.append((place, f"{time:%a %d}" if time.hour == 0 else f"{time:%H}"))
    return found


def _clock_changes(zone: str, axis: Axis) -> tuple[int, ...]:
    first, last = from_datetime(axis.start) // SECOND, from_datetime(axis.end) // SECOND
    try:
        known = get_zone(zone)
    except FieldError:  # a zone that only a newer mesh knows
        return ()
    offsets = [known.offset(min(last, first + place * _BIN_S)) for place in range(BINS + 1)]
    return tuple(place for place in range(BINS) if offsets[place] != offsets[place + 1])


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
