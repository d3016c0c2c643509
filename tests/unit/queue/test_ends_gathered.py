"""Starts come before ends while there is room for them, but not for long."""

from __future__ import annotations

import pytest
from unit.queue.lines import waiting
from unit.queue.shop import Hand, Shop

from sexton_core.instants import MILLISECOND, SECOND
from sexton_core.words import RunState
from sexton_queue import machine
from sexton_queue.changes import Kind


def arrive(shop: Shop, number: int, queue: str = "default") -> None:
    kv = waiting(number, queue=queue)
    shop.put(kv.key, kv.value)
    shop.machine.table.arrive(kv.key, shop.revision, kv.value, shop.now)


def with_a_run_that_has_begun(slots: int = 4) -> tuple[Shop, Hand]:
    shop = Shop()
    hand = Hand(shop, "one", slots=slots)
    hand.hello()
    shop.pump()
    hand.read()
    arrive(shop, 0)
    shop.pump()
    hand.read()
    hand.begin()
    return shop, hand


def with_an_end_and_a_ready_run(slots: int) -> Shop:
    shop, hand = with_a_run_that_has_begun(slots)
    hand.finish()
    arrive(shop, 1)
    return shop


def test_a_ready_run_is_handed_out_before_ends_are_written() -> None:
    shop = with_an_end_and_a_ready_run(slots=2)
    decided = shop.machine.decide(shop.now)
    assert [change.kind for change in decided] == [Kind.ASSIGN]

    shop.machine.settle(decided, [shop.commit(change) for change in decided], shop.now)
    assert [change.kind for change in shop.machine.decide(shop.now)] == [Kind.END]


def test_ends_wait_50_ms_at_most() -> None:
    shop = with_an_end_and_a_ready_run(slots=2)
    assert shop.machine.next_wake()[1] == shop.boot + 50 * MILLISECOND
    shop.boot += 50 * MILLISECOND
    decided = shop.machine.decide(shop.now)
    assert [change.kind for change in decided] == [Kind.END, Kind.ASSIGN]


def test_ends_wait_for_no_run_that_has_no_worker() -> None:
    shop = with_an_end_and_a_ready_run(slots=1)
    assert [change.kind for change in shop.machine.decide(shop.now)] == [Kind.END]


def test_no_run_starts_while_its_end_is_asked_for() -> None:
    shop = with_an_end_and_a_ready_run(slots=2)
    run = waiting(1).key
    answers = shop.end(run)
    assert [change.kind for change in shop.machine.decide(shop.now)] == [Kind.END, Kind.END]
    assert answers == []
    assert run not in shop.machine.table.line.ready


def test_a_run_that_goes_back_into_line_with_its_end_asked_for_does_not_start_again() -> None:
    shop = Shop()
    hand = Hand(shop, "one", slots=2)
    hand.hello()
    shop.pump()
    hand.read()
    arrive(shop, 0)
    shop.pump()
    (ref,) = [assigned.ref for assigned in hand.stream.assignments] if hand.stream else []
    shop.machine.roster.returned(ref)
    shop.boot += 50 * MILLISECOND
    decided = shop.machine.decide(shop.now)
    assert [change.kind for change in decided] == [Kind.LINE_UP]
    shop.end(ref.handle)
    shop.machine.settle(decided, [shop.commit(change) for change in decided], shop.now)
    assert [change.kind for change in shop.machine.decide(shop.now)] == [Kind.END]


def test_ends_do_not_wait_for_runs_that_none_of_the_workers_with_room_may_take() -> None:
    shop = with_an_end_and_a_ready_run(slots=2)
    shop.machine.table.line.paused = {"default": "a release"}
    assert [change.kind for change in shop.machine.decide(shop.now)] == [Kind.END]


def test_an_end_that_lets_the_next_of_a_bounded_queue_start_is_written_at_once() -> None:
    shop = Shop()
    shop.machine.table.line.max_running["default"] = 1
    hand = Hand(shop, "one", slots=3)
    hand.hello()
    shop.pump()
    hand.read()
    (session,) = shop.machine.sessions.by_id.values()
    session.queues = ("default", "mails")
    arrive(shop, 0)
    shop.pump()
    hand.read()
    hand.begin()
    hand.finish()
    arrive(shop, 1, queue="mails")
    decided = shop.machine.decide(shop.now)
    assert [change.kind for change in decided] == [Kind.END, Kind.ASSIGN]


def test_ends_that_fill_a_commit_are_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MAX_CHANGES", 2)
    shop = Shop()
    hand = Hand(shop, "one", slots=8)
    hand.hello()
    shop.pump()
    hand.read()
    for number in range(5):
        arrive(shop, number)
    shop.pump()
    hand.read()
    hand.begin()
    hand.finish()
    arrive(shop, 5)
    shop.boot += 50 * MILLISECOND
    written = []
    for _ in range(4):
        decided = shop.machine.decide(shop.now)
        written.append([change.kind for change in decided])
        shop.machine.settle(decided, [shop.commit(change) for change in decided], shop.now)
    end = Kind.END
    assert written == [[end, end], [end, end], [end, Kind.ASSIGN], []]


def test_a_run_whose_end_was_asked_for_just_now_waits_for_its_worker_all_the_same() -> None:
    shop, hand = with_a_run_that_has_begun()
    hand.cut()
    shop.boot += 2 * SECOND
    run = waiting(0).key
    answers = shop.end(run)
    shop.pump()
    assert answers == [RunState.CANCELLING]
    assert shop.state(run) is RunState.CANCELLING
    shop.boot += 28 * SECOND
    shop.pump()
    assert shop.state(run) is RunState.CANCELLED
