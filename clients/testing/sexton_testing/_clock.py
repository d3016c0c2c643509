"""The pretend clock: what happens next, and in which order at one instant."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count

from sexton_core.instants import Duration, Instant


class Turn(IntEnum):
    """Of several things at one instant, which comes first. DUE and START wait in an outage."""

    END = 0
    DEADLINE = 1
    DUE = 2
    START = 3


class Clock:
    """Time that passes by being told to."""

    def __init__(self, now: Instant) -> None:
        self.now = now
        self.away_until: Instant = now
        """Until then nothing is decided and nothing starts."""
        self._numbers = count()
        self._events: list[tuple[Instant, Turn, int, Callable[[], object]]] = []

    def at(self, when: Instant, turn: Turn, action: Callable[[], object]) -> None:
        """Has something happen; at once where the time has come."""
        heappush(self._events, (max(when, self.now), turn, next(self._numbers), action))

    def run(self, until: Instant) -> None:
        """Lets everything happen up to an instant, inclusive."""
        while self._events and self._events[0][0] <= until:
            when, turn, _, action = heappop(self._events)
            if turn >= Turn.DUE and when < self.away_until:
                self.at(self.away_until, turn, action)
                continue
            self.now = max(self.now, when)
            action()
        self.now = max(self.now, until)


def duration_of(delta: timedelta) -> Duration:
    """Gives a timedelta in nanoseconds."""
    return delta // timedelta(microseconds=1) * 1_000
