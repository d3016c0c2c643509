"""When a job runs: the kinds of schedules, as values.

>>> from datetime import timedelta
>>> Cron("0 3 * * *", timezone="Europe/Berlin")
Cron(expression='0 3 * * *', timezone='Europe/Berlin')
>>> Every(timedelta(minutes=5))
Every(period=datetime.timedelta(seconds=300))

What a schedule means (days, DST, bounds) stands in docs/schedules.md; the mesh judges the values.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from datetime import date, datetime, time, timedelta
from enum import StrEnum


class DstRule(StrEnum):
    """What becomes of a fixed wall time that the clock skips (gap) or shows twice (fold)."""

    VIXIE = "vixie"
    """Gap: once, at its end. Fold: the first pass only."""
    LITERAL = "literal"
    """Gap: none. Fold: both passes."""
    SKIP = "skip"
    """Gap: none. Fold: the first pass only."""
    SHIFT = "shift"
    """Gap: moved later by its length. Fold: the first pass only."""


class DayRule(StrEnum):
    """How a cron expression joins day of month and day of week."""

    DEBIAN = "debian"
    """AND where either starts with `*` or `?`, else OR."""
    AND = "and"
    """Both must match."""
    OR = "or"
    """Either must match."""


class CalendarUnit(StrEnum):
    """The unit of a calendar interval's step."""

    DAYS = "days"
    WEEKS = "weeks"
    MONTHS = "months"
    YEARS = "years"


class ShortMonth(StrEnum):
    """What becomes of a day that a month does not have."""

    SKIP = "skip"
    """That month has no run."""
    LAST = "last"
    """The run is on the last day of that month."""


class _Shown:
    """Values whose repr shows what was given and leaves out what is a default."""

    __slots__ = ()

    def __repr__(self) -> str:
        given = []
        known = fields(self)  # type: ignore[arg-type]  # mixed into dataclasses only
        for each in sorted(known, key=lambda one: one.kw_only is True):
            value = getattr(self, each.name)
            default = each.default if each.default_factory is MISSING else each.default_factory()
            if value != default:
                given.append(f"{each.name}={value!r}")
        return f"{type(self).__name__}({', '.join(given)})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Calendar(_Shown):
    """Civil days and instants on which a schedule does not run."""

    name: str
    """An id, for people."""
    dates: tuple[date, ...] = ()
    ranges: tuple[tuple[date, date], ...] = ()
    """First and last day, both inclusive."""
    weekdays: tuple[str, ...] = ()
    """`MON` to `SUN`."""
    crons: tuple[str, ...] = ()
    """Cron expressions whose instants are excluded."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Schedule(_Shown):
    """What all kinds of schedules share."""

    timezone: str = ""
    """IANA name of the zone in which the calendar is read; empty: UTC."""
    dst: DstRule = DstRule.VIXIE
    """What becomes of fixed times in a gap or a fold."""
    exclude: tuple[Calendar, ...] = ()
    """Instants that fall into one of these are excluded."""
    start: datetime | None = None
    """No instant before this, aware, inclusive; None: the job's creation."""
    end: datetime | None = None
    """No instant after this, aware, inclusive; None: no end."""
    max_runs: int | None = None
    """Instants in all, 1 to 10,000; None: no bound."""
    jitter: timedelta = timedelta(0)
    """Each due time is its nominal time plus a fixed pseudo-random part of this."""


@dataclass(frozen=True, slots=True, repr=False)
class Cron(Schedule):
    """A cron expression: five, six or seven fields, or a macro.

    >>> Cron("30 6 * * MON-FRI", timezone="America/New_York", dst=DstRule.SHIFT).expression
    '30 6 * * MON-FRI'
    """

    expression: str
    days: DayRule | None = field(default=None, kw_only=True)
    """How the two day fields join; None: as in Debian's cron."""


@dataclass(frozen=True, slots=True, repr=False)
class Every(Schedule):
    """A fixed elapsed interval that never drifts: anchor + n * period.

    >>> Every(timedelta(hours=1), offset=timedelta(minutes=5)).offset
    datetime.timedelta(seconds=300)
    """

    period: timedelta
    """1 s to 400 days, whole seconds."""
    offset: timedelta = field(default=timedelta(0), kw_only=True)
    """Added to the anchor; 0 up to the period, exclusive."""
    anchor: datetime | None = field(default=None, kw_only=True)
    """Aware; None: `start`, or the Unix epoch where there is none."""


@dataclass(frozen=True, slots=True, repr=False)
class CalendarInterval(Schedule):
    """A wall time every so many days, weeks, months or years.

    >>> CalendarInterval(2, CalendarUnit.WEEKS, at=time(9), anchor=date(2026, 11, 30)).count
    2
    """

    count: int
    """Units per step, 1 to 10,000."""
    unit: CalendarUnit
    at: time = field(kw_only=True)
    """The wall time, whole seconds, without a zone of its own."""
    anchor: date | None = field(default=None, kw_only=True)
    """A day of the pattern; None: the local date of `start`."""
    short_month: ShortMonth | None = field(default=None, kw_only=True)
    """None is allowed where the anchor's day is at most the 28th, or days or weeks count."""


@dataclass(frozen=True, slots=True, repr=False)
class At(Schedule):
    """Listed times.

    >>> At((datetime(2026, 12, 24, 18, 0),), timezone="Europe/Berlin").times
    (datetime.datetime(2026, 12, 24, 18, 0),)
    """

    times: tuple[datetime, ...]
    """1 to 1,000, whole seconds. Aware: an instant. Naive: a wall time in the schedule's zone."""


@dataclass(frozen=True, slots=True, repr=False)
class RRule(Schedule):
    r"""An RFC 5545 recurrence: lines DTSTART, RRULE, RDATE, EXDATE.

    >>> RRule("DTSTART:20261201T090000\nRRULE:FREQ=MONTHLY;BYDAY=-1FR").text.splitlines()[1]
    'RRULE:FREQ=MONTHLY;BYDAY=-1FR'
    """

    text: str
