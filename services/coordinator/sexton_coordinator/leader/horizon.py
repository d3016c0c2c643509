"""The near horizon of the due index, in memory: which jobs are to be looked at, and when.

Everything that is due up to `until` is here; what is due later may be. So start-up and failover
cost what is due soon, not how many jobs there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from sexton_core.instants import SECOND, Duration, Instant

HORIZON_NS: Final[Duration] = 60 * SECOND
"""How far ahead timers are loaded."""
MOST_TIMERS: Final = 10_000
"""Timers that one loading takes; where there are more, it reaches less far."""
_REFILL_NS: Final[Duration] = 30 * SECOND
"""It is loaded again when it reaches less far than this ..."""
_REFILL_TIMERS: Final = MOST_TIMERS // 2
"""... and holds fewer than this many."""


class Horizon:
    """A heap of jobs by the time at which they are due. Pure: times are arguments."""

    __slots__ = ("_armed", "_front", "_heap", "_reach", "until")

    def __init__(self) -> None:
        self._armed: dict[str, Instant] = {}
        self._heap: list[tuple[Instant, str]] = []  # may hold what is armed otherwise by now
        self._reach: Instant = 0  # what is due up to here is taken
        self._front: Instant = 0  # of the timers due at this very time, some may be missing
        self.until: Instant = 0
        """Every timer that is due up to here is in the heap."""

    def __len__(self) -> int:
        return len(self._armed)

    def __contains__(self, uid: str) -> bool:
        return uid in self._armed

    def arm(self, uid: str, due: Instant | None, *, anyway: bool = False) -> bool:
        """Has a job looked at when it is due, instead of any time before; None: not at all.

        What is due beyond the horizon is not taken, but `anyway`: the due index brings it in time.
        """
        if due is None or not (anyway or self.takes(due)):
            self._armed.pop(uid, None)
            return False
        if self._armed.get(uid) != due:
            self._armed[uid] = due
            heappush(self._heap, (due, uid))
        return True

    def takes(self, due: Instant) -> bool:
        """Tells whether a job that is due then is to be armed: else the due index brings it."""
        return due <= self._reach

    def next_due(self) -> Instant | None:
        """Returns when the first job is due; None: nothing is armed."""
        heap, armed = self._heap, self._armed
        while heap:
            due, uid = heap[0]
            if armed.get(uid) == due:
                return due
            heappop(heap)
        return None

    def within(self, until: Instant) -> Iterator[tuple[Instant, str]]:
        """Yields the jobs that are due up to `until`, roughly earliest first."""
        heap, armed = self._heap, self._armed
        places = [0]  # of the heap, from its top; nothing is due before what stands above it
        for place in places:
            if place >= len(heap) or heap[place][0] > until:
                continue
            due, uid = heap[place]
            if armed.get(uid) == due:
                yield due, uid
            places += (2 * place + 1, 2 * place + 2)

    def take(self, now: Instant, limit: int) -> list[str]:
        """Takes out up to `limit` jobs that are due, earliest first."""
        taken: list[str] = []
        while len(taken) < limit:
            due = self.next_due()
            if due is None or due > now:
                break
            _, uid = heappop(self._heap)
            del self._armed[uid]
            taken.append(uid)
        return taken

    def begin_loading(self, reach: Instant) -> None:
        """Takes everything up to `reach` from now on: timers may be written during the loading."""
        self._reach = max(self._reach, reach)

    def end_loading(self, reach: Instant, last: Instant | None) -> None:
        """Notes how far the loading has come: `last` is the last timer's if there are more."""
        if last is None:
            self.until = self._front = reach
        else:
            self.until, self._front = last - 1, last
        self._reach = self._front

    def is_short(self, now: Instant) -> bool:
        """Tells whether it is to be loaded again."""
        if self.until >= now + _REFILL_NS:
            return False
        if len(self._armed) < _REFILL_TIMERS and self._front == self.until:
            return True
        due = self.next_due()
        return due is None or due > self._front
