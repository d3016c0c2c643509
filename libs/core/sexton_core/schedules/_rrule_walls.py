"""The wall times of an RRULE, in both directions and in bounded steps.

dateutil knows the calendar of RFC 5545, but it only walks forwards, from DTSTART, and without a
bound. So it is asked about a stretch at a time: from the aligned period before the one in
question, moved by whole cycles of 400 years (in which dates, weekdays and week numbers repeat) to
the end of dateutil's calendar. There a search that finds nothing ends after 400 to 800 years,
and a rule without an occurrence in that time has none.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import datetime
from math import gcd
from typing import Final

from dateutil import rrule as dateutil_rrule

from sexton_core._civil import DAY_SECONDS
from sexton_core.errors import ScheduleError
from sexton_core.schedules._rrule_text import DAILY, FREQUENCIES, Rule

_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
_EPOCH_ORDINAL: Final = 719_163
_WALK_FROM_YEAR: Final = 9_200
"""Walks begin in [9200, 9599], so that dateutil's last year bounds them."""

_BLOCKS: Final = 64
"""Years remembered."""

_MAX_SET_TIMES: Final = 100
"""Times of a day that BYSETPOS may choose among."""

_MAX_STEPS: Final = 50_000
"""Of one search among hours, minutes or seconds; one that needs more has no answer."""

_HORIZON: Final = _CYCLE_DAYS * DAY_SECONDS
"""Seconds in which the calendar repeats: what is not found within it is not there."""

_YEARLY, _MONTHLY, _WEEKLY = range(3)
_UNITS: Final = {4: 3600, 5: 60, 6: 1}
"""Seconds of HOURLY, MINUTELY and SECONDLY."""

_MIDNIGHT: Final[dict[str, tuple[int, ...]]] = {
    "byhour": (0,),
    "byminute": (0,),
    "bysecond": (0,),
}

_DATE_PARTS: Final = {
    "BYMONTH": "bymonth",
    "BYMONTHDAY": "bymonthday",
    "BYYEARDAY": "byyearday",
    "BYWEEKNO": "byweekno",
    "BYSETPOS": "bysetpos",
}


