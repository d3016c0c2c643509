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
        """Keeps bounds that `check_bounds` has found good."""
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


def check_bounds(start: Instant | None, end: Instant | None) -> None:
    """Checks when a schedule begins and ends.

    Raises:
        ScheduleError: one is not a whole second from 1970 to 2261, or the end comes first.
    """
    for field, bound in (("start", start), ("end", end)):
        if bound is not None and (bound % SECOND or not MIN_INSTANT <= bound <= MAX_INSTANT):
            raise ScheduleError(field, format_instant(bound), "a whole second from 1970 to 2261")
    if start is not None and end is not None and end < start:
        raise ScheduleError(
            "end", format_instant(end), f"a time after the start, {format_instant(start)}"
        )


class Limited:
    """Another schedule up to the last of the first `max_runs` nominal times from `since` on.

    These are counted as the schedule asks for them, whatever becomes of them: what a preview shows
    is what will be, and a skipped run does not prolong the schedule.
    """

    __slots__ = ("_counted", "_inner", "_known", "_left", "_max_runs", "_since")

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
        # How far the walk from `since` has come, and how many more it may count. It goes no
        # further than the questions do, so that a long limit costs nothing in the beginning.
        self._known: Instant = since - 1
        self._left = max_runs

    def next_after(self, t: Instant) -> Instant | None:
        """Returns the first nominal time later than `t` that is still among the counted ones."""
        due = self._inner.next_after(max(t, self._since - 1))
        return None if due is None or due > self._walk_to(due) else due

    def previous_before(self, t: Instant) -> Instant | None:
        """Returns the last counted nominal time earlier than `t`."""
        due = self._inner.previous_before(min(t, self._walk_to(t) + 1))
        return None if due is None or due < self._since else due

    def explain(self) -> str:
        """Adds the number to the other schedule's text."""
        return f"{self._inner.explain()}, {self._max_runs:,} times at most"

    def _walk_to(self, t: Instant) -> Instant:
        """Counts until `t` is reached or nothing is left to count; returns where that is."""
        while self._left and self._known < t:
            due = self._counted.next_after(self._known)
            if due is None:
                self._left = 0
            else:
                self._known = due
                self._left -= 1
        return self._known
