"""A first instant, a last one, and a number of nominal times."""

from typing import Final

from sexton_core.errors import ScheduleError
from sexton_core.instants import MAX_INSTANT, MIN_INSTANT, SECOND, Instant, format_instant
from sexton_core.schedule import Schedule

MAX_RUNS: Final = 10_000
"""The largest `max_runs`: finding the last of them is a walk. What needs more has an `end`."""


class Bounded:
    """Another schedule, from `start` to `end`, both included."""

    __slots__ = ("_inner", "end", "start")

    def __init__(self, inner: Schedule, *, start: Instant | None, end: Instant | None) -> None:
        """Checks the bounds.

        Raises:
            ScheduleError: one is not a whole second from 1970 to 9999, or the end comes first.
        """
        for field, bound in (("start", start), ("end", end)):
            if bound is not None and (bound % SECOND or not MIN_INSTANT <= bound <= MAX_INSTANT):
                raise ScheduleError(field, bound, "a whole second from 1970 to 9999")
        if start is not None and end is not None and end < start:
            raise ScheduleError(
                "end", format_instant(end), f"a time after the start, {format_instant(start)}"
            )
        self._inner: Final = inner
        self.start: Final = start
        self.end: Final = end

    def next_after(self, t: Instant) -> Instant | None:
        """Returns the first nominal time later than `t`, within the bounds."""
        if self.start is not None and t < self.start:
            t = self.start - 1
        due = self._inner.next_after(t)
        return None if due is None or (self.end is not None and due > self.end) else due

    def previous_before(self, t: Instant) -> Instant | None:
        """Returns the last nominal time earlier than `t`, within the bounds."""
        if self.end is not None and t > self.end:
            t = self.end + 1
        due = self._inner.previous_before(t)
        return None if due is None or (self.start is not None and due < self.start) else due

    def explain(self) -> str:
        """Adds the bounds to the other schedule's text."""
        text = self._inner.explain()
        if self.start is not None:
            text += f", from {format_instant(self.start)}"
        if self.end is not None:
            text += f", until {format_instant(self.end)}"
        return text


class Limited:
    """Another schedule up to the last of the first `max_runs` nominal times from `since` on.

    These are counted as the schedule asks for them, whatever becomes of them: what a preview shows
    is what will be, and a skipped run does not prolong the schedule.
    """

    __slots__ = ("_counted", "_inner", "_last", "_max_runs", "_since")

    def __init__(
        self, inner: Schedule, counted: Schedule, *, max_runs: int, since: Instant
    ) -> None:
        """Checks the number.

        Args:
            inner: what is cut off.
            counted: whose nominal times count: `inner`, or `inner` less what calendars take away.
            max_runs: how many.
            since: where counting begins.

        Raises:
            ScheduleError: it is not between 1 and `MAX_RUNS`.
        """
        if not 1 <= max_runs <= MAX_RUNS:
            raise ScheduleError(
                "max_runs", max_runs, f"a number from 1 to {MAX_RUNS:,}; beyond that, use `end`"
            )
        self._inner: Final = inner
        self._counted: Final = counted
        self._max_runs: Final = max_runs
        self._since: Final = since
        self._last: Instant | None = None

    def next_after(self, t: Instant) -> Instant | None:
        """Returns the first nominal time later than `t` that is still among the counted ones."""
        due = self._inner.next_after(max(t, self._since - 1))
        return None if due is None or due > self._find_last() else due

    def previous_before(self, t: Instant) -> Instant | None:
        """Returns the last counted nominal time earlier than `t`."""
        due = self._inner.previous_before(min(t, self._find_last() + 1))
        return None if due is None or due < self._since else due

    def explain(self) -> str:
        """Adds the number to the other schedule's text."""
        return f"{self._inner.explain()}, {self._max_runs:,} times at most"

    def _find_last(self) -> Instant:
        """Walks once to the last counted nominal time, or as far as the schedule goes."""
        if self._last is None:
            t = self._since - 1
            for _ in range(self._max_runs):
                due = self._counted.next_after(t)
                if due is None:
                    break
                t = due
            self._last = t
        return self._last
