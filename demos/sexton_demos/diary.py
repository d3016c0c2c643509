"""What happened, in order, as somebody who knows the exact time writes it down."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sexton_core.instants import SECOND, Instant
from sexton_demos.telling import by_appearance


class Event(NamedTuple):
    """Something happened; `nominal` where it answers a nominal time."""

    at: Instant
    who: str
    what: str
    nominal: Instant = 0

    @property
    def late_s(self) -> float:
        """How long after its nominal time."""
        return (self.at - self.nominal) / SECOND if self.nominal else 0.0


class Diary:
    """Events, and what can be counted about them."""

    def __init__(self, now: Callable[[], Instant]) -> None:
        self.events: list[Event] = []
        self._now = now

    def note(self, who: str, what: str, nominal: Instant = 0) -> None:
        """Notes that something happens now."""
        self.events.append(Event(self._now(), who, what, nominal))

    def told(self) -> list[Event]:
        """Gives the events, and who did it by the order in which they came."""
        names = by_appearance(event.who for event in self.events)
        return [event._replace(who=names[event.who]) for event in self.events]

    def last(self, what: str) -> Event:
        """Gives when and to whom it happened last."""
        return [event for event in self.events if event.what == what][-1]

    def gap_s(self, *, after: str, until: str) -> float:
        """Gives the time from the last of one thing to the next of another."""
        begin = self.last(after).at
        end = min(event.at for event in self.events if event.what == until and event.at > begin)
        return (end - begin) / SECOND

    def done(self) -> list[Event]:
        """Gives what answered nominal times."""
        return [event for event in self.events if event.nominal]

    def answered(self) -> set[tuple[str, Instant]]:
        """Gives what was to be done and was, with its nominal time."""
        return {(event.what, event.nominal) for event in self.done()}

    def doubled(self) -> int:
        """Counts what was done although it had been done, or begun, before."""
        return len(self.done()) - len(self.answered())
