"""What a leader looks at next."""

from __future__ import annotations

import asyncio

import pytest

from sexton.internal.v1 import coordinator_pb2, records_pb2
from sexton_coordinator.jobs_store import JobRef, LoadedJob
from sexton_coordinator.leader import machine as machines
from sexton_coordinator.leader.machine import Known, Machine, Trigger

A = JobRef("a" * 24, "default", "first")
B = JobRef("b" * 24, "default", "second")
TIMER = records_pb2.TimerRecord(namespace="default", job="first")


def machine() -> Machine:
    made = Machine()
    made.horizon.begin_loading(1_000)
    made.horizon.end_loading(1_000, None)
    return made


def read(known: Known, revision: int, definition: int = 0) -> None:
    """Stands for the reading of a job, its state as of a revision, its definition as of another."""
    known.loaded = LoadedJob(None, None, None, revision, None, None, definition, {}, b"")  # type: ignore[arg-type]


def take(made: Machine, now: int = 0) -> list[str]:
    return [known.uid for known in made.take(now, 100)]


def test_a_job_is_looked_at_when_its_timer_is_due() -> None:
    made = machine()
    assert made.timer(A.uid, 10, TIMER)
    assert take(made, 9) == []
    assert take(made, 10) == [A.uid]


def test_a_changed_job_that_is_not_due_soon_and_has_nothing_pending_costs_no_look() -> None:
    made = machine()
    made.changed(A, 5, timer=1_001)
    assert (take(made), len(made)) == ([], 0)
    made.changed(A, 6, timer=1_000)
    assert take(made) == [A.uid]
    made.waiting.add(B.uid)
    made.changed(B, 7, timer=5_000)
    assert take(made) == [B.uid]


def test_a_known_job_is_looked_at_also_when_its_timer_has_moved_far_away() -> None:
    made = machine()
    made.timer(A.uid, 10, TIMER)
    made.changed(A, 5, timer=5_000)
    assert take(made, 0) == [A.uid]


def test_at_most_one_look_at_a_job_is_under_way_and_what_comes_meanwhile_is_seen() -> None:
    made = machine()
    made.changed(A, 5)
    (known,) = made.take(0, 100)
    made.changed(A, 6)
    assert take(made) == []
    read(known, 5)
    made.finish(known, 500)
    assert known.loaded is None  # it has changed since
    assert take(made) == [A.uid]


def test_what_a_look_rests_on_stays_until_it_has_ended() -> None:
    made = machine()
    made.changed(A, 5)
    (known,) = made.take(0, 100)
    read(known, 5)
    made.changed(A, 6)
    made.forget_all_read()
    assert known.loaded is not None
    made.finish(known, 500)
    (again,) = made.take(0, 100)
    assert (again.uid, again.loaded) == (A.uid, None)


def test_a_change_that_is_known_already_costs_nothing() -> None:
    made = machine()
    made.changed(A, 5)
    (known,) = made.take(0, 100)
    read(known, 5)
    made.finish(known, 500)
    made.changed(A, 4)
    assert take(made) == []
    assert known.loaded is not None


def test_a_change_of_the_definition_alone_is_read_once() -> None:
    made = machine()
    made.changed(A, 9)
    (known,) = made.take(0, 100)
    read(known, 5, definition=9)
    made.finish(known, 500)
    assert take(made) == []
    made.changed(A, 9)
    assert take(made) == []
    made.changed(A, 10)
    assert take(made) == [A.uid]


def test_a_job_about_which_there_is_nothing_to_do_is_forgotten() -> None:
    made = machine()
    made.changed(A, 5)
    (known,) = made.take(0, 100)
    made.finish(known, 5_000)
    assert len(made) == 0
    made.changed(A, 6)
    (known,) = made.take(0, 100)
    made.gone(known)
    assert len(made) == 0


def test_a_job_whose_state_is_known_is_not_armed_by_a_stale_timer() -> None:
    made = machine()
    made.timer(A.uid, 10, TIMER)
    (known,) = made.take(10, 100)
    assert not made.timer(A.uid, 11, TIMER)
    read(known, 1)
    made.finish(known, 100)
    assert not made.timer(A.uid, 12, TIMER)
    assert made.horizon.next_due() == 100


def test_the_end_of_a_run_wakes_a_job_with_a_start_that_waits_and_no_other() -> None:
    made = machine()
    for ref in (A, B):
        made.changed(ref, 1)
    for known in made.take(0, 100):
        read(known, 1)
        made.finish(known, 500)
    made.waiting.add(A.uid)
    made.ended(A.uid, "run-a")
    made.ended(B.uid, "run-b")
    made.ended("z" * 24, "of a job that nobody knows")
    assert take(made) == [A.uid]
    found = made.get(B.uid)
    assert found is not None
    assert found.ended == {"run-b"}


def test_a_definition_that_has_gone_is_found_by_its_name() -> None:
    made = machine()
    made.timer(A.uid, 900, TIMER)
    made.removed("default", "first", 7)
    made.removed("default", "unknown", 8)
    assert take(made) == [A.uid]


def test_a_look_that_came_to_nothing_is_repeated_after_growing_pauses() -> None:
    known = Known(uid=A.uid, ref=A)
    pauses = [known.pause_ns() // 1_000_000 for _ in range(12)]
    assert pauses == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000, 1_000, 1_000]
    made = machine()
    made.changed(A, 1)
    (taken,) = made.take(0, 100)
    made.postpone(taken, 5_000)
    assert take(made, 4_999) == []
    assert take(made, 5_000) == [A.uid]


