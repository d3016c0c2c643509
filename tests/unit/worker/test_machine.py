"""The worker's machine: what it holds, what it says, and when it stops trusting its session."""

from __future__ import annotations

import pytest
from unit.worker.rig import FAILURE, START, SUCCESS, Rig, ref

from sexton_core.instants import MAX_INSTANT, MILLISECOND, SECOND
from sexton_worker.contract import Ended, Ref
from sexton_worker.messages import Action, EndState, Welcome

# Credits


def test_credits_are_the_free_slots_and_come_back_with_the_completion(rig: Rig) -> None:
    rig.connect()
    assert rig.take().credits == 3
    rig.assign(1)
    rig.assign(2)
    assert rig.commands() == [(Action.BEGIN, 1), (Action.BEGIN, 2)]
    message = rig.take()
    assert (message.credits, message.started) == (0, (ref(1), ref(2)))
    rig.end(1)
    message = rig.take()
    assert message.credits == 1
    assert [completion.ref for completion in message.completions] == [ref(1)]


def test_more_than_was_granted_is_given_back() -> None:
    rig = Rig(slots=1)
    rig.connect()
    rig.take()
    rig.assign(1)
    rig.assign(2)
    assert rig.take().returned == (ref(2),)
    assert rig.commands() == [(Action.BEGIN, 1)]


def test_a_quick_attempt_is_reported_once(connected: Rig) -> None:
    connected.assign(1)
    connected.end(1)
    message = connected.take()
    assert message.started == ()
    assert [completion.ref.token for completion in message.completions] == [1]


# Tokens


def test_an_attempt_is_held_from_its_begin_until_it_is_acknowledged(connected: Rig) -> None:
    for token in (1, 2, 3):
        connected.assign(token)
    connected.end(1)
    connected.end(2)
    connected.take()
    connected.machine.acknowledged(ref(1), accepted=True)
    assert connected.connect() == [ref(2), ref(3)]
    assert [completion.ref.token for completion in connected.take().completions] == [2]


def test_an_attempt_begins_once_however_often_it_is_sent(connected: Rig) -> None:
    connected.assign(1)
    connected.assign(1)
    connected.end(1)
    connected.assign(1)
    assert connected.commands() == [(Action.BEGIN, 1)]
    assert connected.machine.counters.repeated == 2


def test_an_attempt_of_another_session_is_dropped(connected: Rig) -> None:
    connected.assign(1, session="s0")
    assert connected.commands() == []
    assert connected.machine.hello(connected.now) == []
    assert connected.machine.counters.dropped == 1


def test_a_refused_completion_is_forgotten(connected: Rig) -> None:
    connected.assign(1)
    connected.end(1)
    connected.take()
    connected.machine.acknowledged(ref(1), accepted=False)
    assert connected.connect() == []
    assert connected.machine.counters.refused == 1


def test_an_answer_to_another_attempt_of_the_run_forgets_nothing(connected: Rig) -> None:
    connected.assign(1)
    connected.machine.acknowledged(ref(1), accepted=True)  # it has not ended
    connected.end(1)
    connected.machine.acknowledged(Ref(b"other", 1), accepted=True)
    assert connected.connect() == [ref(1)]


# Reconnecting


def test_what_was_revoked_is_killed_and_never_reported(connected: Rig) -> None:
    connected.assign(1)
    connected.assign(2)
    connected.end(2)
    connected.commands()
    connected.connect(revoked=(ref(1), ref(2)))
    assert connected.commands() == [(Action.KILL, 1)]
    assert connected.take().completions == []
    connected.end(1)
    message = connected.take()
    assert (message.completions, message.credits) == ([], 1)
    assert connected.connect() == []


def test_a_lower_owner_is_not_obeyed(connected: Rig) -> None:
    connected.connect(owner=6)
    assert connected.machine.hang_up == "an older owner answered"
    assert connected.machine.take(connected.now) is None


def test_another_session_gets_no_credits_before_all_of_the_old_one_is_dead(
    connected: Rig,
) -> None:
    connected.assign(1)
    connected.assign(2)
    connected.end(2)
    connected.commands()
    connected.connect("s2")
    assert connected.commands() == [(Action.KILL, 1)]
    message = connected.take()
    assert (message.credits, message.completions) == (0, [])
    connected.end(1)
    assert connected.take().credits == 3
    assert connected.machine.exit_at == MAX_INSTANT


def test_an_answer_that_comes_after_its_session_is_over_is_not_relied_on(rig: Rig) -> None:
    rig.machine.hello(rig.now)
    rig.passes(24)
    rig.machine.welcome(Welcome("s1", 7, 30 * SECOND, SECOND, ()), rig.now)
    assert rig.machine.hang_up


