"""Every N days, weeks, months or years at a wall time: the calendar's interval, not elapsed time.

"Every 7 days at 09:00" stays at 09:00 when the clocks change; the elapsed interval of `every`
would move to 10:00 or 08:00.
"""

from datetime import date, time
from typing import Final

from sexton_core._civil import DAY_SECONDS, day_number, month_length
from sexton_core.dst import MAX_SECOND
from sexton_core.errors import ScheduleError
from sexton_core.schedules.spec import CalendarTiming, CalendarUnit, ShortMonth

MAX_COUNT: Final = 10_000
"""The largest interval, in its unit; no later one could fire twice before the year 2261."""

_LAST_DAY: Final = MAX_SECOND // DAY_SECONDS + 2
"""Beyond every wall time of the calendar in any zone."""

_LAST_MONTH: Final = 10_000 * 12
_ALWAYS_THERE: Final = 28
"""Every month has this day."""


class CalendarIntervalWalls:
    """The wall times of a calendar interval, in both directions from its anchor."""

    __slots__ = ("_anchor", "_anchor_day", "_at", "_clamp", "_months", "_step")

    def __init__(self, spec: CalendarTiming, anchor: date) -> None:
        """Checks the interval.

        Raises:
            ScheduleError: the count is out of range, the time is not in whole seconds, or the
                anchor's day is beyond the 28th without a declared `short_month`.
        """
        _check(spec, anchor)
        self._anchor: Final = anchor
        self._anchor_day: Final = day_number(anchor.year, anchor.month, anchor.day)
        self._at: Final = spec.at.hour * 3600 + spec.at.minute * 60 + spec.at.second
        self._months: Final = spec.unit in (CalendarUnit.MONTHS, CalendarUnit.YEARS)
        self._clamp: Final = spec.short_month is ShortMonth.LAST
        factor = {CalendarUnit.WEEKS: 7, CalendarUnit.YEARS: 12}.get(spec.unit, 1)
        self._step: Final = spec.count * factor

    def at_or_after(self, wall: int) -> int | None:
        """Returns the first wall time not earlier than `wall`."""
        index = self._index(wall)
        while not self._beyond(index):
            found = self._wall(index)
            if found is not None and found >= wall:
                return found
            index += 1
        return None

    def at_or_before(self, wall: int) -> int | None:
        """Returns the last wall time not later than `wall`."""
        index = self._index(wall)
        while not self._beyond(index):
            found = self._wall(index)
            if found is not None and found <= wall:
                return found
            index -= 1
        return None

    def _index(self, wall: int) -> int:
        """Returns the number of the last period that begins on the wall time's day or earlier."""
        day = wall // DAY_SECONDS
        if not self._months:
            return (day - self._anchor_day) // self._step
        moment = date.fromordinal(min(max(day + 719_163, 1), date.max.toordinal()))
        passed = (moment.year - self._anchor.year) * 12 + moment.month - self._anchor.month
        return passed // self._step

    def _beyond(self, index: int) -> bool:
        """Tells whether the period lies outside the calendar, where every search ends."""
        if self._months:
            month = self._anchor.year * 12 + self._anchor.month - 1 + index * self._step
            return not 12 <= month < _LAST_MONTH
        return not -_LAST_DAY <= self._anchor_day + index * self._step <= _LAST_DAY

    def _wall(self, index: int) -> int | None:
        """Returns the wall time of a period; None where the month lacks the day."""
        if not self._months:
            return (self._anchor_day + index * self._step) * DAY_SECONDS + self._at
        year, month0 = divmod(
            self._anchor.year * 12 + self._anchor.month - 1 + index * self._step, 12
        )
        day = self._anchor.day
        if day > _ALWAYS_THERE and day > (length := month_length(year, month0 + 1)):
            if not self._clamp:
                return None
            day = length
        return day_number(year, month0 + 1, day) * DAY_SECONDS + self._at


def explain_interval(spec: CalendarTiming, anchor: date) -> str:
    """Returns, for example, `at 09:00 every 2 weeks, counted from Monday 2026-01-05`."""
    each = f"every {spec.unit[:-1]}" if spec.count == 1 else f"every {spec.count:,} {spec.unit}"
    text = f"at {_time(spec.at)} {each}, counted from {anchor:%A} {anchor.isoformat()}"
    if spec.short_month is ShortMonth.LAST:
        text += ", on the last day of months without that day"
    elif spec.short_month is ShortMonth.SKIP:
        text += ", not in months without that day"
    return text


def _time(at: time) -> str:
    return at.strftime("%H:%M:%S" if at.second else "%H:%M")


def _check(spec: CalendarTiming, anchor: date) -> None:
    if not 1 <= spec.count <= MAX_COUNT:
        raise ScheduleError(str(spec.unit), spec.count, f"a number from 1 to {MAX_COUNT:,}")
    if spec.at.microsecond or spec.at.tzinfo is not None:
        raise ScheduleError("at", spec.at.isoformat(), "a wall time in whole seconds, as 09:00")
    if (
        spec.unit in (CalendarUnit.MONTHS, CalendarUnit.YEARS)
        and anchor.day > _ALWAYS_THERE
        and spec.short_month is None
    ):
        raise ScheduleError(
            "short_month",
            None,
            f"`last` or `skip`, because not every month has a day {anchor.day}: "
            "run on the last day of such a month, or not in it",
        )
