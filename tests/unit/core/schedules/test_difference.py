"""Which nominal times a change adds and takes away."""

from sexton_core.instants import SECOND
from sexton_core.schedules.difference import Difference, difference
from sexton_core.schedules.every import EverySchedule

S = SECOND


def every(seconds: int) -> EverySchedule:
    return EverySchedule(seconds * S)


def test_times_of_both_are_neither() -> None:
    found = difference(every(10), every(15), 0, 60 * S)
    assert found == Difference(2, 4, (15 * S, 45 * S), (10 * S, 20 * S, 40 * S))


def test_nothing_before_or_after_is_all_gained_or_lost() -> None:
    assert difference(None, every(30), 0, 60 * S) == Difference(2, 0, (30 * S, 60 * S), ())
    assert difference(every(30), None, 0, 59 * S) == Difference(0, 1, (), (30 * S,))
    assert difference(None, None, 0, 60 * S) == Difference()


def test_counting_ends_at_its_bound_also_where_both_agree_for_ever() -> None:
    assert difference(None, every(1), 0, 10**9 * S, limit=100).gained == 100
    asked = 0

    class Counted(EverySchedule):
        def next_after(self, t: int) -> int | None:
            nonlocal asked
            asked += 1
            return super().next_after(t)

    assert difference(Counted(S), Counted(S), 0, 10**9 * S, limit=100) == Difference()
    assert asked <= 1_002