@pytest.mark.parametrize(("session_time", "heartbeat"), [(0, SECOND), (-1, SECOND), (30, 0)])
def test_times_that_cannot_be_kept_are_refused(rig: Rig, session_time: int, heartbeat: int) -> None:
    rig.machine.hello(rig.now)
    rig.machine.welcome(Welcome("s1", 7, session_time, heartbeat, ()), rig.now)
    assert rig.machine.hang_up


# The session's deadline


def test_the_session_is_trusted_from_the_sending_of_the_answered_heartbeat(rig: Rig) -> None:
    rig.connect()
    assert rig.machine.end_at == START + 24 * SECOND
    assert rig.take().heartbeat == 1
    rig.passes(1)
    assert rig.take().heartbeat == 2
    rig.passes(0.5)
    assert rig.machine.answered(2, rig.now)
    assert rig.machine.end_at == START + 25 * SECOND
    assert not rig.machine.answered(1, rig.now)
    assert not rig.machine.answered(99, rig.now)


def test_heartbeats_go_out_at_their_interval_also_while_draining(connected: Rig) -> None:
    connected.assign(1)
    connected.take()
    connected.machine.drain()
    message = connected.take()
    assert (message.draining, message.heartbeat, message.closing) == (True, 0, False)
    assert connected.machine.take(connected.now) is None
    connected.passes(1)
    assert connected.take().heartbeat == 2


def test_a_lost_session_ends_everything_before_a_new_one_is_asked_for(connected: Rig) -> None:
    connected.assign(1)
    connected.assign(2)
    connected.end(2)
    connected.commands()
    connected.machine.disconnected()
    connected.passes(24)
    assert connected.commands() == [(Action.KILL, 1)]
    assert connected.machine.hang_up
    assert not connected.may_connect()
    connected.assign(3)
    assert connected.commands() == []
    connected.end(1, FAILURE)
    assert connected.may_connect()
    assert connected.machine.session == ""
    assert connected.connect("s2") == []
    assert connected.take().credits == 3


def test_nothing_begins_after_the_deadline_also_where_nobody_woke_up(connected: Rig) -> None:
    connected.now += 24 * SECOND
    connected.assign(1)
    assert connected.commands() == []


def test_what_outlives_a_lost_session_ends_the_process(connected: Rig) -> None:
    connected.assign(1)
    connected.passes(24)
    assert connected.fatal() == ""
    connected.passes(2.999)
    assert connected.fatal() == ""
    connected.passes(0.001)
    assert connected.fatal() == "attempts of a lost session did not end: 1"


def test_after_a_long_sleep_what_was_killed_has_a_moment_to_be_found_dead(connected: Rig) -> None:
    connected.assign(1)
    connected.passes(3_600)
    assert connected.fatal() == ""
    connected.passes(0.5)
    connected.end(1, FAILURE)
    connected.passes(10)
    assert connected.fatal() == ""
    assert connected.may_connect()


def test_an_owner_that_answers_nothing_is_left_but_the_session_kept(connected: Rig) -> None:
    connected.assign(1)
    connected.passes(4)
    assert connected.machine.hang_up == "the owner answers no heartbeats"
    assert connected.connect() == [ref(1)]
    assert connected.machine.session == "s1"


# Ends


def completion_of(rig: Rig, ended: Ended) -> tuple[EndState, str, str]:
    rig.end(1, ended)
    (completion,) = rig.take().completions
    return completion.state, completion.ended.kind, completion.ended.message


def test_a_failure_is_reported_as_it_is(connected: Rig) -> None:
    connected.assign(1)
    assert completion_of(connected, FAILURE) == (
        EndState.FAILED, "exit 3", "it ended with exit status 3",
    )  # fmt: skip


def test_the_timeout_asks_and_then_kills(connected: Rig) -> None:
    connected.assign(1, timeout=60 * SECOND)
    connected.commands()
    for _ in range(60):
        heartbeat = connected.take().heartbeat if connected.machine.has_more else 0
        message = connected.machine.take(connected.now)
        connected.machine.answered(
            heartbeat or (message.heartbeat if message else 1), connected.now
        )
        connected.passes(1)
    assert connected.commands() == [(Action.CANCEL, 1)]
    connected.passes(3)
    connected.connect()
    connected.passes(7)
    assert connected.commands() == [(Action.KILL, 1)]
    connected.connect()
    assert completion_of(connected, SUCCESS) == (
        EndState.TIMED_OUT, "timeout", "it took longer than 60 s",
    )  # fmt: skip


