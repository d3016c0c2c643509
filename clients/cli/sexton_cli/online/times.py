"""Times as people read them: in the job's zone, and in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from sexton import errors
from sexton.client import Client
from sexton.jobs import JobSpec
from sexton.schedules import Cron, Schedule
from sexton_cli.errors import UsageError
from sexton_cli.offline.values import read_instant
from sexton_core.errors import FieldError
from sexton_core.instants import (
    MICROSECOND,
    SECOND,
    format_duration,
    format_instant,
    from_datetime,
    to_datetime,
)
from sexton_core.zones import get_zone

NEVER = "-"
_PREFIX = re.compile(r"\s*(?:CRON_)?TZ=(\S*)\s")
_WALL = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?)?", re.ASCII)


def utc(moment: datetime | None) -> str:
    """Returns RFC 3339 in UTC, to the second; `-` for none."""
    return NEVER if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc_or_none(moment: datetime | None) -> str | None:
    """Returns RFC 3339 in UTC with all its digits, for programs."""
    return None if moment is None else format_instant(from_datetime(moment))


def zone_of(spec: JobSpec | None) -> str:
    """Returns the zone in which a job's times are shown: that of its first schedule."""
    if spec is None or not spec.schedules:
        return "UTC"
    return named_zone(spec.schedules[0]) or "UTC"


def zone_of_job(client: Client, job: str) -> str:
    """Returns the zone in which a job's times are shown; UTC for one that was deleted.

    Raises:
        errors.NotFound: there is none, and none that is still kept.
    """
    try:
        return zone_of(client.jobs.get(job).spec)
    except errors.NotFound as error:
        if "deleted_at" not in error.facts:
            raise
        return "UTC"


def named_zone(schedule: Schedule) -> str:
    """Returns the zone that a schedule names, as a field or as cron's prefix; empty: none."""
    prefix = _PREFIX.match(schedule.expression) if isinstance(schedule, Cron) else None
    return prefix[1] if prefix is not None else schedule.timezone


def local(moment: datetime | None, zone: str) -> str:
    """Returns the wall time in a zone, with its offset; `-` for none."""
    if moment is None:
        return NEVER
    instant = from_datetime(moment)
    try:
        shown = get_zone(zone).local(instant)
    except FieldError:  # a zone that only a newer mesh knows
        shown = to_datetime(instant)
    return f"{shown:%a %Y-%m-%d %H:%M:%S %z}"


def both_headers(zone: str, before: str = "") -> tuple[str, ...]:
    """Names the columns of `both`."""
    return (f"{before}IN UTC",) if zone == "UTC" else (f"{before}IN {zone}", "IN UTC")


def both(moment: datetime, zone: str) -> tuple[str, ...]:
    """Returns the wall time in a zone and the time in UTC; once where they are the same."""
    return (utc(moment),) if zone == "UTC" else (local(moment, zone), utc(moment))


def read(text: str, zone: str, option: str) -> datetime:
    """Reads a time: with an offset, or else a wall time or date of the zone.

    Of a wall time that the clock shows twice, the first.

    Raises:
        UsageError: it is none, or the zone's clock skips it.
    """
    match = _WALL.fullmatch(text)
    if match is None:
        return to_datetime(read_instant(text, option))
    try:
        wall = datetime.fromisoformat(text).replace(tzinfo=UTC)
        shown = get_zone(zone).seconds_showing(from_datetime(wall) // SECOND)
    except ValueError as error:
        raise UsageError(f"{option}: {text!r} can't be used; expected a time ({error})") from None
    if not shown:
        raise UsageError(f"{option}: {text!r} can't be used; the clock of {zone} skips it")
    return to_datetime(shown[0] * SECOND)


def read_range(
    begin: str | None,
    end: str | None,
    zone: str = "UTC",
    *,
    options: tuple[str, str] = ("--from", "--to"),
    one_instant: bool = False,
) -> tuple[datetime | None, datetime | None]:
    """Reads the ends of a range, as `read` does; `one_instant`: they may be the same.

    Raises:
        UsageError: one is no time, or the end does not come after the beginning.
    """
    first, last = options
    start = None if begin is None else read(begin, zone, first)
    stop = None if end is None else read(end, zone, last)
    if start is None or stop is None or start < stop or (one_instant and start == stop):
        return start, stop
    where = "at or after" if one_instant else "after"
    raise UsageError(f"{last}: {end!r} can't be used; expected a time {where} {first}, {begin}")


def span(duration: timedelta | None) -> str:
    """Returns a duration as job files have it, in milliseconds at most; `-` for none."""
    if duration is None:
        return NEVER
    milliseconds = round(duration / timedelta(milliseconds=1))
    return format_duration(milliseconds * 1_000 * MICROSECOND)
