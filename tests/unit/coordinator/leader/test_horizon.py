"""The near horizon of the due index."""

from __future__ import annotations

import random
from itertools import islice

from sexton_coordinator.leader.horizon import HORIZON_NS, Horizon

S = 1_000_000_000


def loaded(reach: int = 100) -> Horizon:
    horizon = Horizon()
    horizon.begin_loading(reach)
    horizon.end_loading(reach, None)
    return horizon


def test_jobs_come_out_when_they_are_due_and_earliest_first() -> None:
    horizon = loaded()
    for uid, due in (("c", 30), ("a", 10), ("b", 20)):
        assert horizon.arm(uid, due)
    assert horizon.next_due() == 10
    assert horizon.take(25, 10) == ["a", "b"]
    assert horizon.take(25, 10) == []
    assert horizon.next_due() == 30


def test_a_job_is_armed_for_the_last_time_that_was_said() -> None:
    horizon = loaded()
    horizon.arm("a", 10)
    horizon.arm("a", 50)
    assert horizon.take(20, 10) == []
    horizon.arm("a", 15)
    assert horizon.take(20, 10) == ["a"]
    assert horizon.take(60, 10) == []
    horizon.arm("a", 70)
    horizon.arm("a", None)
    assert horizon.next_due() is None


def test_what_is_due_beyond_it_is_left_to_the_index_unless_it_must_not() -> None:
    horizon = loaded(100)
    assert not horizon.arm("a", 101)
    assert "a" not in horizon
    assert horizon.arm("a", 101, anyway=True)
    assert horizon.take(101, 10) == ["a"]


def test_what_is_written_during_a_loading_is_taken() -> None:
    horizon = loaded(100)
    horizon.begin_loading(200)
    assert horizon.arm("late", 150)
    horizon.end_loading(200, None)
    assert horizon.until == 200
    assert horizon.next_due() == 150


def test_a_loading_that_was_cut_short_knows_how_far_it_came() -> None:
    horizon = Horizon()
    horizon.begin_loading(HORIZON_NS)
    for uid, due in (("a", 5), ("b", 7), ("c", 7)):
        horizon.arm(uid, due)
    horizon.end_loading(HORIZON_NS, 7)
    assert horizon.until == 6
    assert not horizon.is_short(5)  # what was loaded comes first
    assert horizon.take(7, 10) == ["a", "b", "c"]
    assert horizon.is_short(7)
    assert not horizon.arm("d", 8)


def test_it_is_loaded_again_in_time() -> None:
    horizon = loaded(60 * S)
    assert not horizon.is_short(30 * S)
    assert horizon.is_short(31 * S)


def test_any_sequence_gives_what_a_plain_dictionary_gives() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        horizon, plain, now = loaded(10**9), dict[str, int](), 0
        for _ in range(300):
            uid = rng.choice("abcdefgh")
            if rng.random() < 0.7:
                due = now + rng.randrange(50)
                horizon.arm(uid, due)
                plain[uid] = due
            elif rng.random() < 0.3:
                horizon.arm(uid, None)
                plain.pop(uid, None)
            else:
                now += rng.randrange(20)
                taken = horizon.take(now, 100)
                assert sorted(taken) == sorted(u for u, due in plain.items() if due <= now)
                for gone in taken:
                    del plain[gone]
            assert horizon.next_due() == min(plain.values(), default=None)


def test_what_is_due_soon_is_taken_in_its_order_and_put_back_into_it() -> None:
    horizon = Horizon()
    horizon.begin_loading(1_000)
    for number in range(50):
        horizon.arm(f"job-{number}", 7 * number % 50 // 5)
    horizon.arm("job-0", 40)  # and not at 0 any more
    due = [(7 * number % 50 // 5, number) for number in range(1, 50)]
    expected = [(at, f"job-{number}") for at, number in sorted(due) if at <= 5]
    for most in (3, 7, 50):
        taken = list(islice(horizon.due(5), most))
        assert taken == expected[:most]
        assert len(horizon) == 50 - len(taken)
        horizon.put_back(taken)
        assert len(horizon) == 50
        assert horizon.next_due() == 0
    assert horizon.take(5, 4) == [uid for _, uid in expected[:4]]
    horizon.arm("job-0", 0)
    assert horizon.take(0, 1) == ["job-0"]