def test_a_cancel_asks_and_then_kills(connected: Rig) -> None:
    connected.assign(1)
    connected.commands()
    connected.cancel(1)
    connected.cancel(1)
    assert connected.commands() == [(Action.CANCEL, 1)]
    connected.passes(3)
    connected.connect()
    connected.passes(7)
    assert connected.commands() == [(Action.KILL, 1)]
    connected.connect()
    assert completion_of(connected, Ended.failure("signal 9", "it was ended by signal 9")) == (
        EndState.CANCELLED, "cancelled", "by hand (signal 9: it was ended by signal 9)",
    )  # fmt: skip


def test_a_cancel_without_a_reason_says_how_the_attempt_ended(connected: Rig) -> None:
    connected.assign(1)
    connected.cancel(1, reason="")
    assert completion_of(connected, Ended.failure("signal 15", "it was ended by signal 15")) == (
        EndState.CANCELLED, "cancelled", "signal 15: it was ended by signal 15",
    )  # fmt: skip


def test_a_terminate_kills_at_once_also_after_a_cancel(connected: Rig) -> None:
    connected.assign(1)
    connected.cancel(1)
    connected.commands()
    connected.cancel(1, terminate=True)
    assert connected.commands() == [(Action.KILL, 1)]
    assert completion_of(connected, FAILURE)[:2] == (EndState.TERMINATED, "terminated")


def test_success_stands_where_it_came_before_or_after_the_request(connected: Rig) -> None:
    connected.assign(1)
    connected.cancel(1)
    assert completion_of(connected, SUCCESS)[0] is EndState.SUCCEEDED
    connected.assign(2)
    connected.end(2)
    connected.cancel(2, terminate=True)
    assert connected.take().completions[0].state is EndState.SUCCEEDED


def test_requests_for_what_is_not_held_are_passed_over(connected: Rig) -> None:
    connected.commands()
    connected.cancel(1)
    connected.end(1)
    connected.machine.progressed(1, 0.5, "half")
    assert connected.commands() == []


# Draining


def test_a_drain_takes_nothing_on_and_closes_when_all_is_acknowledged(connected: Rig) -> None:
    connected.assign(1)
    connected.take()
    connected.machine.drain()
    connected.assign(2)
    message = connected.take()
    assert (message.returned, message.credits, message.closing) == ((ref(2),), 0, False)
    connected.end(1)
    message = connected.take()
    assert (message.credits, message.closing) == (0, False)
    connected.machine.acknowledged(ref(1), accepted=True)
    assert connected.take().closing


def test_what_is_given_back_may_come_again(connected: Rig) -> None:
    connected.machine.drain()
    connected.assign(1)
    connected.connect()
    connected.assign(1)
    assert connected.take().returned == (ref(1),)
    assert connected.machine.counters.repeated == 0


def test_giving_up_reports_what_succeeds_and_nothing_else(connected: Rig) -> None:
    connected.assign(1)
    connected.assign(2)
    connected.take()
    connected.commands()
    connected.machine.drain()
    connected.machine.give_up(connected.now)
    assert connected.commands() == [(Action.CANCEL, 1), (Action.CANCEL, 2)]
    connected.end(1, FAILURE)
    connected.end(2, SUCCESS)
    (completion,) = connected.take().completions
    assert completion.ref == ref(2)
    assert not connected.machine.idle
    connected.machine.abandon()
    assert connected.machine.idle


# Bounds


def test_a_message_takes_no_more_completions_than_fit() -> None:
    rig = Rig(slots=100)
    rig.connect()
    rig.take()
    for token in range(1, 101):
        rig.assign(token)
        rig.end(token, Ended(succeeded=True, result_json="x" * 64 * 1024))
    sizes = []
    while rig.machine.has_more:
        sizes.append(len(rig.take().completions))
    assert sum(sizes) == 100
    assert max(sizes) == 16


def test_timers_of_attempts_that_have_ended_do_not_add_up() -> None:
    rig = Rig(slots=1)
    rig.connect()
    rig.take()
    for token in range(1, 5_001):
        rig.assign(token)
        rig.end(token)
        rig.take()
        rig.machine.acknowledged(ref(token), accepted=True)
    assert len(rig.machine._timers) <= 1_001
    assert rig.machine.idle


def test_progress_rides_with_the_next_message(connected: Rig) -> None:
    connected.assign(1)
    connected.take()
    connected.machine.progressed(1, 0.25, "a quarter")
    connected.machine.progressed(1, 0.5, "half")
    assert connected.machine.take(connected.now) is None
    connected.passes(1)
    assert connected.take().progress == ((ref(1), 0.5, "half"),)


def test_the_machine_says_when_it_is_to_be_woken(connected: Rig) -> None:
    assert connected.machine.next_wake() == START + 1 * SECOND
    connected.assign(1, timeout=200 * MILLISECOND)
    assert connected.machine.next_wake() == START + 200 * MILLISECOND
