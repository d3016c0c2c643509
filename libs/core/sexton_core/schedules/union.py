"""Several schedules as one: one order, one cursor, equal instants once."""

from collections.abc import Iterable
from typing import Final

from sexton_core.errors import ScheduleError
from sexton_core.instants import Instant
from sexton_core.schedule import Schedule

MAX_PARTS: Final = 20
"""Schedules of one job; each costs one question per step."""


class Union:
    """Fires whenever any of its parts does."""

    __slots__ = ("parts",)

    def __init__(self, parts: Iterable[Schedule]) -> None:
        """Keeps the parts.

        Raises:
            ScheduleError: there are none, or more than `MAX_PARTS`.
        """
        self.parts: Final = tuple(parts)
        if not 1 <= len(self.parts) <= MAX_PARTS:
            raise ScheduleError("schedules", len(self.parts), f"1 to {MAX_PARTS} of them")

    def next_after(self, t: Instant) -> Instant | None:
        """Returns the earliest answer of its parts."""
        return min(
            (due for part in self.parts if (due := part.next_after(t)) is not None), default=None
        )

    def previous_before(self, t: Instant) -> Instant | None:
        """Returns the latest answer of its parts."""
        return max(
            (due for part in self.parts if (due := part.previous_before(t)) is not None),
            default=None,
        )

    def explain(self) -> str:
        """Joins its parts with `and also`."""
        return "; and also ".join(part.explain() for part in self.parts)
