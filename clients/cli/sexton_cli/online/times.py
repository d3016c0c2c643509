"""Times as people read them: in the job's zone, and in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sexton.jobs import JobSpec
from sexton_core.errors import FieldError
from sexton_core.instants import (
    MICROSECOND,
    format_duration,
    format_instant,
    from_datetime,
    to_datetime,
)
from sexton_core.zones import get_zone

NEVER = "-"


def utc(moment: datetime | None) -> str:
    """Returns RFC 3339 in UTC, to the second; `-` for none."""
    return NEVER if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc_or_none(moment: datetime | None) -> str | None:
    """Returns RFC 3339 in UTC with all its digits, for programs."""
    return None if moment is None else format_instant(from_datetime(moment))


def zone_of(spec: JobSpec | None) -> str:
    """Returns the zone in which a job's times are shown: that of its first schedule."""
    return (spec.schedules[0].timezone if spec is not None and spec.schedules else "") or "UTC"


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


def span(duration: timedelta | None) -> str:
    """Returns a duration as job files have it, in milliseconds at most; `-` for none."""
    if duration is None:
        return NEVER
    milliseconds = round(duration / timedelta(milliseconds=1))
    return format_duration(milliseconds * 1_000 * MICROSECOND)
