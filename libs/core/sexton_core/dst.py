"""How wall times become instants where a zone's clock jumps: the four DST rules, in one place.

Cron, calendar intervals, wall times of `at` and RRULE all describe *wall times*; what they share
is what happens to a wall time that the clock skips (a gap) or shows twice (a fold):

=========  ==========================================  =======================
rule       in a gap                                    in a fold
=========  ==========================================  =======================
vixie      once, at the end of the gap                 the first pass only
literal    none                                        both passes
skip       none                                        the first pass only
shift      moved later by the length of the gap        the first pass only
=========  ==========================================  =======================

Several wall times that become one instant are one nominal time. Changes of three hours or more
(`zones.DST_LIMIT`) are corrections of the civil calendar: every rule then does what `literal`
does. A wildcard time of cron (hourly and finer) follows real time, which again is `literal`.

Seconds and wall seconds are those of `sexton_core.zones`.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from sexton_core.instants import MAX_INSTANT, SECOND
from sexton_core.words import DstRule
from sexton_core.zones import Segment, Zone

MAX_SECOND: Final = MAX_INSTANT // SECOND

_LEAP: Final = 86_400
"""Seconds. More than any zone is away from UTC, so a search may jump to this much before or after
the next wall time that it knows of."""


class WallTimes(Protocol):
    """A set of wall seconds, asked in either direction. The answers must be exact and pure."""

    def at_or_after(self, wall: int) -> int | None:
        """Returns the first member not earlier than `wall`; None where there is none."""
        ...

    def at_or_before(self, wall: int) -> int | None:
        """Returns the last member not later than `wall`; None where there is none."""
        ...


def resolve(zone: Zone, wall: int, rule: DstRule) -> list[int]:
    """Returns the seconds at which one wall time happens: none, one or two, ascending."""
    seconds = zone.seconds_showing(wall)
    if len(seconds) == 2:
        repeated = zone.segment(seconds[1])
        if rule is not DstRule.LITERAL and seconds[1] < repeated.start + repeated.fold:
            return seconds[:1]
    if not seconds and rule in (DstRule.VIXIE, DstRule.SHIFT):
        gap = skipped_in(zone, wall)
        if gap is not None and gap.gap:
            return [gap.start if rule is DstRule.VIXIE else wall - gap.before]
    return seconds


def skipped_in(zone: Zone, wall: int) -> Segment | None:
    """Returns the stretch whose beginning skipped the wall time, None where the clock shows it.

    The stretch's own `gap` is 0 where the change is too large to be DST.
    """
    for found in zone.changes(wall - _LEAP, wall + _LEAP):
        if found.start + found.before <= wall < found.start + found.offset:
            return found
    return None


class Disturbance(NamedTuple):
    """A change of the clock that skips or repeats a member of a set of wall times.

    change: the stretch that begins with it. wall: the first such member, in wall seconds.
    skipped: whether the clock skips it; otherwise it shows it twice.
    """

    change: Segment
    wall: int
    skipped: bool

    @property
    def is_dst(self) -> bool:
        """Whether the change is small enough for the DST rules to apply."""
        return bool(self.change.gap or self.change.fold)


def disturbances(zone: Zone, walls: WallTimes, first: int, last: int) -> Iterator[Disturbance]:
    """Yields what the changes of the zone in [first, last] do to the wall times, in order."""
    for change in zone.changes(first, last):
        low, high = sorted((change.before, change.offset))
        wall = walls.at_or_after(change.start + low)
        if wall is not None and wall < change.start + high:
            yield Disturbance(change, wall, change.offset > change.before)


def first_at_or_after(zone: Zone, rule: DstRule, walls: WallTimes, second: int) -> int | None:
    """Returns the first second, not earlier than `second`, at which one of the wall times happens.

    Bounded: one question to `walls` per stretch of the zone that could hold the answer, and never
    a stretch before the next wall time. None beyond the year 2261.
    """
    once = rule is not DstRule.LITERAL
    while second <= MAX_SECOND:
        found = zone.segment(second)
        offset, end = found.offset, found.end
        begin = second
        best: int | None = None
        if once and second < found.start + found.gap + found.fold:
            if found.fold:
                begin = found.start + found.fold
            else:
                best = _made_up_at_or_after(found, rule, walls, second)
                if best == second:
                    return best
        wall = walls.at_or_after(begin + offset)
        if wall is not None and wall - offset < end and (best is None or wall - offset < best):
            best = wall - offset
        if best is not None:
            return best if best <= MAX_SECOND else None
        shown_again = end < MAX_SECOND and zone.offset(end) < offset
        if shown_again:
            second = end
        elif wall is None:
            return None
        else:
            second = max(end, wall - _LEAP)
    return None


def last_at_or_before(zone: Zone, rule: DstRule, walls: WallTimes, second: int) -> int | None:
    """Returns the last second, not later than `second`, at which one of the wall times happens.

    Bounded as `first_at_or_after`. None before the year 1970.
    """
    once = rule is not DstRule.LITERAL
    while second >= 0:
        found = zone.segment(second)
        offset, start = found.offset, found.start
        begin = start
        best: int | None = None
        if once and found.fold:
            begin = start + found.fold
        wall = walls.at_or_before(second + offset)
        if wall is not None and wall - offset >= begin:
            best = wall - offset
        if once and found.gap:
            made_up = _made_up_at_or_before(found, rule, walls, second)
            if made_up is not None and (best is None or made_up > best):
                best = made_up
        if best is not None:
            return best if best >= 0 else None
        shown_before = found.before > offset
        if shown_before:
            second = start - 1
        elif wall is None:
            return None
        else:
            second = min(start - 1, wall + _LEAP)
    return None


def _made_up_at_or_after(
    found: Segment, rule: DstRule, walls: WallTimes, second: int
) -> int | None:
    """Returns the first second at which a wall time of the stretch's gap is made up."""
    skipped_end = found.start + found.offset
    if rule is DstRule.VIXIE:
        if second > found.start:
            return None
        wall = walls.at_or_after(found.start + found.before)
        return found.start if wall is not None and wall < skipped_end else None
    if rule is DstRule.SHIFT:
        # Seconds since the change, on the clock of before: a time moved later by the gap's length.
        wall = walls.at_or_after(second + found.before)
        if wall is not None and wall < skipped_end:
            return wall - found.before
    return None


def _made_up_at_or_before(
    found: Segment, rule: DstRule, walls: WallTimes, second: int
) -> int | None:
    skipped_start = found.start + found.before
    skipped_end = found.start + found.offset
    if rule is DstRule.VIXIE:
        wall = walls.at_or_before(skipped_end - 1)
        return found.start if wall is not None and wall >= skipped_start else None
    if rule is DstRule.SHIFT:
        wall = walls.at_or_before(min(second + found.before, skipped_end - 1))
        if wall is not None and wall >= skipped_start:
            return wall - found.before
    return None