def test_everything_is_read_again_once_changes_were_missed() -> None:
    made = machine()
    made.timer(A.uid, 10, TIMER)
    made.changed(B, 1)
    for known in made.take(10, 100):
        read(known, 1)
        if known.uid == A.uid:
            made.finish(known, 500)
    made.forget_all_read()
    found = made.get(B.uid)
    assert found is not None
    made.finish(found, 500)
    assert [known.loaded for known in made.take(600, 100)] == [None, None]


async def test_starts_that_are_asked_for_wait_their_turn() -> None:
    made = machine()
    loop = asyncio.get_running_loop()
    asked = [
        Trigger(
            ref=A,
            request=coordinator_pb2.TriggerRequest(uid=A.uid, namespace="default", job="first"),
            body=b"",
            answer=loop.create_future(),
        )
        for _ in range(2)
    ]
    for trigger in asked:
        made.ask(trigger)
    (known,) = made.take(0, 100)
    assert known.asked.pop(0) is asked[0]
    made.finish(known, None)
    assert take(made) == [A.uid]
    assert list(made.drain()) == [asked[1]]


def ask(made: Machine, ref: JobRef, *, proof_first: bool = False) -> Known:
    """Has a job asked for, looked at and read, so that there is nothing more to do about it."""
    request = coordinator_pb2.TriggerRequest(uid=ref.uid, namespace=ref.namespace, job=ref.job)
    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    made.ask(Trigger(ref=ref, request=request, body=b"", proof_first=proof_first, answer=answer))
    (known,) = made.take(0, 100)
    before = known.loaded
    read(known, 1)
    known.asked.clear()
    made.finish(known, 5_000)
    known.loaded = before or known.loaded
    return known


async def test_a_job_that_was_asked_for_stays_read_until_it_changes_or_is_due_soon() -> None:
    made = machine()
    known = ask(made, A)
    made.changed(A, 1)
    made.changed(A, 1, timer=5_000)
    assert (take(made), made.get(A.uid), known.loaded is not None) == ([], known, True)
    assert ask(made, A) is known

    made.changed(A, 2, timer=5_000)
    assert (take(made), len(made)) == ([], 0)
    known = ask(made, A)
    made.changed(A, 2)
    assert (take(made), known.loaded) == ([A.uid], None)
    read(known, 2)
    made.finish(known, None)
    made.removed("default", "first", 3)
    assert (take(made), known.loaded) == ([A.uid], None)
    made.gone(known)

    ask(made, A)
    assert made.timer(A.uid, 900, TIMER)
    assert [known.uid for known in made.take_unread(9)] == [A.uid]

    ask(made, B)
    made.forget_all_read()
    assert made.get(B.uid) is None


async def test_a_job_that_was_set_aside_is_read_for_what_its_commit_does_not_compare() -> None:
    made = machine()
    known = ask(made, A)
    loaded = known.loaded
    ask(made, A, proof_first=True)
    assert known.loaded is not loaded


async def test_only_so_many_jobs_are_set_aside_those_asked_for_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machines, "MOST_ASIDE", 2)
    made = machine()
    others = [JobRef(f"u{number}", "default", f"j{number}") for number in range(3)]
    for ref in (others[0], others[1], others[0], others[2]):
        ask(made, ref)
    assert [made.get(ref.uid) is not None for ref in others] == [True, False, True]


def test_what_is_due_later_is_read_ahead_once_and_in_its_order() -> None:
    made = machine()
    made.timer(A.uid, 10, TIMER)
    made.timer(B.uid, 20, TIMER)
    made.timer("c" * 24, 30, TIMER)
    (known,) = made.take(10, 100)
    made.gone(known)
    ahead = made.take_unread(100)
    assert [known.uid for known in ahead] == [B.uid, "c" * 24]
    assert take(made, 20) == []  # due while it is being read
    for known in ahead:
        read(known, 1)
        made.finish(known, known.scanned)
    assert made.take_unread(100) == []
    assert take(made, 20) == [B.uid]
    assert take(made, 30) == ["c" * 24]


def test_only_so_many_jobs_stay_read_however_many_are_due_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machines, "MOST_KEPT", 2)
    made = machine()
    for number in range(3):
        made.look(f"u{number}")
    for known in made.take(0, 9):
        read(known, 1)
        made.finish(known, 5)
    kept = [made.get(f"u{number}") for number in range(3)]
    assert [it is not None and it.loaded is not None for it in kept] == [True, True, False]

    made.timer("u3", 7, TIMER)
    assert made.take_unread(9) == []
    assert take(made, 5) == ["u0", "u1", "u2"]


def ahead(made: Machine, number: int, due: int) -> Known:
    """A job that was read before it is due, as its timer says."""
    made.timer(f"u{number:03}", due, TIMER)
    (known,) = made.take_unread(9)
    known.loaded = LoadedJob(None, None, None, 1, due, None, 1, {}, b"")  # type: ignore[arg-type]
    known.verify = False
    made.finish(known, known.scanned)
    return known


def test_what_can_not_be_decided_about_ahead_keeps_nobody_else_from_it() -> None:
    made = machine()
    for number in range(300):
        blocked = ahead(made, number, 5)
        blocked.not_ahead = blocked.loaded
    free = [ahead(made, number, 6) for number in (300, 301, 302)]
    assert made.take_ahead(0, 2) == free[:2]
    assert made.take_ahead(0, 2) == free[2:]


def test_a_timer_that_a_start_ahead_moves_is_not_taken_for_a_stale_one() -> None:
    made = machine()
    known = ahead(made, 0, 5)
    assert known.scanned == 5
    assert made.take_ahead(0, 9) == [known]
    assert known.scanned is None