class CalendarWalk:
    """The occurrences of a rule of days, weeks, months or years, by dateutil, a year at a time."""

    def __init__(self, rule: Rule, dtstart: datetime, times: dict[str, tuple[int, ...]]) -> None:
        """Spells out what the rule takes from DTSTART, because the walk starts elsewhere."""
        self._rule: Final = rule
        self._dtstart: Final = dtstart
        self._blocks: dict[int, tuple[list[int], int | None]] = {}
        parts: dict[str, object] = {
            name: rule.by[key] for key, name in _DATE_PARTS.items() if key in rule.by
        }
        days = rule.days
        if rule.frequency == _WEEKLY and not days:
            days = ((dtstart.weekday(), 0),)
        if rule.frequency in (_YEARLY, _MONTHLY) and not days:
            if "BYWEEKNO" in rule.by and not rule.by.keys() & {"BYMONTHDAY", "BYYEARDAY"}:
                days = ((dtstart.weekday(), 0),)
            elif not rule.by.keys() & {"BYWEEKNO", "BYYEARDAY"}:
                parts.setdefault("bymonthday", (dtstart.day,))
                if rule.frequency == _YEARLY and "BYMONTHDAY" not in rule.by:
                    parts.setdefault("bymonth", (dtstart.month,))
        if days:
            parts["byweekday"] = [
                dateutil_rrule.weekday(day, number or None) for day, number in days
            ]
        self._parts: Final = parts | times

    def at_or_after(self, wall: int) -> int | None:
        """Returns the first occurrence not earlier than `wall`."""
        found, following = self._block(_year(wall))
        index = bisect_left(found, wall)
        return found[index] if index < len(found) else following

    def at_or_before(self, wall: int) -> int | None:
        """Returns the last occurrence not later than `wall`."""
        year = _year(wall)
        found, _ = self._block(year)
        index = bisect_right(found, wall)
        if index:
            return found[index - 1]
        back = 1
        while year - back // 2 >= self._dtstart.year:
            last = None
            for occurrence in self._walk(year - back):
                if occurrence > wall:
                    break
                last = occurrence
            if last is not None:
                return last
            back *= 2
        return None

    def _block(self, year: int) -> tuple[list[int], int | None]:
        """Returns the year's occurrences, and the first one after it."""
        block = self._blocks.get(year)
        if block is None:
            end = _day_number(year + 1) * DAY_SECONDS
            found: list[int] = []
            following = None
            for occurrence in self._walk(year):
                if occurrence >= end:
                    following = occurrence
                    break
                found.append(occurrence)
            if len(self._blocks) >= _BLOCKS:
                self._blocks.clear()
            block = self._blocks[year] = (found, following)
        return block

    def _walk(self, year: int) -> Iterator[int]:
        """Yields the occurrences from the beginning of the year on."""
        begin = _day_number(max(year, self._dtstart.year))
        # The period that holds 1 January may have begun before it.
        day = self._aligned(begin)
        cycles = (_WALK_FROM_YEAR - _year(day * DAY_SECONDS)) // _CYCLE_YEARS + 1
        moved = cycles * _CYCLE_DAYS
        walk = dateutil_rrule.rrule(
            self._rule.frequency,  # type: ignore[arg-type]
            dtstart=datetime.fromordinal(day + moved + _EPOCH_ORDINAL),
            interval=self._rule.interval,
            wkst=self._rule.week_start,
            **self._parts,  # type: ignore[arg-type]
        )
        least = begin * DAY_SECONDS
        for moment in walk:
            days = moment.toordinal() - _EPOCH_ORDINAL - moved
            wall = days * DAY_SECONDS + moment.hour * 3600 + moment.minute * 60 + moment.second
            if wall >= least:
                yield wall

    def _aligned(self, day: int) -> int:
        """Returns the first day of the last period of the rule that begins by `day`."""
        start = self._dtstart.toordinal() - _EPOCH_ORDINAL
        interval = self._rule.interval
        if self._rule.frequency == DAILY:
            return start + (day - start) // interval * interval
        if self._rule.frequency == _WEEKLY:
            start -= (self._dtstart.weekday() - self._rule.week_start) % 7
            return start + (day - start) // (7 * interval) * 7 * interval
        year = _year(day * DAY_SECONDS)
        if self._rule.frequency == _YEARLY:
            passed = (year - self._dtstart.year) // interval * interval
            return _day_number(self._dtstart.year + passed)
        first = self._dtstart.year * 12 + self._dtstart.month - 1
        months = first + (year * 12 - first) // interval * interval
        return _day_number(months // 12, months % 12 + 1)


class DailyWalls:
    """A rule of days or longer: the dates by `CalendarWalk`, the times of the day by bisection."""

    def __init__(self, rule: Rule, dtstart: datetime) -> None:
        """Builds the set.

        Raises:
            ScheduleError: BYSETPOS would choose among more than 100 times a day.
        """
        hours = rule.by.get("BYHOUR", (dtstart.hour,))
        minutes = rule.by.get("BYMINUTE", (dtstart.minute,))
        seconds = rule.by.get("BYSECOND", (dtstart.second,))
        times = len(hours) * len(minutes) * len(seconds)
        whole = {"byhour": hours, "byminute": minutes, "bysecond": seconds}
        in_sets = "BYSETPOS" in rule.by and times > 1
        if in_sets and times > _MAX_SET_TIMES:
            raise ScheduleError(
                "rrule", f"BYSETPOS among {times:,} times a day", f"at most {_MAX_SET_TIMES} times"
            )
        self._times: Final = (
            [0]
            if in_sets
            else sorted(h * 3600 + m * 60 + s for h in hours for m in minutes for s in seconds)
        )
        self._in_sets: Final = in_sets
        self._walk: Final = CalendarWalk(rule, dtstart, whole if in_sets else _MIDNIGHT)

    def at_or_after(self, wall: int) -> int | None:
        """Returns the first member not earlier than `wall`."""
        if self._in_sets:
            return self._walk.at_or_after(wall)
        midnight = wall - wall % DAY_SECONDS
        day = self._walk.at_or_after(midnight)
        if day == midnight:
            index = bisect_left(self._times, wall - midnight)
            if index < len(self._times):
                return midnight + self._times[index]
            day = self._walk.at_or_after(midnight + 1)
        return None if day is None else day + self._times[0]

    def at_or_before(self, wall: int) -> int | None:
        """Returns the last member not later than `wall`."""
        day = self._walk.at_or_before(wall)
        if day is None or self._in_sets:
            return day
        index = bisect_right(self._times, wall - day)
        if index:
            return day + self._times[index - 1]
        day = self._walk.at_or_before(day - 1)
        return None if day is None else day + self._times[-1]


class FineWalls:
    """A rule of hours, minutes or seconds: slots of a fixed length, less those that don't fit."""

    def __init__(self, rule: Rule, dtstart: datetime) -> None:
        """Finds the slots and what filters them."""
        unit = _UNITS[rule.frequency]
        begin = _wall(dtstart)
        self._base: Final = begin - begin % unit
        self._step: Final = rule.interval * unit
        minutes = rule.by.get("BYMINUTE", (dtstart.minute,)) if unit == 3600 else (0,)
        seconds = rule.by.get("BYSECOND", (dtstart.second,)) if unit > 1 else (0,)
        self._members: Final = sorted(m * 60 + s for m in minutes for s in seconds)
        hours = rule.by.get("BYHOUR", range(24))
        in_hour = rule.by.get("BYMINUTE", range(60)) if unit < 3600 else range(60)
        # The beginnings of the minutes of a day that fit, in seconds.
        self._fitting: Final = [h * 3600 + m * 60 for h in hours for m in in_hour]
        self._seconds: Final = frozenset(
            rule.by.get("BYSECOND", range(60)) if unit == 1 else range(60)
        )
        self._dates: CalendarWalk | None = None
        if rule.days or any(key in rule.by for key in _DATE_PARTS):
            by_date = Rule(frequency=DAILY, week_start=rule.week_start, by=rule.by, days=rule.days)
            self._dates = CalendarWalk(by_date, dtstart, _MIDNIGHT)
        # Of the times of a day that the slots reach at all, does any fit?
        fitting = frozenset(self._fitting)
        stride = gcd(self._step, DAY_SECONDS)
        self._possible: Final = any(
            time - time % 60 in fitting and time % 60 in self._seconds
            for time in range(self._base % stride, DAY_SECONDS, stride)
        )

    def at_or_after(self, wall: int) -> int | None:
        """Returns the first member not earlier than `wall`."""
        if not self._possible:
            return None
        index = (wall - self._base) // self._step
        for _ in range(_MAX_STEPS):
            slot = self._base + index * self._step
            if slot > wall + _HORIZON + self._step:
                return None
            fits_from = self._fits_from(slot)
            if fits_from is None:
                return None
            if fits_from == slot:
                member = bisect_left(self._members, wall - slot)
                if member < len(self._members):
                    return slot + self._members[member]
                index += 1
            else:
                index = max(index + 1, -((self._base - fits_from) // self._step))
        return None

    def at_or_before(self, wall: int) -> int | None:
        """Returns the last member not later than `wall`."""
        if not self._possible:
            return None
        index = (wall - self._base) // self._step
        for _ in range(_MAX_STEPS):
            slot = self._base + index * self._step
            if index < 0 or slot < wall - _HORIZON - self._step:
                return None
            fits_until = self._fits_until(slot)
            if fits_until is None:
                return None
            if fits_until == slot:
                member = bisect_right(self._members, wall - slot)
                if member:
                    return slot + self._members[member - 1]
                index -= 1
            else:
                index = min(index - 1, (fits_until - self._base) // self._step)
        return None

    def _fits_from(self, slot: int) -> int | None:
        """Returns the slot if it fits, else a later wall second before which none does."""
        time = slot % DAY_SECONDS
        midnight = slot - time
        if self._dates is not None:
            day = self._dates.at_or_after(midnight)
            if day != midnight:
                return day
        index = bisect_right(self._fitting, time) - 1
        if index >= 0 and time < self._fitting[index] + 60:
            return slot if time % 60 in self._seconds else slot + 1
        if index + 1 < len(self._fitting):
            return midnight + self._fitting[index + 1]
        return midnight + DAY_SECONDS

    def _fits_until(self, slot: int) -> int | None:
        """Returns the slot if it fits, else an earlier wall second after which none does."""
        time = slot % DAY_SECONDS
        midnight = slot - time
        if self._dates is not None:
            day = self._dates.at_or_before(midnight)
            if day != midnight:
                return None if day is None else day + DAY_SECONDS - 1
        index = bisect_right(self._fitting, time) - 1
        if index < 0:
            return midnight - 1
        if time < self._fitting[index] + 60:
            return slot if time % 60 in self._seconds else slot - 1
        return midnight + self._fitting[index] + 59


def rule_walls(rule: Rule, dtstart: datetime) -> DailyWalls | FineWalls:
    """Returns the wall times of a rule, not yet cut off at DTSTART, UNTIL and COUNT."""
    assert 0 <= rule.frequency < len(FREQUENCIES)
    return DailyWalls(rule, dtstart) if rule.frequency <= DAILY else FineWalls(rule, dtstart)


def _wall(moment: datetime) -> int:
    return (moment.toordinal() - _EPOCH_ORDINAL) * DAY_SECONDS + (
        moment.hour * 3600 + moment.minute * 60 + moment.second
    )


def _day_number(year: int, month: int = 1) -> int:
    """Returns the first day of a month as days since the epoch, also beyond the year 9999."""
    cycles, year = divmod(year - 1, _CYCLE_YEARS)
    return cycles * _CYCLE_DAYS + datetime(year + 1, month, 1).toordinal() - _EPOCH_ORDINAL  # noqa: DTZ001


def _year(wall: int) -> int:
    """Returns the year of a wall second, also outside the years of datetime."""
    cycles, day = divmod(wall // DAY_SECONDS + _EPOCH_ORDINAL - 1, _CYCLE_DAYS)
    return cycles * _CYCLE_YEARS + datetime.fromordinal(day + 1).year
