"""The run state machine against its table, and what its guards choose."""

import pytest

from sexton_core.errors import IllegalTransition
from sexton_core.instants import HOUR, MINUTE, SECOND
from sexton_core.runs import (
    ENDED,
    HAND_AHEAD_NS,
    LIVE,
    STATES,
    TRANSITIONS,
    WITH_WORKER,
    Retry,
    Run,
    RunPolicy,
    apply,
    assign,
    assigned,
)
from sexton_core.words import Delivery, RunEvent, RunState

NOW = 1_000 * SECOND


def run_in(state: RunState, policy: RunPolicy | None = None, *, started: bool = False) -> Run:
    held = state in WITH_WORKER
    return Run(
        run_id="t20261129T030000Z-abcdefgh",
        policy=policy or RunPolicy(),
        created_at=NOW,
        due=NOW,
        not_before=NOW,
        state=state,
        attempts=1 if held else 0,
        token=7 if held else 0,
        session="s1" if held else "",
        started=started,
        ever_started=started,
    )


PATIENT = RunPolicy(deadline_ns=HOUR, start_within_ns=HOUR)


@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize("event", [event for event in RunEvent if event is not RunEvent.ASSIGN])
def test_every_pair_moves_as_the_table_says_or_is_refused(state: RunState, event: RunEvent) -> None:
    run = run_in(state, PATIENT)
    targets = TRANSITIONS.get((state, event))
    if targets is None:
        with pytest.raises(IllegalTransition) as refused:
            apply(run, event, NOW + 2 * HOUR)
        assert run.run_id in str(refused.value)
        assert f"is {state}" in str(refused.value)
    else:
        assert apply(run, event, NOW + 2 * HOUR).state in targets


@pytest.mark.parametrize("state", RunState)
def test_only_a_run_in_line_is_assigned(state: RunState) -> None:
    run = run_in(state)
    if state in (RunState.WAITING, RunState.RETRYING):
        taken = assign(run, "s2", NOW)
        assert (taken.state, taken.attempts, taken.session) == (RunState.RUNNING, 1, "s2")
    else:
        with pytest.raises(IllegalTransition, match="it is waiting or retrying"):
            assign(run, "s2", NOW)


def test_from_creation_exactly_what_the_table_lists_can_happen() -> None:
    once = Retry(max_attempts=1)
    policies = [
        RunPolicy(deadline_ns=HOUR, start_within_ns=HOUR, max_deliveries=3),
        RunPolicy(deadline_ns=HOUR, start_within_ns=HOUR, max_deliveries=3, retry=once),
        RunPolicy(delivery=Delivery.AT_MOST_ONCE, max_deliveries=2),
    ]
    waiting = [run_in(RunState.WAITING)._replace(policy=policy) for policy in policies]
    seen, happened = set(waiting), set()
    while waiting:
        run = waiting.pop()
        for event in RunEvent:
            now = NOW + HOUR if event in (RunEvent.EXPIRE, RunEvent.DEADLINE) else run.not_before
            try:
                moved = (
                    assign(run, "s1", now) if event is RunEvent.ASSIGN else apply(run, event, now)
                )
            except IllegalTransition:
                continue
            happened.add((run.state, event, moved.state))
            if moved not in seen:
                seen.add(moved)
                waiting.append(moved)
    assert happened == {
        (*pair, target) for pair, targets in TRANSITIONS.items() for target in targets
    }


def test_an_ended_run_takes_no_event_at_all() -> None:
    assert {RunState.SUCCEEDED, RunState.LOST, RunState.EXPIRED} < ENDED
    assert not [pair for pair in TRANSITIONS if pair[0] in ENDED]
    assert LIVE | ENDED == set(RunState) == set(STATES)


def test_every_state_that_can_be_left_can_reach_an_end() -> None:
    ending = set(ENDED)
    for _ in RunState:
        ending |= {
            state for (state, _), targets in TRANSITIONS.items() if ending.intersection(targets)
        }
    assert ending == set(RunState)


def test_every_live_state_has_a_timer_that_moves_it_on() -> None:
    assert all(STATES[state].timers for state in LIVE)
    assert not any(STATES[state].timers for state in ENDED)


def test_no_way_leads_from_a_cancel_request_back_into_the_line() -> None:
    for state in (RunState.CANCELLING, RunState.TERMINATING):
        for event in RunEvent:
            targets = TRANSITIONS.get((state, event), ())
            assert not {RunState.WAITING, RunState.RETRYING, RunState.RUNNING}.intersection(targets)


