"""RFC 5545 recurrences, walked in local wall time and mapped by the schedule's own DST rule.

The days come from python-dateutil (`_rrule_walls`). What dateutil leaves to others is done here:
times that a zone skips or shows twice, searching in both directions, and a bound on every search.
A rule of hours, minutes or seconds follows real time, as the wildcard times of cron do.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from sexton_core.dst import Disturbance, WallTimes, disturbances
from sexton_core.errors import ScheduleError
from sexton_core.instants import MAX_INSTANT, MIN_INSTANT, SECOND, Duration, Instant
from sexton_core.schedule import Schedule
from sexton_core.schedules._rrule_explain import explain_rule
from sexton_core.schedules._rrule_text import (
    DAILY,
    Moment,
    Recurrence,
    Rule,
    moment_second,
    parse_recurrence,
)
from sexton_core.schedules._rrule_walls import rule_walls
from sexton_core.schedules.at import AtSchedule
from sexton_core.schedules.bounds import Bounded
from sexton_core.schedules.spec import RRuleTiming
from sexton_core.schedules.union import Union
from sexton_core.schedules.walls import ListedWalls, WallSchedule
from sexton_core.words import DstRule
from sexton_core.zones import Zone, get_zone

_UTC: Final = "UTC"


class RRuleSchedule:
    """A rule with its extra and its excluded dates, as a schedule."""

    __slots__ = ("_explained", "_fixed", "_inner", "_without", "walls", "zone")

    def __init__(
        self, spec: RRuleTiming, *, timezone: str | None, rule: DstRule, start: Instant | None
    ) -> None:
        """Reads the recurrence.

        Args:
            spec: its text.
            timezone: the schedule's zone; None: the one that the text names, or UTC.
            rule: the schedule's DST rule.
            start: where DTSTART is taken from when the text has none.

        Raises:
            ScheduleError: the text can't be read or bounded, has no DTSTART, or names another
                zone than the schedule.
        """
        recurrence = parse_recurrence(spec.text)
        self.zone: Final = _choose_zone(recurrence, timezone)
        exdates = sorted(moment_second(m) for m in recurrence.exdates if not m.utc)
        self._without: Final = frozenset(
            moment_second(m) * SECOND for m in recurrence.exdates if m.utc
        )
        fixed = [moment_second(m) for m in recurrence.rdates if not m.utc]
        listed = ListedWalls(wall for wall in fixed if wall not in exdates)
        # All wall times, and of them the fixed ones, which the DST rule is applied to.
        walls_of_all: list[WallTimes] = [listed]
        self._fixed: list[WallTimes] = [listed]
        parts: list[Schedule] = [WallSchedule(listed, self.zone, rule, "")] if fixed else []
        dtstart = None
        if recurrence.rule is not None:
            dtstart = self._dtstart(recurrence, start)
            walls = _RuleWalls(recurrence.rule, dtstart, exdates)
            parts.append(_rule_schedule(recurrence.rule, walls, self.zone, rule))
            walls_of_all.append(walls)
            if recurrence.rule.frequency <= DAILY:
                self._fixed.append(walls)
        self.walls: Final = tuple(walls_of_all)
        extra = [moment_second(m) * SECOND for m in recurrence.rdates if m.utc]
        if extra:
            parts.append(AtSchedule(extra))
        self._inner: Final = parts[0] if len(parts) == 1 else Union(parts)
        self._explained: Final = _explain(recurrence, dtstart)

    def next_after(self, t: Instant) -> Instant | None:
        """Returns the first nominal time later than `t`."""
        due = self._inner.next_after(t)
        while due in self._without and due is not None:
            due = self._inner.next_after(due)
        return due

    def previous_before(self, t: Instant) -> Instant | None:
        """Returns the last nominal time earlier than `t`."""
        due = self._inner.previous_before(t)
        while due in self._without and due is not None:
            due = self._inner.previous_before(due)
        return due

    def disturbances(self, t: Instant, horizon_ns: Duration) -> Iterator[Disturbance]:
        """Yields the changes of the clock in (t, t + horizon] that touch one of its fixed times."""
        first, last = t // SECOND + 1, (t + horizon_ns) // SECOND
        for walls in self._fixed:
            yield from disturbances(self.zone, walls, first, last)

    def explain(self) -> str:
        """Returns the recurrence in English, and its zone."""
        return f"{self._explained}, {self.zone.key}"

    def _dtstart(self, recurrence: Recurrence, start: Instant | None) -> datetime:
        if recurrence.dtstart is not None:
            return recurrence.dtstart.value
        if start is None:
            raise ScheduleError(
                "rrule", "no DTSTART", "a line DTSTART:20261129T090000, or `start` in the schedule"
            )
        return self.zone.local(start).replace(tzinfo=None)


class _RuleWalls:
    """The wall times of one rule from DTSTART to COUNT or a local UNTIL, less EXDATE."""

    __slots__ = ("_exdates", "_first", "_inner", "_last")

    def __init__(self, rule: Rule, dtstart: datetime, exdates: list[int]) -> None:
        self._inner: Final = rule_walls(rule, dtstart)
        self._exdates: Final = frozenset(exdates)
        self._first: Final = moment_second(Moment(dtstart, utc=False, is_date=False))
        self._last: Final = self._find_last(rule.count, rule.until)

    def at_or_after(self, wall: int) -> int | None:
        found = self._inner.at_or_after(max(wall, self._first))
        while found in self._exdates and found is not None:
            found = self._inner.at_or_after(found + 1)
        return None if found is None or (self._last is not None and found > self._last) else found

    def at_or_before(self, wall: int) -> int | None:
        found = self._inner.at_or_before(wall if self._last is None else min(wall, self._last))
        while found in self._exdates and found is not None:
            found = self._inner.at_or_before(found - 1)
        return None if found is None or found < self._first else found

    def _find_last(self, count: int | None, until: Moment | None) -> int | None:
        if until is not None and not until.utc:
            return moment_second(until) + (86_399 if until.is_date else 0)
        if count is None:
            return None
        last = self._first - 1
        for _ in range(count):
            found = self._inner.at_or_after(last + 1)
            if found is None:
                break
            last = found
        return last


def _rule_schedule(rule: Rule, walls: WallTimes, zone: Zone, dst: DstRule) -> Schedule:
    # Hours, minutes and seconds follow real time: each instant whose wall clock matches.
    effective = dst if rule.frequency <= DAILY else DstRule.LITERAL
    schedule = WallSchedule(walls, zone, effective, "")
    if rule.until is not None and rule.until.utc:
        end = min(max(moment_second(rule.until) * SECOND, MIN_INSTANT), MAX_INSTANT)
        return Bounded(schedule, start=None, end=end)
    return schedule


def _choose_zone(recurrence: Recurrence, timezone: str | None) -> Zone:
    named = recurrence.timezone
    if timezone is not None and named not in (None, timezone):
        shown = "a DTSTART with Z" if named == _UTC else f"TZID={named}"
        raise ScheduleError("rrule", shown, f"the schedule's timezone, {timezone}")
    return get_zone(timezone or named or _UTC)


def _explain(recurrence: Recurrence, dtstart: datetime | None) -> str:
    parts = []
    if recurrence.rule is not None and dtstart is not None:
        parts.append(explain_rule(recurrence.rule, dtstart))
    added, taken = len(recurrence.rdates), len(recurrence.exdates)
    if added:
        parts.append(f"on {added} {'given date' if added == 1 else 'given dates'}")
    text = " and ".join(parts)
    return f"{text}, except {taken} {'date' if taken == 1 else 'dates'}" if taken else text
