"""Which nominal times a change of schedules adds, and which it takes away."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from sexton_core.instants import MAX_INSTANT, Instant
from sexton_core.schedule import Schedule

MAX_COUNTED: Final = 10_000
"""Times of one kind that are counted; beyond it the number is a lower bound."""

_STEPS_PER_TIME: Final = 5
"""Where two schedules agree for long, the search ends after so many steps for each time counted."""


_TURN: Final = 500
"""Steps of one turn: a few milliseconds."""


class Difference(NamedTuple):
    """What a change does in a stretch of time. Numbers are lower bounds where counting ended."""

    gained: int = 0
    lost: int = 0
    gained_times: tuple[Instant, ...] = ()
    lost_times: tuple[Instant, ...] = ()


def difference(
    before: Schedule | None,
    after: Schedule | None,
    a: Instant,
    b: Instant,
    *,
    limit: int = MAX_COUNTED,
    shown: int = 3,
) -> Difference:
    """Compares the nominal times of two schedules in (a, b]; None asks for nothing.

    Args:
        before: as it was.
        after: as it would be.
        a: from here, exclusive.
        b: up to here, inclusive.
        limit: of the times counted, of either kind.
        shown: how many of either kind are given, the first ones.

    """
    *_, found = differences(before, after, a, b, limit=limit, shown=shown)
    return found


def differences(
    before: Schedule | None,
    after: Schedule | None,
    a: Instant,
    b: Instant,
    *,
    limit: int = MAX_COUNTED,
    shown: int = 3,
) -> Iterator[Difference]:
    """Compares as `difference`, in short turns: gives what was found so far, at last the answer."""
    gained: list[Instant] = []
    lost: list[Instant] = []
    gained_count = lost_count = 0
    old, new = _next(before, a, b), _next(after, a, b)
    for step in range(1, limit * _STEPS_PER_TIME + 1):
        t = min(old, new)
        if t == _NEVER or max(gained_count, lost_count) >= limit:
            break
        if old > new:
            gained_count += 1
            if len(gained) < shown:
                gained.append(t)
        elif new > old:
            lost_count += 1
            if len(lost) < shown:
                lost.append(t)
        if old == t:
            old = _next(before, t, b)
        if new == t:
            new = _next(after, t, b)
        if step % _TURN == 0:
            yield Difference(gained_count, lost_count, tuple(gained), tuple(lost))
    yield Difference(gained_count, lost_count, tuple(gained), tuple(lost))


_NEVER: Final = MAX_INSTANT + 1


def _next(schedule: Schedule | None, t: Instant, b: Instant) -> Instant:
    found = None if schedule is None else schedule.next_after(t)
    return _NEVER if found is None or found > b else found