def test_a_failure_is_retried_after_its_backoff_until_attempts_are_used_up() -> None:
    policy = RunPolicy(retry=Retry(max_attempts=3, initial_backoff_ns=SECOND, jitter=0.0))
    run = run_in(RunState.WAITING, policy)
    waits = []
    for _ in range(3):
        run = apply(assign(run, "s1", run.not_before), RunEvent.FAIL, run.not_before)
        waits.append(run.not_before - NOW)
    assert run.state is RunState.FAILED
    assert (run.attempts, run.failures) == (3, 3)
    assert waits == [SECOND, 3 * SECOND, 3 * SECOND]


def test_an_attempt_is_not_assigned_before_its_backoff_is_over() -> None:
    policy = RunPolicy(retry=Retry(jitter=0.0))
    run = apply(run_in(RunState.RUNNING, policy), RunEvent.FAIL, NOW)
    with pytest.raises(IllegalTransition, match="not-before"):
        assign(run, "s1", NOW + SECOND - 1)
    assert assign(run, "s1", NOW + SECOND).attempts == 2


def test_a_failure_for_good_uses_no_attempt_that_is_left() -> None:
    run = apply(run_in(RunState.RUNNING), RunEvent.FAIL_FOR_GOOD, NOW)
    assert (run.state, run.failures, run.completed) == (RunState.FAILED, 1, True)


def test_what_asks_to_be_left_alone_is_heeded_between_backoff_and_max_backoff() -> None:
    policy = RunPolicy(
        retry=Retry(jitter=0.0, initial_backoff_ns=2 * SECOND, max_backoff_ns=MINUTE)
    )
    run = run_in(RunState.RUNNING, policy)
    waits = [
        apply(run, RunEvent.FAIL, NOW, retry_after=asked).not_before - NOW
        for asked in (SECOND, 30 * SECOND, HOUR)
    ]
    assert waits == [2 * SECOND, 30 * SECOND, MINUTE]


def test_a_lost_attempt_that_had_begun_is_a_failure_and_starts_elsewhere_at_once() -> None:
    run = apply(run_in(RunState.RUNNING, started=True), RunEvent.LOSE, NOW + SECOND)
    assert (run.state, run.failures, run.not_before) == (RunState.RETRYING, 1, NOW + SECOND)
    assert (run.token, run.session) == (0, "")


def test_a_lost_attempt_that_had_not_begun_is_only_a_delivery() -> None:
    run = apply(run_in(RunState.RUNNING), RunEvent.LOSE, NOW + SECOND)
    assert (run.state, run.attempts, run.failures) == (RunState.WAITING, 1, 0)


def test_poison_that_kills_every_worker_is_a_dead_letter_after_ten_deliveries() -> None:
    run = run_in(RunState.WAITING, RunPolicy(retry=Retry(max_attempts=1_000)))
    while not run.ended:
        run = apply(assign(run, "s1", NOW), RunEvent.LOSE, NOW)
    assert (run.state, run.attempts, run.failures) == (RunState.FAILED, 10, 0)
    assert STATES[run.state].dead_letter


def test_a_run_passed_around_unbegun_ends_after_ten_deliveries() -> None:
    run = run_in(RunState.WAITING)
    while not run.ended:
        run = apply(assign(run, "s1", NOW), RunEvent.GIVE_BACK, NOW)
    assert (run.state, run.attempts) == (RunState.FAILED, 10)


def test_at_most_once_a_lost_run_is_lost_begun_or_not() -> None:
    policy = RunPolicy(delivery=Delivery.AT_MOST_ONCE)
    for started in (False, True):
        run = apply(run_in(RunState.RUNNING, policy, started=started), RunEvent.LOSE, NOW)
        assert run.state is RunState.LOST


def test_at_most_once_a_failure_is_never_retried() -> None:
    policy = RunPolicy(delivery=Delivery.AT_MOST_ONCE)
    assert apply(run_in(RunState.RUNNING, policy), RunEvent.FAIL, NOW).state is RunState.FAILED


def test_at_most_once_a_run_given_back_unbegun_may_still_start() -> None:
    policy = RunPolicy(delivery=Delivery.AT_MOST_ONCE)
    run = apply(run_in(RunState.RUNNING, policy), RunEvent.GIVE_BACK, NOW)
    assert run.state is RunState.WAITING


