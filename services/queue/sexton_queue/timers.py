"""One heap of timers for all runs in memory: mesh time, the earliest first.

A run's timer is never taken out: when it comes up, what is due is computed from the run as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from sexton_core.instants import MAX_INSTANT, Instant
from sexton_core.runs import Run
from sexton_core.words import RunState


class Timers:
    """Wakes runs by key."""

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, bytes]] = []

    def set(self, key: bytes, run: Run) -> None:
        """Sets the run's next own timer, if it has one."""
        policy = run.policy
        if policy.deadline_ns is None and policy.start_within_ns is None:
            return
        at = next_timer(run)
        if at is not None:
            heappush(self._heap, (at, key))

    def due(self, now: Instant) -> Iterator[bytes]:
        """Gives the keys whose timer has come."""
        while self._heap and self._heap[0][0] <= now:
            yield heappop(self._heap)[1]

    def next_due(self) -> Instant:
        """Tells when `due` has something to give."""
        return self._heap[0][0] if self._heap else MAX_INSTANT


def next_timer(run: Run) -> Instant | None:
    """Returns when `start_within` or the deadline passes; None: neither moves this run."""
    if run.ended or run.state is RunState.TERMINATING:
        return None
    times = [run.deadline_at]
    if run.state is RunState.WAITING:
        times.append(run.expires_at)
    return min((at for at in times if at is not None), default=None)
