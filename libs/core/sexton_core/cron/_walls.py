"""The wall times of a cron expression, as bit sets that are walked in either direction.

What a day field says about a month depends on nothing but the month's length and the weekday of
its first day, so 28 masks of days hold the whole calendar; what it says about a year, on the 14
kinds of year. One integer of 1,440 bits holds the minutes of a day.
"""

from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple

from sexton_core._civil import DAY_SECONDS, day_number, is_leap, month_length, weekday
from sexton_core.cron._fields import FIRST_YEAR, LAST_YEAR, Form, MovingDay
from sexton_core.cron._parse import CronSpec
from sexton_core.words import DayRule

_EPOCH_ORDINAL: Final = 719_163
_FIRST_DAY: Final = -1
"""The local day before 1970-01-01: the zones west of UTC are in it when time begins."""
_LAST_DAY: Final = day_number(LAST_YEAR, 12, 31)
_FIRST_WALL: Final = _FIRST_DAY * DAY_SECONDS
_LAST_WALL: Final = (_LAST_DAY + 1) * DAY_SECONDS - 1

_DAYS_BEFORE: Final = (
    (0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334),
    (0, 0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335),
)
_FROM_DATE = date.fromordinal
_MAX_LEAP_GAP: Final = 40
"""Years. February 29 on a given weekday comes back within this many, across 2100 too."""


_DayField = tuple[int, frozenset[MovingDay]]


class _Masks(NamedTuple):
    """All that the wall times depend on; `years` is None where every year matches."""

    seconds: int
    minutes: int
    hours: int
    months: int
    years: int | None
    day: _DayField
    weekday: _DayField
    joined_by: DayRule