def test_a_run_not_started_in_time_expires_and_not_a_moment_earlier() -> None:
    run = run_in(RunState.WAITING, RunPolicy(start_within_ns=MINUTE))
    with pytest.raises(IllegalTransition, match="within its time"):
        apply(run, RunEvent.EXPIRE, NOW + MINUTE - 1)
    assert apply(run, RunEvent.EXPIRE, NOW + MINUTE).state is RunState.EXPIRED


def test_a_run_that_has_started_once_no_longer_expires() -> None:
    run = run_in(RunState.RUNNING, RunPolicy(start_within_ns=MINUTE))
    run = apply(run, RunEvent.START, NOW)
    run = apply(run, RunEvent.FAIL, NOW)
    assert run.state is RunState.RETRYING
    assert run.expires_at is None


def test_a_retry_that_could_only_begin_after_the_deadline_is_not_waited_for() -> None:
    policy = RunPolicy(deadline_ns=MINUTE, retry=Retry(jitter=0.0))
    run = run_in(RunState.RUNNING, policy)
    assert apply(run, RunEvent.FAIL, NOW + 59 * SECOND - 1).state is RunState.RETRYING
    assert apply(run, RunEvent.FAIL, NOW + 59 * SECOND).state is RunState.FAILED


def test_a_deadline_ends_a_waiting_run_and_has_a_running_one_killed() -> None:
    policy = RunPolicy(deadline_ns=MINUTE)
    assert apply(run_in(RunState.WAITING, policy), RunEvent.DEADLINE, NOW + MINUTE).state is (
        RunState.TIMED_OUT
    )
    killed = apply(run_in(RunState.RUNNING, policy), RunEvent.DEADLINE, NOW + MINUTE)
    assert killed.state is RunState.TERMINATING
    assert apply(killed, RunEvent.STOP, NOW + MINUTE).state is RunState.TIMED_OUT


def test_terminating_ends_only_by_a_report_of_death_or_the_end_of_the_session() -> None:
    run = apply(run_in(RunState.RUNNING), RunEvent.TERMINATE, NOW)
    assert run.state is RunState.TERMINATING
    assert apply(run, RunEvent.STOP, NOW).state is RunState.TERMINATED
    assert apply(run, RunEvent.LOSE, NOW).state is RunState.TERMINATED


def test_a_token_is_noted_once_per_attempt() -> None:
    run = assigned(assign(run_in(RunState.WAITING), "s1", NOW), 42)
    assert run.token == 42
    with pytest.raises(AssertionError):
        assigned(run, 43)


# Before its time


@pytest.mark.parametrize(
    ("policy", "attempts", "early"),
    [
        (RunPolicy(), 0, True),
        (RunPolicy(), 1, False),
        (RunPolicy(exclusive=True), 0, False),
        (RunPolicy(delivery=Delivery.AT_MOST_ONCE), 0, False),
        (RunPolicy(max_deliveries=1), 0, False),
    ],
)
def test_a_first_attempt_that_may_be_lost_is_assigned_a_moment_before_its_time(
    policy: RunPolicy, attempts: int, *, early: bool
) -> None:
    run = run_in(RunState.WAITING, policy)._replace(attempts=attempts)
    assert run.assignable_at == NOW - HAND_AHEAD_NS * early
    assert assign(run, "s1", run.assignable_at).not_before == NOW
    with pytest.raises(IllegalTransition, match="not-before"):
        assign(run, "s1", run.assignable_at - 1)


@pytest.mark.parametrize("event", [RunEvent.GIVE_BACK, RunEvent.LOSE])
def test_what_comes_back_before_its_time_may_still_not_begin_earlier(event: RunEvent) -> None:
    run = assigned(assign(run_in(RunState.WAITING), "s1", NOW - HAND_AHEAD_NS), 7)
    back = apply(run, event, NOW - HAND_AHEAD_NS // 2)
    assert (back.state, back.not_before, back.assignable_at) == (RunState.WAITING, NOW, NOW)
    assert apply(run, event, NOW + SECOND).not_before == NOW + SECOND


def test_the_deadline_counts_from_when_a_run_is_due_or_made_whichever_is_later() -> None:
    policy = RunPolicy(deadline_ns=10 * SECOND)
    early = run_in(RunState.WAITING, policy)._replace(created_at=NOW - SECOND // 2)
    late = early._replace(created_at=NOW + SECOND)
    assert (early.deadline_at, late.deadline_at) == (NOW + 10 * SECOND, NOW + 11 * SECOND)
