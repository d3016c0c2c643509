"""What every kind of schedule can answer."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

from sexton_core.errors import NeverFiresError
from sexton_core.instants import Instant, format_instant
from sexton_core.words import WarningKind


@runtime_checkable
class Schedule(Protocol):
    """A set of nominal times, asked in either direction.

    Implementations are immutable and pure: the same question has the same answer for ever, under
    the same tzdata. Every instant is a whole second, in nanoseconds.
    """

    def next_after(self, t: Instant) -> Instant | None:
        """Returns the first nominal time strictly later than `t`; None: never again."""
        ...

    def previous_before(self, t: Instant) -> Instant | None:
        """Returns the last nominal time strictly earlier than `t`; None: never before."""
        ...

    def explain(self) -> str:
        """Returns the schedule in English, without its next time and without a full stop."""
        ...


class ScheduleWarning(NamedTuple):
    """What may surprise the writer of a schedule; it is applied all the same."""

    kind: WarningKind
    message: str


def first_or_refuse(
    schedule: Schedule, t: Instant, *, field: str, value: str | None = None
) -> Instant:
    """Returns the first nominal time after `t`; what never fires has no place in a job.

    Raises:
        NeverFiresError: naming the field and its value, where none is given in words.
    """
    due = schedule.next_after(t)
    if due is None:
        shown = schedule.explain() if value is None else value
        expected = f"a time that comes: this never fires after {format_instant(t)}"
        raise NeverFiresError(field, shown, expected)
    return due


def between(schedule: Schedule, a: Instant, b: Instant, limit: int) -> Iterator[Instant]:
    """Yields the nominal times in (a, b], in order, at most `limit` of them.

    Lazy: an instant is computed when it is asked for.
    """
    assert limit >= 0, "a limit counts instants"
    t = a
    for _ in range(limit):
        due = schedule.next_after(t)
        if due is None or due > b:
            return
        assert due > t, "a schedule must move on"
        yield due
        t = due


def between_backwards(schedule: Schedule, a: Instant, b: Instant, limit: int) -> Iterator[Instant]:
    """Yields the nominal times in [a, b), newest first, at most `limit` of them."""
    assert limit >= 0, "a limit counts instants"
    t = b
    for _ in range(limit):
        due = schedule.previous_before(t)
        if due is None or due < a:
            return
        assert due < t, "a schedule must move on"
        yield due
        t = due
