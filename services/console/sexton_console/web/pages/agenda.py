"""The agenda: a day behind and a day ahead of every schedule, on one axis."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from sexton.v1 import job_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_console.web import query
from sexton_console.web.desk import Desk, desk_of
from sexton_console.web.errands import Found
from sexton_console.web.pages.lanes import BIN_S, Read, Span, lanes_of
from sexton_console.web.render import render
from sexton_console.web.urls import with_query
from sexton_console.words import job_parts, schedule_text, zone_of
from sexton_core.errors import FieldError
from sexton_core.instants import SECOND, from_datetime
from sexton_core.zones import get_zone

LANES: Final = 25
SPAN: Final = timedelta(hours=24)
BINS: Final = int(2 * SPAN.total_seconds()) // BIN_S
"""Of the whole axis."""
_MINUTE_S: Final = 60
_FULLEST: Final = 5
"""Minutes that are named below the axis."""
_LABEL: Final = 8
"""Parts of the axis that a label takes."""


class Mark(NamedTuple):
    """What became, or will become, of the instants in one part of the axis."""

    place: float
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
    read: bool
    """Whether its marks have been read."""
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
    at = request.query_params.get("at", "")
    found, load = await asyncio.gather(
        lanes_of(desk, f"{prefix} {token} {at}", answer.jobs, Span(*axis)), _load(desk, axis)
    )
    read = found.value or {}
    lanes = [_lane(job, read.get(job.name), axis) for job in answer.jobs]
    piles = _piles(load.value, start)
    return render(
        request,
        "agenda.html",
        title="Agenda",
        section="agenda",
        live=not at and not token,
        prefix=prefix,
        at=at,
        lanes=lanes,
        absent=found.absent,
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
    first = max(axis.start, axis.now).timestamp() // BIN_S * BIN_S
    last = max(axis.end, axis.now + SPAN).timestamp() // BIN_S * BIN_S + BIN_S
    begin, end = (datetime.fromtimestamp(moment, UTC) for moment in (first, last))
    key = f"load {first:.0f} {last:.0f}"
    return await desk.errands.once(key, 60.0, lambda: desk.api.forecast(begin, end, _MINUTE_S))


def _lane(job: job_pb2.Job, read: Read | None, axis: Axis) -> Lane:
    namespace, short = job_parts(job.name)
    zone = zone_of(job.spec)
    found = read or Read()
    first = axis.start.timestamp()
    marks = (
        Mark((begin - first) / BIN_S, state, times, begin)
        for begin, (state, times) in sorted(found.marks.items())
    )
    return Lane(
        namespace=namespace,
        job=short,
        schedule=", ".join(schedule_text(each) for each in job.spec.schedules) or "by hand only",
        zone=zone,
        paused=job.paused,
        read=read is not None,
        marks=tuple(mark for mark in marks if 0 <= mark.place < BINS),
        changes=_clock_changes(zone, axis),
        bands=tuple((axis.place(first), axis.place(last)) for first, last in found.unread),
    )


def _piles(load: api.ForecastLoadResponse | None, start: datetime) -> tuple[Pile, ...]:
    """Gives the fullest minute of each part of the axis in which something is due."""
    fullest: dict[int, api.LoadInterval] = {}
    for minute in load.intervals if load is not None else ():
        place = int((minute.start_time.ToDatetime(UTC) - start).total_seconds()) // BIN_S
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
    """Gives labels of the axis: every three hours of UTC, a day where it begins."""
    first = start.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    found = []
    for hour in range(48):
        time = first + timedelta(hours=hour)
        place = (time - start).total_seconds() / BIN_S
        if time.hour % 3 == 0 and place < BINS - _LABEL:
            found.append((place, f"{time:%a}" if time.hour == 0 else f"{time:%H}"))
    return found


def _clock_changes(zone: str, axis: Axis) -> tuple[int, ...]:
    first, last = from_datetime(axis.start) // SECOND, from_datetime(axis.end) // SECOND
    try:
        known = get_zone(zone)
    except FieldError:  # a zone that only a newer mesh knows
        return ()
    offsets = [known.offset(min(last, first + place * BIN_S)) for place in range(BINS + 1)]
    return tuple(place for place in range(BINS) if offsets[place] != offsets[place + 1])


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
