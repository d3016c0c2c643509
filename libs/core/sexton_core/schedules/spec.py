"""What a schedule is, as data: frozen, hashable, and complete.

A specification has no behaviour. `build` turns it into a `Schedule`; equal specifications build
equal schedules, which is what lets a million jobs share a thousand of them.

ScheduleSpec or UnionSpec
└── timing: CronTiming | EveryTiming | CalendarTiming | AtTiming | RRuleTiming
└── exclude: CalendarSpec...
"""

from dataclasses import dataclass
from datetime import date, datetime, time
from enum import StrEnum
from typing import TypeAlias

from sexton_core.instants import Duration, Instant
from sexton_core.words import DayRule, DstRule


class CalendarUnit(StrEnum):
    """What a calendar interval counts in."""

    DAYS = "days"
    WEEKS = "weeks"
    MONTHS = "months"
    YEARS = "years"


class ShortMonth(StrEnum):
    """What becomes of a day that a month does not have, such as the 31st in April."""

    SKIP = "skip"
    """That month has no run; the meaning of RFC 5545."""
    LAST = "last"
    """The run is on the last day of that month."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIdentity:
    """What of a job its schedule may depend on."""

    namespace: str
    name: str
    """With the namespace, what `H` in a cron expression is hashed from."""
    uid: str
    """What jitter is hashed from, with the nominal time."""
    since: Instant = 0
    """The job's creation, or when this definition came into force: from here `max_runs` counts
    where the schedule has no `start`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CronTiming:
    """A cron expression of five, six or seven fields, or a macro."""

    expression: str
    days: DayRule | None = None
    """How two given day fields combine; None: Debian's rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EveryTiming:
    """Every `anchor + offset + n * period`, in elapsed time: it never drifts and knows no DST."""

    period_ns: Duration
    """Whole seconds, at least one."""
    offset_ns: Duration = 0
    """Whole seconds, at least zero and less than the period."""
    anchor: Instant | None = None
    """A whole second; None: the schedule's `start`, or the epoch where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarTiming:
    """Every `count` days, weeks, months or years at a wall time, counted from an anchor date."""

    count: int
    """From 1 to 10,000."""
    unit: CalendarUnit
    at: time
    """The wall time, naive, in whole seconds."""
    anchor: date | None = None
    """The pattern goes on from here in both directions; None: the local date of `start`."""
    short_month: ShortMonth | None = None
    """Must be declared where the anchor's day is beyond the 28th and months or years count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTiming:
    """A list of instants, and of wall times in the schedule's zone."""

    instants: tuple[Instant, ...] = ()
    walls: tuple[datetime, ...] = ()
    """Naive, in whole seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RRuleTiming:
    """An RFC 5545 recurrence: the lines RRULE, RDATE, EXDATE and DTSTART, as text.

    A bare `FREQ=...` is an RRULE. DTSTART may be left out where the schedule has a `start`.
    """

    text: str


Timing: TypeAlias = CronTiming | EveryTiming | CalendarTiming | AtTiming | RRuleTiming


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarSpec:
    """A named set of days and times on which a schedule does not run.

    Everything in it is read in the zone of the schedule that excludes it.
    """

    name: str
    dates: tuple[date, ...] = ()
    ranges: tuple[tuple[date, date], ...] = ()
    """First and last day, both excluded."""
    weekdays: tuple[int, ...] = ()
    """0 is Monday."""
    crons: tuple[str, ...] = ()
    """Every minute (of five fields), or second (of six and seven), at which one of them fires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """One schedule: when, in which zone, and within which bounds."""

    timing: Timing
    timezone: str | None = None
    """An IANA name; None means UTC, and is warned about where the zone matters."""
    dst: DstRule = DstRule.VIXIE
    exclude: tuple[CalendarSpec, ...] = ()
    start: Instant | None = None
    """A whole second; no nominal time is earlier."""
    end: Instant | None = None
    """A whole second; no nominal time is later."""
    max_runs: int | None = None
    """Nominal times in all, from 1 to 10,000, counted from `start` or the job's `since`,
    whatever becomes of them."""
    jitter_ns: Duration = 0
    """A run may be due up to this much after its nominal time, but before the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionSpec:
    """Several schedules of one job: what any of them asks for, equal instants once."""

    parts: tuple[ScheduleSpec, ...]
    """From 1 to 20."""


AnySpec: TypeAlias = ScheduleSpec | UnionSpec
