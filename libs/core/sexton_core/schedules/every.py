"""An elapsed interval, anchored: the n-th time is computed, never added up, so it can't drift."""

from typing import Final

from sexton_core.errors import ScheduleError
from sexton_core.instants import (
    DAY,
    MAX_INSTANT,
    MIN_INSTANT,
    SECOND,
    Duration,
    Instant,
    format_duration,
    format_instant,
)

MAX_PERIOD: Final[Duration] = 400 * DAY
"""What is longer is a matter of the calendar."""


class EverySchedule:
    """Fires at `anchor + offset + n * period` for every whole n, in both directions."""

    __slots__ = ("_first", "_last", "_offset_ns", "anchor", "period_ns")

    def __init__(
        self, period_ns: Duration, *, offset_ns: Duration = 0, anchor: Instant = 0
    ) -> None:
        """Checks the interval.

        Raises:
            ScheduleError: the period is under a second, a part is not in whole seconds, or the
                offset is not within the period.
        """
        _check(period_ns, offset_ns, anchor)
        self.period_ns: Final = period_ns
        self.anchor: Final = anchor
        self._offset_ns: Final = offset_ns
        self._first: Final = (anchor + offset_ns - MIN_INSTANT) % period_ns + MIN_INSTANT
        self._last: Final = self._first + (MAX_INSTANT - self._first) // period_ns * period_ns

    def next_after(self, t: Instant) -> Instant | None:
        """Returns the first nominal time later than `t`."""
        if t < self._first:
            return self._first if self._first <= MAX_INSTANT else None
        due = t + self.period_ns - (t - self._first) % self.period_ns
        return due if due <= MAX_INSTANT else None

    def previous_before(self, t: Instant) -> Instant | None:
        """Returns the last nominal time earlier than `t`."""
        if t <= self._first:
            return None
        if t > self._last:
            return self._last
        return t - 1 - (t - 1 - self._first) % self.period_ns

    def explain(self) -> str:
        """Returns, for example, `every 1h30m, counted from 2026-01-01T00:00:00Z`."""
        text = f"every {format_duration(self.period_ns)}"
        if self.anchor:
            text += f", counted from {format_instant(self.anchor)}"
        if self._offset_ns:
            text += f", {format_duration(self._offset_ns)} later"
        return text


def _check(period_ns: Duration, offset_ns: Duration, anchor: Instant) -> None:
    if not SECOND <= period_ns <= MAX_PERIOD:
        expected = f"at least 1s, and at most {format_duration(MAX_PERIOD)}"
        raise ScheduleError("every", format_duration(period_ns), expected)
    if period_ns % SECOND:
        raise ScheduleError("every", format_duration(period_ns), "whole seconds, such as 90s")
    if not 0 <= offset_ns < period_ns or offset_ns % SECOND:
        raise ScheduleError(
            "offset",
            format_duration(offset_ns),
            f"whole seconds, less than the period of {format_duration(period_ns)}",
        )
    if anchor % SECOND or not MIN_INSTANT <= anchor <= MAX_INSTANT:
        raise ScheduleError("anchor", format_instant(anchor), "a whole second from 1970 to 2261")
