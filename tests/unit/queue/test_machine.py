"""The machine's answers, one situation each: what is committed, sent and told."""

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from unit.queue.lines import T, waiting
from unit.queue.shop import Hand, Shop, said

from sexton.v1 import job_pb2, run_pb2
from sexton_core.instants import SECOND
from sexton_core.runs import HAND_AHEAD_NS
from sexton_core.words import RunEvent, RunState
from sexton_queue import _wire
from sexton_queue.describe import describe
from sexton_queue.entries import Complete
from sexton_queue.line import GATHER_NS
from sexton_queue.sessions import SessionTimes
from sexton_queue.streams import LeaderStream, Ref
from sexton_runtime.kv.types import KeyValue, Outcome, TxnResult


def shop_with(*runs: KeyValue) -> Shop:
    shop = Shop()
    for run in runs:
        shop.put(run.key, run.value)
    shop.take_over()
    return shop


def at_work(shop: Shop, name: str = "one", *, slots: int = 4) -> Hand:
    """A worker that has been welcomed and has got what there is."""
    hand = Hand(shop, name, slots=slots)
    hand.hello()
    shop.pump()
    hand.read()
    shop.pump()
    hand.read()
    return hand


def test_an_assignment_is_sent_after_its_commit_with_its_revision_as_token() -> None:
    shop = shop_with(waiting())
    hand = Hand(shop, "one")
    hand.hello()
    shop.pump()
    hand.read()
    found = shop.machine.decide(shop.now)
    assert len(found) == 1
    assert hand.stream is not None
    assert hand.stream.assignments == []
    result = shop.commit(found[0])
    shop.machine.settle(found, [result], shop.now)
    (assigned,) = hand.stream.assignments
    assert assigned.ref.token == result.revision
    assert assigned.number == 1


def test_a_hello_is_answered_after_what_is_outstanding() -> None:
    shop = shop_with(waiting())
    hand = at_work(shop, slots=1)
    hand.begin()
    hand.finish()
    found = shop.machine.decide(shop.now)
    hand.cut()
    hand.hello()
    assert shop.machine.decide(shop.now) == []
    assert hand.stream is not None
    assert hand.stream.welcome is None
    shop.machine.settle(found, [shop.commit(change) for change in found], shop.now)
    assert hand.stream.welcome is not None
    assert [ref.token for ref in hand.stream.welcome.revoked] == [ref.token for ref in hand.known]


def test_leaders_hear_of_every_end() -> None:
    shop = shop_with(waiting())
    leader = LeaderStream(lambda: None, 0, 7)
    shop.machine.table.follow(leader)
    hand = at_work(shop)
    hand.begin()
    hand.finish()
    shop.pump()
    assert [notice.state for notice in leader.settled] == [RunState.SUCCEEDED]


def test_a_repeated_completion_is_answered_with_what_was_recorded() -> None:
    run = waiting()
    shop = shop_with(run)
    hand = at_work(shop)
    hand.begin()
    (ref,) = hand.executing
    hand.finish()
    shop.pump()
    answers: list[tuple[bool, RunState | None]] = []

    def ask(token: int, event: RunEvent) -> None:
        ask = Complete(token, event, said(event), lambda *answer: answers.append(answer))
        shop.machine.table.ask_or_read(ref.handle, ask)
        shop.pump()

    ask(ref.token, RunEvent.FAIL)
    ask(ref.token + 1, RunEvent.FAIL)
    assert answers == [(True, RunState.SUCCEEDED), (False, RunState.SUCCEEDED)]
    assert shop.state(run.key) is RunState.SUCCEEDED


def test_of_a_completion_and_a_cancel_request_the_first_to_arrive_counts() -> None:
    run = waiting()
    shop = shop_with(run)
    hand = at_work(shop)
    hand.begin()
    hand.finish()
    answers = shop.end(run.key)
    shop.pump()
    assert shop.state(run.key) is RunState.SUCCEEDED
    assert answers == [RunState.SUCCEEDED]


