"""The near horizon of the due index, in memory: which jobs are to be looked at, and when.

Everything that is due up to `until` is here; what is due later may be. So start-up and failover
cost what is due soon, not how many jobs there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
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
    """Jobs by the time at which they are due. Pure: times are arguments.

    A heap of the times, each once, and of each the jobs: most jobs share theirs with others.
    """

    __slots__ = ("_armed", "_front", "_jobs", "_reach", "_times", "_turned", "until")

    def __init__(self) -> None:
        self._armed: dict[str, Instant] = {}
        self._times: list[Instant] = []
        self._jobs: dict[Instant, list[str]] = {}  # may name what is armed otherwise by now
        self._turned: set[Instant] = set()  # times whose jobs stand with the first to take last
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
            jobs = self._jobs.get(due)
            if jobs is None:
                self._jobs[due] = [uid]
                heappush(self._times, due)
            else:
                jobs.append(uid)
        return True

    def takes(self, due: Instant) -> bool:
        """Tells whether a job that is due then is to be armed: else the due index brings it."""
        return due <= self._reach

    def next_due(self) -> Instant | None:
        """Returns when the first job is due; None: nothing is armed."""
        times, armed = self._times, self._armed
        while times:
            due = times[0]
            jobs = self._jobs[due]
            while jobs:
                if armed.get(jobs[-1]) == due:
                    return due
                jobs.pop()
            self._drop_first()
        return None

    def take(self, now: Instant, limit: int) -> list[str]:
        """Takes out up to `limit` jobs that are due, earliest first."""
        return [uid for _, uid in islice(self.due(now), limit)]

    def due(self, until: Instant) -> Iterator[tuple[Instant, str]]:
        """Takes out the jobs that are due up to `until` one by one, earliest first, with when.

        Nothing is to be armed before the last of them is taken.
        """
        times, armed = self._times, self._armed
        while times and times[0] <= until:
            due = times[0]
            jobs = self._jobs[due]
            if due not in self._turned:
                self._turned.add(due)
                jobs.reverse()
            while jobs:
                uid = jobs.pop()
                if armed.get(uid) == due:
                    del armed[uid]
                    yield due, uid
            self._drop_first()

    def put_back(self, jobs: Sequence[tuple[Instant, str]]) -> None:
        """Arms jobs again as they were, which `due` has given in this order."""
        for due, uid in reversed(jobs):
            if due not in self._jobs:
                self._turned.add(due)
            self.arm(uid, due, anyway=True)

    def _drop_first(self) -> None:
        """Forgets the first time, at which no job is due any more."""
        due = heappop(self._times)
        del self._jobs[due]
        self._turned.discard(due)

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
