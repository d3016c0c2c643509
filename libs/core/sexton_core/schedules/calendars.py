"""Excluded calendars: days and times on which a schedule does not run.

A calendar answers with the whole stretch around an excluded instant, so that a search passes a
closed month in a step and not in as many as the schedule has seconds in it.
"""

from bisect import bisect_right
from collections.abc import Iterable
from datetime import date
from typing import Final, NamedTuple, Protocol

from sexton_core._civil import DAY_SECONDS, day_number
from sexton_core.cron import CronSchedule, CronSpec, EveryMacro, parse
from sexton_core.errors import NeverFiresError, ScheduleError
from sexton_core.instants import DAY, SECOND, Duration, Instant
from sexton_core.schedule import Schedule
from sexton_core.schedules.memo import Memo
from sexton_core.schedules.spec import CalendarSpec
from sexton_core.zones import Zone

MAX_ENTRIES: Final = 10_000
"""Dates and ranges of one calendar; a century of weekends is given as weekdays."""

MAX_CRONS: Final = 20
"""Cron expressions of one calendar; each is asked for each candidate."""

MAX_STEPS: Final = 20_000
"""Candidates in a row that may be excluded. A schedule of which so many are, one after the other
and not in one stretch, is taken never to fire again."""

MAX_EXCLUDED: Final[Duration] = 400 * 366 * DAY
"""Likewise for a time this long: dates, weekdays and week numbers repeat within it."""


_FIELDS_WITHOUT_SECONDS: Final = 5
_EVERY_60TH: Final = (1 << 60) - 1
_EVERY_HOUR: Final = (1 << 24) - 1


def check_calendar(spec: CalendarSpec) -> None:
    """Checks all of a calendar that can be judged without the schedule that excludes it.

    Raises:
        ScheduleError: too many entries, a range ends before it begins, an expression can't be
            read or has no wall times; the field begins with the calendar's name.
        NeverFiresError: no day would be left.
    """
    entries = len(spec.dates) + len(spec.ranges)
    if entries > MAX_ENTRIES:
        raise ScheduleError(
            f"calendar {spec.name}", f"{entries:,} days", f"at most {MAX_ENTRIES:,} of them"
        )
    if len(spec.crons) > MAX_CRONS:
        raise ScheduleError(
            f"calendar {spec.name}", f"{len(spec.crons)} expressions", f"at most {MAX_CRONS}"
        )
    for first, last in spec.ranges:
        if last < first:
            raise ScheduleError(
                f"calendar {spec.name}", f"{first}..{last}", "a range that ends after it begins"
            )
    if not all(0 <= day <= 6 for day in spec.weekdays):
        raise ScheduleError(f"calendar {spec.name}", spec.weekdays, "weekdays from MON to SUN")
    if len(set(spec.weekdays)) == 7:
        raise NeverFiresError(
            f"calendar {spec.name}", "all seven weekdays", "a day that is not excluded"
        )
    for expression in spec.crons:
        try:
            parsed = parse(expression, seed="any/job")
        except ScheduleError as error:
            field = f"calendar {spec.name}: {error.field}"
            raise ScheduleError(field, error.value, error.expected) from None
        if isinstance(parsed, EveryMacro):
            raise ScheduleError(
                f"calendar {spec.name}", expression, "wall times; elapsed time has no calendar"
            )


class Span(NamedTuple):
    """A stretch of excluded time, [begin, end), and the calendar it comes from."""

    begin: Instant
    end: Instant
    calendar: str


class Exclusion(Protocol):
    """One reason for excluding time."""

    def span(self, t: Instant) -> Span | None:
        """Returns an excluded stretch that contains `t`; None where `t` is not excluded."""
        ...