def test_a_cancel_request_during_the_assignment_s_commit_follows_it() -> None:
    run = waiting()
    shop = shop_with(run)
    hand = Hand(shop, "one")
    hand.hello()
    shop.pump()
    hand.read()
    found = shop.machine.decide(shop.now)
    answers = shop.end(run.key)
    shop.machine.settle(found, [shop.commit(change) for change in found], shop.now)
    shop.pump()
    assert answers == [RunState.CANCELLING]
    assert hand.stream is not None
    (assigned,), (stop,) = hand.stream.assignments, hand.stream.stops
    assert stop.ref == assigned.ref


def test_a_full_store_takes_ends_and_no_assignments() -> None:
    runs = [waiting(number) for number in range(2)]
    shop = shop_with(*runs)
    hand = Hand(shop, "one")
    hand.hello()
    shop.pump()
    hand.read()
    found = shop.machine.decide(shop.now)
    assert all(not change.txn.use_reserve for change in found)
    full = [TxnResult(Outcome.NO_SPACE, shop.revision)] * len(found)
    shop.machine.settle(found, full, shop.now)
    assert shop.machine.decide(shop.now) == []
    shop.boot += SECOND
    shop.end(runs[0].key)
    found = shop.machine.decide(shop.now)
    assert found[0].txn.use_reserve
    shop.machine.settle(found, [shop.commit(change) for change in found], shop.now)
    assert shop.state(runs[0].key) is RunState.CANCELLED
    assert shop.state(runs[1].key) is RunState.RUNNING


def test_what_the_store_finds_too_early_is_tried_again_soon() -> None:
    run = waiting()
    shop = shop_with(run)
    hand = Hand(shop, "one")
    hand.hello()
    shop.pump()
    hand.read()
    found = shop.machine.decide(shop.now)
    shop.machine.settle(found, [TxnResult(Outcome.TOO_EARLY, shop.revision)], shop.now)
    assert shop.machine.decide(shop.now) == []
    assert shop.machine.next_wake()[0] - shop.now.mesh < SECOND
    shop.boot += SECOND
    shop.pump()
    assert shop.state(run.key) is RunState.RUNNING


def test_a_loss_is_no_failure_where_nothing_had_begun() -> None:
    for began in (False, True):
        run = waiting()
        shop = shop_with(run)
        hand = at_work(shop)
        if began:
            hand.begin()
        hand.beat()
        hand.cut()
        shop.boot += 2 * SECOND
        shop.pump()
        record = shop.record(run.key)
        assert record.failures == (1 if began else 0)
        assert record.attempts[0].state == run_pb2.ATTEMPT_STATE_LOST
        assert shop.state(run.key) is (RunState.RETRYING if began else RunState.WAITING)


def test_an_attempt_may_be_given_back_after_a_takeover() -> None:
    run = waiting()
    shop = shop_with(run)
    hand = at_work(shop)
    hand.stream = None
    shop.take_over()
    hand.hello()
    shop.pump()
    hand.read()
    shop.pump()
    hand.read()
    (ref,) = hand.received
    shop.machine.roster.returned(ref)
    shop.machine.table.line.max_running["default"] = 0
    shop.pump()
    assert shop.state(run.key) is RunState.WAITING


def test_the_silence_of_a_worker_counts_from_the_takeover() -> None:
    shop = shop_with()
    at_work(shop)
    shop.take_over()
    shop.boot += 3 * SECOND
    (session,) = describe(shop.machine, shop.owner, shop.now).sessions
    assert session.silent_ms == 3_000


def test_the_time_that_is_left_goes_with_the_assignment() -> None:
    run = waiting(
        timeout=Duration(seconds=100),
        deadline=Duration(seconds=1_060),
        start_within=Duration(seconds=1_030),
    )
    shop = shop_with(run)
    hand = Hand(shop, "one")
    hand.hello()
    shop.pump()
    hand.read()
    shop.pump()
    assert hand.stream is not None
    (assigned,) = hand.stream.assignments
    assert shop.now.mesh == T + 1_000 * SECOND
    assert (assigned.timeout, assigned.start_timeout) == (60 * SECOND, 30 * SECOND)


