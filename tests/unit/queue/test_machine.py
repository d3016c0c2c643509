"""The machine's answers, one situation each: what is committed, sent and told."""

from google.protobuf.duration_pb2 import Duration
from unit.queue.lines import T, waiting
from unit.queue.shop import Hand, at_work, said, shop_with, welcomed

from sexton.v1 import job_pb2, run_pb2
from sexton_core.instants import SECOND
from sexton_core.words import RunEvent, RunState
from sexton_queue.describe import describe
from sexton_queue.entries import Complete
from sexton_queue.streams import LeaderStream, Ref
from sexton_runtime.kv.types import Outcome, TxnResult


def test_an_assignment_is_sent_after_its_commit_with_its_revision_as_token() -> None:
    shop = shop_with(waiting())
    hand = welcomed(shop)
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
    hand = welcomed(shop)
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
    welcomed(shop)
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
    welcomed(shop)
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
    hand = welcomed(shop)
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
    welcomed(shop, slots=1_000)
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
    hand = welcomed(shop)
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


def test_an_assignment_of_which_nothing_is_known_counts_for_the_bound_of_its_queue() -> None:
    shop = shop_with(waiting(1), waiting(2))
    shop.machine.table.line.max_running["default"] = 1
    welcomed(shop)
    found = shop.machine.decide(shop.now)
    assert len(found) == 1
    lost = shop.commit(found[0])
    assert lost.outcome is Outcome.COMMITTED
    shop.machine.settle(found, None, shop.now)
    assert shop.machine.decide(shop.now) == []
    shop.read()
    assert shop.machine.table.line.running["default"] == 1
    assert shop.machine.decide(shop.now) == []


def test_an_assignment_that_was_never_made_gives_its_place_back() -> None:
    shop = shop_with(waiting(1), waiting(2))
    shop.machine.table.line.max_running["default"] = 1
    welcomed(shop)
    found = shop.machine.decide(shop.now)
    shop.machine.settle(found, None, shop.now)
    assert shop.machine.decide(shop.now) == []
    shop.read()
    assert shop.machine.table.line.running["default"] == 0
    assert len(shop.machine.decide(shop.now)) == 1