class DayExclusion:
    """The dates, ranges and weekdays of a calendar in one zone."""

    __slots__ = ("_begins", "_name", "_ranges", "_weekdays", "_zone")

    def __init__(self, spec: CalendarSpec, zone: Zone) -> None:
        """Merges the days of a calendar that `check_calendar` has found good."""
        days = [(_day(on), _day(on)) for on in spec.dates]
        days += [(_day(first), _day(last)) for first, last in spec.ranges]
        self._name: Final = spec.name
        self._ranges: Final = _merge(days)
        self._begins: Final = [first for first, _ in self._ranges]
        self._weekdays: Final = frozenset(spec.weekdays)
        self._zone: Final = zone

    def span(self, t: Instant) -> Span | None:
        """Returns the stretch of excluded days around `t`, as far as the offset stays the same."""
        segment = self._zone.segment(t // SECOND)
        day = (t // SECOND + segment.offset) // DAY_SECONDS
        days = self._days(day)
        if days is None:
            return None
        begin = max(days[0] * DAY_SECONDS - segment.offset, segment.start)
        end = min((days[1] + 1) * DAY_SECONDS - segment.offset, segment.end)
        return Span(begin * SECOND, end * SECOND, self._name)

    def _days(self, day: int) -> tuple[int, int] | None:
        index = bisect_right(self._begins, day) - 1
        if index >= 0 and day <= self._ranges[index][1]:
            return self._ranges[index]
        # Day 0 was a Thursday; Monday is 0 here.
        return (day, day) if (day + 3) % 7 in self._weekdays else None


class CronExclusion:
    """The times of a cron expression, each with the second or the minute that it names.

    Where an expression takes every minute of its hours, the answer is the hour, and the day where
    it takes every hour: these are steps that a search is spared.
    """

    __slots__ = ("_cron", "_name", "_resolution", "_schedule")

    def __init__(self, name: str, cron: CronSchedule) -> None:
        """Finds the longest unit that is covered whole."""
        self._name: Final = name
        self._cron: Final = cron
        self._schedule: Final = Memo(cron)
        self._resolution: Final = _resolution(cron.spec)

    def span(self, t: Instant) -> Span | None:
        """Returns the unit around `t` if the expression fires at its beginning."""
        second = t // SECOND
        segment = self._cron.zone.segment(second)
        begin = second - (second + segment.offset) % self._resolution
        if self._cron.spec.wildcard:
            wall = begin + segment.offset
            if self._cron.walls.at_or_after(wall) != wall:
                return None
        elif self._schedule.next_after(begin * SECOND - 1) != begin * SECOND:
            return None
        end = min(begin + self._resolution, segment.end)
        return Span(max(begin, segment.start) * SECOND, end * SECOND, self._name)


class Excluding:
    """Another schedule without what its calendars exclude."""

    __slots__ = ("_exclusions", "_inner", "_names")

    def __init__(
        self, inner: Schedule, exclusions: Iterable[Exclusion], names: Iterable[str]
    ) -> None:
        """Keeps the parts; `names` are those of the calendars, for the explanation."""
        self._inner: Final = inner
        self._exclusions: Final = tuple(exclusions)
        self._names: Final = tuple(names)

    def next_after(self, t: Instant) -> Instant | None:
        """Returns the first nominal time later than `t` that no calendar excludes."""
        latest: Instant | None = None
        for _ in range(MAX_STEPS):
            due = self._inner.next_after(t)
            if due is None or (latest is not None and due > latest):
                return None
            span = self.excluded(due)
            if span is None:
                return due
            if latest is None:
                latest = due + MAX_EXCLUDED
            t = span.end - 1
        return None

    def previous_before(self, t: Instant) -> Instant | None:
        """Returns the last nominal time earlier than `t` that no calendar excludes."""
        earliest: Instant | None = None
        for _ in range(MAX_STEPS):
            due = self._inner.previous_before(t)
            if due is None or (earliest is not None and due < earliest):
                return None
            span = self.excluded(due)
            if span is None:
                return due
            if earliest is None:
                earliest = due - MAX_EXCLUDED
            t = span.begin
        return None

    def excluded(self, t: Instant) -> Span | None:
        """Returns the first calendar's stretch that excludes `t`, None where none does."""
        for exclusion in self._exclusions:
            span = exclusion.span(t)
            if span is not None:
                return span
        return None

    def explain(self) -> str:
        """Adds the calendars' names to the other schedule's text."""
        return f"{self._inner.explain()}, except on {', '.join(self._names)}"


def _resolution(spec: CronSpec) -> int:
    """Returns the seconds of the longest unit of which a wildcard expression takes all or none."""
    # A macro stands for five fields.
    seconds = len(spec.text.split()) > _FIELDS_WITHOUT_SECONDS
    if seconds and spec.second.mask != _EVERY_60TH:
        return 1
    if not spec.wildcard or spec.minute.mask != _EVERY_60TH:
        return 1 if seconds and not spec.wildcard else 60
    return DAY_SECONDS if spec.hour.mask == _EVERY_HOUR else 3600


def _day(on: date) -> int:
    return day_number(on.year, on.month, on.day)


def _merge(days: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the ranges in order, with those joined that touch or overlap."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(days):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged
