"""A schedule of wall times: a set of them, a zone, and the rule for what its clock skips."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from sexton_core.dst import (
    Disturbance,
    WallTimes,
    disturbances,
    first_at_or_after,
    last_at_or_before,
)
from sexton_core.instants import SECOND, Duration, Instant
from sexton_core.words import DstRule
from sexton_core.zones import Zone


class WallSchedule:
    """Fires whenever the zone's clock shows one of the wall times, as the DST rule reads them."""

    __slots__ = ("_explained", "rule", "walls", "zone")

    def __init__(self, walls: WallTimes, zone: Zone, rule: DstRule, explained: str) -> None:
        """Keeps the parts; `explained` is the text of the wall times without their zone."""
        self.walls: Final = walls
        self.zone: Final = zone
        self.rule: Final = rule
        self._explained: Final = explained

    def next_after(self, t: Instant) -> Instant | None:
        """Returns the first nominal time later than `t`."""
        second = first_at_or_after(self.zone, self.rule, self.walls, max(t // SECOND + 1, 0))
        return None if second is None else second * SECOND

    def previous_before(self, t: Instant) -> Instant | None:
        """Returns the last nominal time earlier than `t`."""
        second = last_at_or_before(self.zone, self.rule, self.walls, -(-t // SECOND) - 1)
        return None if second is None else second * SECOND

    def disturbances(self, t: Instant, horizon_ns: Duration) -> Iterator[Disturbance]:
        """Yields the changes of the clock in (t, t + horizon] that touch one of the wall times."""
        first, last = t // SECOND + 1, (t + horizon_ns) // SECOND
        yield from disturbances(self.zone, self.walls, first, last)

    def explain(self) -> str:
        """Returns the wall times and the zone."""
        return f"{self._explained}, {self.zone.key}"


class ListedWalls:
    """A list of wall times as a set that is asked in either direction."""

    __slots__ = ("_walls",)

    def __init__(self, walls: Iterable[int]) -> None:
        """Sorts the wall seconds."""
        self._walls: Final = sorted(set(walls))

    def at_or_after(self, wall: int) -> int | None:
        """Returns the first member not earlier than `wall`."""
        index = bisect_left(self._walls, wall)
        return self._walls[index] if index < len(self._walls) else None

    def at_or_before(self, wall: int) -> int | None:
        """Returns the last member not later than `wall`."""
        index = bisect_right(self._walls, wall)
        return self._walls[index - 1] if index else None
