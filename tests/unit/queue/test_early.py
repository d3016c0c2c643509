"""Runs that are handed out before their time: which, to whom, and what else becomes of them."""

from typing import Any

import pytest
from unit.queue.lines import T, waiting
from unit.queue.shop import Hand, Shop, at_work, said, shop_with, welcomed

from sexton.v1 import job_pb2
from sexton_core.instants import SECOND
from sexton_core.runs import HAND_AHEAD_NS
from sexton_core.words import RunEvent, RunState
from sexton_queue import _wire
from sexton_queue.entries import Complete
from sexton_queue.line import GATHER_NS
from sexton_queue.sessions import SessionTimes
from sexton_runtime.kv.types import KeyValue, Outcome, TxnResult


def near(number: int = 0, **fields: Any) -> KeyValue:
    """A run that may begin in 200 ms after a shop's opening."""
    return waiting(number, delay=1_000 * SECOND + SECOND // 5, **fields)


def held_by(hand: Hand) -> int:
    assert hand.session
    return len(hand.shop.machine.sessions.by_id[hand.session].runs)


def test_a_run_is_handed_out_a_moment_before_its_time_and_says_when_it_may_begin() -> None:
    run = near()
    shop = shop_with(run)
    hand = welcomed(shop)
    (change,) = shop.machine.decide(shop.now)
    not_before = T + 1_000 * SECOND + SECOND // 5
    assert change.txn.not_before_ns == not_before - HAND_AHEAD_NS
    shop.machine.settle([change], [shop.commit(change)], shop.now)
    assert hand.stream is not None
    (response,) = _wire.pull_responses(hand.stream, 1, SessionTimes(), shop.now.mesh)
    (assignment,) = response.assignments
    wait = SECOND // 5
    assert wait <= assignment.start_in_ns <= wait + wait // 500
    record = shop.record(run.key)
    assert record.attempts[0].assign_time_ns < record.not_before_ns == not_before


def test_of_what_was_handed_out_before_its_time_nothing_is_to_be_done_at_its_time() -> None:
    shop = shop_with(near(), waiting(1, delay=1_010 * SECOND))
    welcomed(shop)
    shop.pump()
    mesh, _ = shop.machine.next_wake()
    other = T + 1_010 * SECOND
    assert other - HAND_AHEAD_NS <= mesh <= other


def test_what_is_sent_after_its_time_begins_at_once() -> None:
    shop = shop_with(near())
    hand = welcomed(shop)
    shop.pump()
    assert hand.stream is not None
    shop.boot += SECOND // 5
    (response,) = _wire.pull_responses(hand.stream, 1, SessionTimes(), shop.now.mesh)
    assert response.assignments[0].start_in_ns == 0


def test_what_was_assigned_at_its_time_waits_for_no_estimate_that_lags() -> None:
    shop = shop_with(waiting())
    hand = welcomed(shop)
    shop.pump()
    assert hand.stream is not None
    (response,) = _wire.pull_responses(hand.stream, 1, SessionTimes(), T - SECOND)
    assert response.assignments[0].start_in_ns == 0


def test_a_worker_that_does_not_say_that_it_keeps_runs_gets_them_at_their_time() -> None:
    shop = shop_with(near())
    hand = welcomed(shop, keeps=False)
    shop.pump()
    assert held_by(hand) == 0
    shop.boot += SECOND // 5
    shop.pump()
    assert held_by(hand) == 1


def test_while_mesh_time_is_slewed_runs_are_handed_out_at_their_time() -> None:
    shop = shop_with(near())
    hand = Hand(shop, "one")
    hand.hello()
    shop.machine.roster.hands_out_early = False
    shop.pump()
    hand.read()
    shop.pump()
    assert held_by(hand) == 0
    shop.machine.roster.hands_out_early = True
    shop.pump()
    assert held_by(hand) == 1


def test_half_of_a_workers_slots_are_left_to_what_is_ready() -> None:
    shop = shop_with(*(near(number) for number in range(8)))
    hand = at_work(shop, slots=5)
    assert held_by(hand) == 2
    single = at_work(shop, "two", slots=1)
    assert held_by(single) == 0
    shop.boot += SECOND
    shop.pump()
    assert (held_by(hand), held_by(single)) == (5, 1)


def test_what_is_ready_goes_before_what_will_be_though_that_has_a_higher_priority() -> None:
    early, ready = near(0, priority=5), waiting(1)
    shop = shop_with(early, ready)
    at_work(shop, slots=1)
    assert shop.state(ready.key) is RunState.RUNNING
    assert shop.state(early.key) is RunState.WAITING


@pytest.mark.parametrize(
    "fields",
    [
        {"exclusive": True},
        {"delivery": job_pb2.DELIVERY_AT_MOST_ONCE},
        {"retry": job_pb2.Retry(max_deliveries=1)},
        {"queue": "mails"},
        {"queue": "paused"},
    ],
)
def test_what_must_not_wait_with_a_worker_is_handed_out_at_its_time(fields: Any) -> None:
    run = near(**fields)
    shop = Shop()
    shop.put(run.key, run.value)
    shop.take_over()
    line = shop.machine.table.line
    line.max_running["mails"] = 10
    line.paused["paused"] = "by hand"
    hand = welcomed(shop, queues=("default", "mails", "paused"))
    shop.pump()
    assert held_by(hand) == 0
    line.paused.clear()
    shop.boot += SECOND // 5 + 1
    shop.pump()
    assert held_by(hand) == 1


def test_a_second_attempt_is_handed_out_at_its_time() -> None:
    shop = shop_with(near())
    hand = at_work(shop)
    assert held_by(hand) == 1
    ref = next(iter(hand.received))
    shop.machine.roster.returned(ref)
    shop.pump()
    assert held_by(hand) == 0
    shop.boot += SECOND // 5 + 1
    session = shop.machine.sessions.by_id[hand.session]
    shop.machine.roster.grant(session, 1)
    shop.pump()
    assert held_by(hand) == 1


@pytest.mark.parametrize("slots", [2, 4])
def test_what_the_store_finds_too_early_is_handed_out_at_its_time(slots: int) -> None:
    run = near()
    shop = shop_with(run)
    welcomed(shop, slots=slots)
    found = shop.machine.decide(shop.now)
    shop.machine.settle(found, [TxnResult(Outcome.TOO_EARLY, shop.revision)], shop.now)
    assert shop.machine.decide(shop.now) == []
    assert shop.machine.next_wake()[0] == T + 1_000 * SECOND + SECOND // 5
    shop.boot += SECOND // 5
    shop.pump()
    assert shop.state(run.key) is RunState.RUNNING


@pytest.mark.parametrize("terminate", [False, True])
def test_what_is_to_end_before_it_has_begun_ends_with_its_return(*, terminate: bool) -> None:
    run = near()
    shop = shop_with(run)
    hand = at_work(shop)
    shop.end(run.key, terminate=terminate)
    shop.pump()
    assert hand.stream is not None
    (stop,) = hand.stream.stops
    shop.machine.roster.returned(stop.ref)
    shop.pump()
    state = RunState.TERMINATED if terminate else RunState.CANCELLED
    assert shop.state(run.key) is state
    error = shop.record(run.key).error
    assert (error.kind, error.message) == (state.value, "asked")


def test_a_run_that_nobody_begins_says_so_when_it_is_given_up() -> None:
    run = waiting(retry=job_pb2.Retry(max_deliveries=2))
    shop = shop_with(run)
    hand = at_work(shop)
    for _ in range(2):
        (ref,) = hand.received
        hand.received.clear()
        shop.machine.roster.returned(ref)
        shop.pump()
        hand.read()
    assert shop.state(run.key) is RunState.FAILED
    error = shop.record(run.key).error
    assert (error.kind, error.message) == (
        "returned",
        "it was given back after the last of 2 deliveries",
    )


def test_an_attempt_starts_by_its_record_when_it_may_begin() -> None:
    run = near()
    shop = shop_with(run)
    hand = at_work(shop)
    (ref,) = hand.received
    shop.boot += SECOND
    end = said(RunEvent.SUCCEED)._replace(execution_ms=5)
    ask = Complete(ref.token, RunEvent.SUCCEED, end, lambda *_: None)
    shop.machine.table.ask_or_read(run.key, ask)
    shop.pump()
    record = shop.record(run.key)
    assert record.attempts[0].start_time_ns == record.not_before_ns


def test_runs_that_come_near_are_gathered() -> None:
    shop = Shop()
    runs = [waiting(number, delay=1_000 * SECOND + 6 * number * SECOND // 1_000 + SECOND // 2)
            for number in range(8)]  # fmt: skip
    for run in runs:
        shop.put(run.key, run.value)
    shop.take_over()
    at_work(shop, slots=100)
    first = T + 1_000 * SECOND + SECOND // 2 - HAND_AHEAD_NS
    mesh, _ = shop.machine.next_wake()
    assert mesh == first + GATHER_NS
    shop.boot += mesh - shop.now.mesh
    assert len(shop.machine.decide(shop.now)) == 8


def test_what_a_worker_gives_back_is_not_handed_out_before_its_time_again() -> None:
    run = near()
    shop = shop_with(run)
    hand = at_work(shop, slots=2)
    (ref,) = hand.received
    shop.machine.roster.returned(ref)
    shop.pump()
    shop.machine.roster.grant(shop.machine.sessions.by_id[hand.session], 1)
    shop.pump()
    assert held_by(hand) == 0
    shop.boot += SECOND // 5
    shop.pump()
    assert held_by(hand) == 1


@pytest.mark.parametrize("bound", [False, True])
def test_what_nobody_takes_before_its_time_is_not_remembered_after_it(*, bound: bool) -> None:
    shop = shop_with(*(near(number) for number in range(200)))
    line = shop.machine.table.line
    if bound:
        line.max_running["default"] = 1_000
    at_work(shop, slots=1_000 if bound else 1)
    assert len(line.early) == 200
    shop.boot += SECOND
    shop.pump()
    assert not line.early
    later = waiting(200, delay=1_001 * SECOND + SECOND // 10)
    shop.put(later.key, later.value)
    shop.machine.table.observe([shop.kv(later.key)], shop.now)
    shop.pump()
    assert len(line.early) == 1
    assert sum(len(keys) for near in line._near.values() for keys in near.values()) < 100