class CronWalls:
    """Implements `dst.WallTimes`. Get it from `walls_of`, which shares equal ones."""

    __slots__ = (
        "_days",
        "_first_time",
        "_last_time",
        "_minutes",
        "_months",
        "_seconds",
        "_year_kinds",
        "_years",
    )

    def __init__(self, masks: _Masks) -> None:
        self._seconds = masks.seconds
        self._minutes = sum(
            masks.minutes << 60 * hour for hour in range(24) if masks.hours >> hour & 1
        )
        self._months = masks.months
        self._days = _masks_of_days(masks.day, masks.weekday, masks.joined_by)
        self._first_time = _lowest(self._minutes) * 60 + _lowest(self._seconds)
        self._last_time = _highest(self._minutes) * 60 + _highest(self._seconds)
        self._year_kinds = sum(
            1 << kind for kind in range(14) if self._has_day(kind // 7, kind % 7)
        )
        self._years = None if masks.years is None else self._fruitful(masks.years)

    @property
    def empty(self) -> bool:
        """Whether no day of the calendar matches: `* * 31 2 *`."""
        return self._year_kinds == 0 or self._years == 0

    def at_or_after(self, wall: int) -> int | None:
        """Returns the first matching wall second not earlier than `wall`, up to the year 2261."""
        if wall > _LAST_WALL:
            return None
        day, second = divmod(max(wall, _FIRST_WALL), DAY_SECONDS)
        found = self._day_at_or_after(day)
        if found is None:
            return None
        if found == day:
            minute, second = divmod(second, 60)
            minutes = self._minutes >> minute
            if minutes & 1:
                rest = self._seconds >> second
                if rest:
                    second += (rest & -rest).bit_length() - 1
                    return day * DAY_SECONDS + minute * 60 + second
            minutes >>= 1
            if minutes:
                minute += (minutes & -minutes).bit_length()
                return day * DAY_SECONDS + minute * 60 + self._first_time % 60
            found = self._day_at_or_after(day + 1)
            if found is None:
                return None
        return found * DAY_SECONDS + self._first_time

    def at_or_before(self, wall: int) -> int | None:
        """Returns the last matching wall second not later than `wall`, from the end of 1969 on."""
        if wall < _FIRST_WALL:
            return None
        day, second = divmod(min(wall, _LAST_WALL), DAY_SECONDS)
        found = self._day_at_or_before(day)
        if found is None:
            return None
        if found == day:
            minute, second = divmod(second, 60)
            if self._minutes >> minute & 1:
                rest = self._seconds & ((2 << second) - 1)
                if rest:
                    return day * DAY_SECONDS + minute * 60 + rest.bit_length() - 1
            minutes = self._minutes & ((1 << minute) - 1)
            if minutes:
                minute = minutes.bit_length() - 1
                return day * DAY_SECONDS + minute * 60 + self._last_time % 60
            found = self._day_at_or_before(day - 1)
            if found is None:
                return None
        return found * DAY_SECONDS + self._last_time

    def _day_at_or_after(self, day: int) -> int | None:
        if day > _LAST_DAY:
            return None
        at = _FROM_DATE(day + _EPOCH_ORDINAL)
        year, month, of_month = at.year, at.month, at.day
        if self._has_year(year):
            leap = is_leap(year)
            january = day - of_month + 1 - _DAYS_BEFORE[leap][month]
            found = self._in_year(january, leap, month, of_month)
            if found is not None:
                return found
        following = self._year_after(year)
        if following is None:
            return None
        return self._in_year(day_number(following, 1, 1), is_leap(following), 1, 0)

    def _day_at_or_before(self, day: int) -> int | None:
        if day < _FIRST_DAY:
            return None
        at = _FROM_DATE(day + _EPOCH_ORDINAL)
        year, month, of_month = at.year, at.month, at.day
        if self._has_year(year):
            leap = is_leap(year)
            january = day - of_month + 1 - _DAYS_BEFORE[leap][month]
            found = self._in_year_backwards(january, leap, month, of_month)
            if found is not None:
                return found if found >= _FIRST_DAY else None
        preceding = self._year_before(year)
        if preceding is None:
            return None
        found = self._in_year_backwards(day_number(preceding, 1, 1), is_leap(preceding), 12, 31)
        return found if found is not None and found >= _FIRST_DAY else None

    def _in_year(self, january: int, leap: int, month: int, day: int) -> int | None:
        """Returns the first matching day from the given one on; `january` is day 1 of the year."""
        before = _DAYS_BEFORE[leap]
        months = self._months >> month
        while months:
            if months & 1:
                first = january + before[month]
                rest = self._days[_kind_of_month(first, leap, month)] >> day
                if rest:
                    return first - 1 + day + _lowest(rest)
            months >>= 1
            month += 1
            day = 0
        return None

    def _in_year_backwards(self, january: int, leap: int, month: int, day: int) -> int | None:
        before = _DAYS_BEFORE[leap]
        while month:
            if self._months >> month & 1:
                first = january + before[month]
                rest = self._days[_kind_of_month(first, leap, month)] & ((2 << day) - 1)
                if rest:
                    return first - 1 + _highest(rest)
            month -= 1
            day = 31
        return None

    def _has_day(self, leap: int, january_weekday: int) -> bool:
        january = day_number(1970, 1, 4) + january_weekday  # 1970-01-04 was a Sunday
        return self._in_year(january, leap, 1, 0) is not None

    def _fruitful(self, years: int) -> int:
        """Returns the years that have a matching day at all, so that no search passes a dud."""
        return sum(
            1 << index
            for index in range(years.bit_length())
            if years >> index & 1 and self._year_kinds >> _kind_of_year(FIRST_YEAR + index) & 1
        )

    def _has_year(self, year: int) -> bool:
        if self._years is None:
            return True
        return year >= FIRST_YEAR and bool(self._years >> (year - FIRST_YEAR) & 1)

    def _year_after(self, year: int) -> int | None:
        if self._years is not None:
            index = max(year + 1 - FIRST_YEAR, 0)
            rest = self._years >> index
            return FIRST_YEAR + index + _lowest(rest) if rest else None
        for later in range(year + 1, min(year + _MAX_LEAP_GAP, LAST_YEAR) + 1):
            if self._year_kinds >> _kind_of_year(later) & 1:
                return later
        return None

    def _year_before(self, year: int) -> int | None:
        if self._years is not None:
            rest = self._years & ((1 << max(year - FIRST_YEAR, 0)) - 1)
            return FIRST_YEAR + _highest(rest) if rest else None
        for earlier in range(year - 1, max(year - _MAX_LEAP_GAP, FIRST_YEAR - 1) - 1, -1):
            if self._year_kinds >> _kind_of_year(earlier) & 1:
                return earlier
        return None


def walls_of(spec: CronSpec) -> CronWalls:
    """Returns the wall times of an expression; equal ones are one object."""
    return _walls(
        _Masks(
            seconds=spec.second.mask,
            minutes=spec.minute.mask,
            hours=spec.hour.mask,
            months=spec.month.mask,
            years=None if spec.year is None or spec.year.any_value else spec.year.mask,
            day=(spec.day.mask, spec.day.moving),
            weekday=(spec.weekday.mask, spec.weekday.moving),
            joined_by=spec.days_joined_by,
        )
    )


# About 1 KiB each. With `H` a million jobs make a few thousand different ones.
@lru_cache(maxsize=65_536)
def _walls(masks: _Masks) -> CronWalls:
    return CronWalls(masks)


@lru_cache(maxsize=4_096)
def _masks_of_days(day: _DayField, week: _DayField, joined_by: DayRule) -> tuple[int, ...]:
    """Returns the days that match in each of the 28 kinds of month, as `_kind_of_month`."""
    masks = []
    for length in range(28, 32):
        for first in range(7):
            by_day = _days_of_month(*day, length, first)
            by_weekday = _days_of_week(*week, length, first)
            masks.append(by_day | by_weekday if joined_by is DayRule.OR else by_day & by_weekday)
    return tuple(masks)


def _days_of_month(mask: int, moving: frozenset[MovingDay], length: int, first: int) -> int:
    """Returns the days of a month of that length whose first day is that weekday."""
    days = mask & ((2 << length) - 1)
    for form, number, _ in moving:
        if form is Form.LAST:
            day = length - number
        elif form is Form.LAST_WORKDAY:
            day = _nearest_workday(length, length, first)
        elif number <= length:
            day = _nearest_workday(number, length, first)
        else:
            continue
        if day >= 1:
            days |= 1 << day
    return days


def _nearest_workday(day: int, length: int, first: int) -> int:
    at = (first + day - 1) % 7
    if at == 6:
        return day - 1 if day > 1 else 3
    if at == 0:
        return day + 1 if day < length else day - 2
    return day


def _days_of_week(mask: int, moving: frozenset[MovingDay], length: int, first: int) -> int:
    days = sum(1 << day for day in range(1, length + 1) if mask >> (first + day - 1) % 7 & 1)
    for form, number, nth in moving:
        earliest = 1 + (number - first) % 7
        if form is Form.LAST_OF_WEEKDAY:
            day = earliest + (length - earliest) // 7 * 7
        else:
            day = earliest + (nth - 1) * 7
        if day <= length:
            days |= 1 << day
    return days


def _kind_of_month(first: int, leap: int, month: int) -> int:
    length = _LENGTHS[leap][month]
    return (length - 28) * 7 + (first + 4) % 7


_LENGTHS: Final = tuple(
    (0, *(month_length(year, month) for month in range(1, 13))) for year in (1970, 1972)
)


def _kind_of_year(year: int) -> int:
    return weekday(day_number(year, 1, 1)) + (7 if is_leap(year) else 0)


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _highest(mask: int) -> int:
    return mask.bit_length() - 1
