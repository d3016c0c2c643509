"""Remembers what a schedule answered, for the many jobs that share it."""

from bisect import bisect_left, bisect_right
from typing import Final

from sexton_core.instants import MAX_INSTANT, Instant
from sexton_core.schedule import Schedule

WINDOW: Final = 256
"""Consecutive nominal times remembered; 2 KiB, and 8 KiB with their integers."""

_NEVER: Final = MAX_INSTANT + 1
"""Stands behind the last nominal time: `next_after` has no answer there."""


class Memo:
    """Another schedule, with a window of consecutive nominal times remembered.

    Any question that falls into the window is one bisection, whatever the instant asked for:
    jobs need not stand at the same cursor to share an answer. Answers are those of the other
    schedule, always. Not for several threads at once: the window moves.
    """

    __slots__ = ("_begin", "_inner", "_times")

    def __init__(self, inner: Schedule) -> None:
        """Starts with an empty window."""
        self._inner: Final = inner
        # No nominal time lies in (begin, times[0]); the times follow each other without a gap.
        self._begin: Instant = 0
        self._times: list[Instant] = []

    @property
    def inner(self) -> Schedule:
        """The schedule that is asked."""
        return self._inner

    def next_after(self, t: Instant) -> Instant | None:
        """Returns the first nominal time later than `t`."""
        times = self._times
        if times and self._begin <= t < times[-1]:
            due = times[bisect_right(times, t)]
            return due if due != _NEVER else None
        return self._extend(t)

    def previous_before(self, t: Instant) -> Instant | None:
        """Returns the last nominal time earlier than `t`."""
        times = self._times
        if times and times[0] < t <= times[-1]:
            return times[bisect_left(times, t) - 1]
        return self._inner.previous_before(t)

    def explain(self) -> str:
        """Returns the other schedule's text."""
        return self._inner.explain()

    def _extend(self, t: Instant) -> Instant | None:
        """Asks, and grows the window at its end where the answer continues it."""
        times = self._times
        answer = self._inner.next_after(t)
        due = _NEVER if answer is None else answer
        if times and t >= times[-1]:
            if times[-1] == _NEVER:
                return None
            if t == times[-1] or self._inner.previous_before(due) == times[-1]:
                times.append(due)
                if len(times) > WINDOW:
                    del times[: WINDOW // 2]
                    self._begin = times[0]
                return answer
        elif times and due == times[0]:
            self._begin = t
            return answer
        self._begin = t
        self._times = [due]
        return answer
