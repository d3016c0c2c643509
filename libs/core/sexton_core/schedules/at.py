"""A list of instants."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

from sexton_core.errors import ScheduleError
from sexton_core.instants import MAX_INSTANT, MIN_INSTANT, SECOND, Instant, format_instant

MAX_INSTANTS: Final = 1_000
"""In one list; it is part of the job's definition, which has to stay small."""

_SHOWN: Final = 3


class AtSchedule:
    """Fires at each of some instants; equal ones count once."""

    __slots__ = ("instants",)

    def __init__(self, instants: Iterable[Instant]) -> None:
        """Sorts the instants.

        Raises:
            ScheduleError: there are more than `MAX_INSTANTS`, or one is not a whole second from
                1970 to 2261.
        """
        self.instants: Final = tuple(sorted(set(instants)))
        if len(self.instants) > MAX_INSTANTS:
            raise ScheduleError("at", len(self.instants), f"at most {MAX_INSTANTS:,} instants")
        for instant in self.instants:
            if instant % SECOND or not MIN_INSTANT <= instant <= MAX_INSTANT:
                raise ScheduleError(
                    "at", format_instant(instant), "whole seconds from 1970 to 2261"
                )

    def next_after(self, t: Instant) -> Instant | None:
        """Returns the first instant later than `t`."""
        index = bisect_right(self.instants, t)
        return self.instants[index] if index < len(self.instants) else None

    def previous_before(self, t: Instant) -> Instant | None:
        """Returns the last instant earlier than `t`."""
        index = bisect_left(self.instants, t)
        return self.instants[index - 1] if index else None

    def explain(self) -> str:
        """Names the first instants, and how many more there are."""
        if not self.instants:
            return "never"
        text = " and ".join(format_instant(t) for t in self.instants[:_SHOWN])
        more = len(self.instants) - _SHOWN
        return f"at {text} and {more:,} more" if more > 0 else f"at {text}"