def test_a_lost_run_that_was_to_be_delivered_once_is_a_dead_letter() -> None:
    run = waiting(delivery=job_pb2.DELIVERY_AT_MOST_ONCE)
    shop = shop_with(run)
    hand = at_work(shop)
    hand.begin()
    hand.cut()
    shop.boot += 29 * SECOND
    shop.pump()
    assert shop.state(run.key) is RunState.RUNNING
    shop.boot += SECOND
    shop.pump()
    assert shop.state(run.key) is RunState.LOST
    assert [key for key in shop.kvs if key.startswith(b"dead/")]


def test_a_new_owner_gives_each_session_its_full_time() -> None:
    run = waiting()
    shop = shop_with(run)
    hand = at_work(shop)
    hand.begin()
    shop.boot += 29 * SECOND
    shop.take_over()
    shop.boot += 29 * SECOND
    shop.pump()
    assert shop.state(run.key) is RunState.RUNNING
    shop.boot += SECOND
    shop.pump()
    assert shop.state(run.key) is RunState.RETRYING


def test_many_runs_share_a_commit_within_its_bounds() -> None:
    shop = shop_with(*(waiting(number) for number in range(900)))
    hand = Hand(shop, "one", slots=1_000)
    hand.hello()
    shop.pump()
    hand.read()
    found = shop.machine.decide(shop.now)
    assert len(found) == 400
    assert {change.txn.compares[0].key for change in found} == {
        change.entry.key for change in found if change.entry
    }


def test_a_report_of_a_stranger_moves_nothing() -> None:
    run = waiting()
    shop = shop_with(run)
    hand = at_work(shop)
    (ref,) = hand.received
    other = Hand(shop, "two")
    other.hello()
    shop.pump()
    assert other.stream is not None
    shop.machine.roster.started(other.stream, ref, shop.now)
    (stop,) = other.stream.stops
    assert (stop.ref, stop.terminate) == (Ref(run.key, ref.token), True)
    assert not shop.machine.table.by_key[run.key].run.started


def test_a_draining_worker_gets_nothing_more_until_it_comes_anew() -> None:
    run = waiting()
    shop = shop_with(run)
    hand = Hand(shop, "one")
    hand.hello()
    shop.pump()
    hand.read()
    session = shop.machine.sessions.by_id[hand.session]
    found = shop.machine.decide(shop.now)
    shop.machine.roster.drain(session)
    # Nor does an assignment that came to nothing leave any room behind.
    shop.machine.settle(found, [TxnResult(Outcome.TOO_EARLY, shop.revision)], shop.now)
    shop.boot += SECOND
    shop.machine.roster.grant(session, 1)
    shop.pump()
    assert shop.state(run.key) is RunState.WAITING
    hand.cut()
    hand.hello()
    shop.pump()
    hand.read()
    shop.pump()
    assert shop.state(run.key) is RunState.RUNNING


# Before their time


def near(number: int = 0, **fields: Any) -> KeyValue:
    """A run that may begin in 200 ms after a shop's opening."""
    return waiting(number, delay=1_000 * SECOND + SECOND // 5, **fields)


def held_by(hand: Hand) -> int:
    assert hand.session
    return len(hand.shop.machine.sessions.by_id[hand.session].runs)


def test_a_run_is_handed_out_a_moment_before_its_time_and_says_when_it_may_begin() -> None:
    run = near()
    shop = shop_with(run)
    hand = Hand(shop, "one")
    hand.hello()
    shop.pump()
    hand.read()
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


def test_what_is_sent_after_its_time_begins_at_once() -> None:
    shop = shop_with(near())
    hand = Hand(shop, "one")
    hand.hello()
    shop.pump()
    hand.read()
    shop.pump()
    assert hand.stream is not None
    shop.boot += SECOND // 5
    (response,) = _wire.pull_responses(hand.stream, 1, SessionTimes(), shop.now.mesh)
    assert response.assignments[0].start_in_ns == 0


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
    hand = Hand(shop, "one", queues=("default", "mails", "paused"))
    hand.hello()
    shop.pump()
    hand.read()
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


def test_what_the_store_finds_too_early_is_handed_out_at_its_time() -> None:
    run = near()
    shop = shop_with(run)
    hand = Hand(shop, "one")
    hand.hello()
    shop.pump()
    hand.read()
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
    assert shop.state(run.key) is (RunState.TERMINATED if terminate else RunState.CANCELLED)


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
