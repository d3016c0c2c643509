"""Whole lives of runs: random events, judged by what must hold of any run."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton_core.errors import IllegalTransition
from sexton_core.instants import DAY, HOUR, MINUTE, SECOND
from sexton_core.runs import (
    ENDED,
    Judgement,
    Retry,
    Run,
    RunPolicy,
    apply,
    assign,
    assigned,
    backoff,
    complete,
    keep_ns,
    overdue,
)
from sexton_core.words import Delivery, RunEvent, RunState

COMPLETIONS = (
    *(RunEvent.SUCCEED, RunEvent.FAIL, RunEvent.FAIL_FOR_GOOD),
    *(RunEvent.TIME_OUT, RunEvent.STOP),
)


@st.composite
def policies(draw: st.DrawFn) -> RunPolicy:
    delivery = draw(st.sampled_from(Delivery))
    retry = None
    if delivery is Delivery.AT_LEAST_ONCE:
        retry = draw(st.none() | st.builds(Retry, max_attempts=st.integers(1, 6)))
    return RunPolicy(
        delivery=delivery,
        retry=retry,
        max_deliveries=draw(st.integers(1, 8)),
        deadline_ns=draw(st.sampled_from([None, MINUTE, HOUR])),
        start_within_ns=draw(st.sampled_from([None, 10 * SECOND, HOUR])),
    )


often = (RunEvent.ASSIGN, RunEvent.ASSIGN, RunEvent.START, RunEvent.FAIL, RunEvent.LOSE)
events = st.sampled_from([*RunEvent, *often])


def live(policy: RunPolicy, script: list[tuple[RunEvent, int]]) -> Iterator[tuple[Run, Run, int]]:
    """Applies what can be applied; yields before, after and the time."""
    now, token = 0, 100
    run = Run(run_id="t19700101T000000Z-abcdefgh", policy=policy, created_at=0, due=0, not_before=0)
    for event, wait_s in script:
        now += wait_s * SECOND
        try:
            if event is RunEvent.ASSIGN:
                token += 1
                moved = assigned(assign(run, "s1", now), token)
            elif event in COMPLETIONS:
                settled = complete(run, run.token, event, now)
                if settled.judgement is not Judgement.ACCEPTED:
                    continue
                moved = settled.run
            else:
                moved = apply(run, event, now)
        except IllegalTransition:
            continue
        yield run, moved, now
        run = moved


@pytest.mark.slow
@given(policies(), st.lists(st.tuples(events, st.integers(0, 40)), min_size=5, max_size=60))
def test_whatever_happens_to_a_run_its_promises_hold(
    policy: RunPolicy, script: list[tuple[RunEvent, int]]
) -> None:
    started = 0
    for before, after, now in live(policy, script):
        assert before.state not in ENDED, "an end is for ever"
        assert after.attempts <= policy.max_deliveries
        assert after.failures <= policy.retries.max_attempts
        if after.attempts != before.attempts:
            assert after.attempts == before.attempts + 1, "attempts have no gaps"
            assert after.token > before.token
            assert now >= before.not_before
        if after.failures > before.failures and after.state is RunState.RETRYING:
            wait_ns = after.not_before - now
            assert wait_ns in {0, backoff(policy.retries, before.run_id, after.failures)}
        if after.state in (RunState.WAITING, RunState.RETRYING):
            assert (after.token, after.session) == (0, "")
        started += after.started and not before.started
        if policy.delivery is Delivery.AT_MOST_ONCE:
            assert started <= 1


def test_an_overdue_timer_is_named_once() -> None:
    policy = RunPolicy(start_within_ns=10 * SECOND, deadline_ns=MINUTE)
    run = Run(run_id="t", policy=policy, created_at=0, due=0, not_before=0)
    assert overdue(run, 10 * SECOND - 1) is None
    assert overdue(run, 10 * SECOND) is RunEvent.EXPIRE
    running = apply(assigned(assign(run, "s1", 0), 1), RunEvent.START, 0)
    assert overdue(running, 10 * SECOND) is None
    assert overdue(running, MINUTE) is RunEvent.DEADLINE
    killed = apply(running, RunEvent.DEADLINE, MINUTE)
    assert overdue(killed, DAY) is None
    assert overdue(apply(killed, RunEvent.LOSE, MINUTE), DAY) is None


def test_start_within_counts_from_when_the_run_was_due() -> None:
    policy = RunPolicy(start_within_ns=MINUTE)
    run = Run(run_id="t", policy=policy, created_at=50 * SECOND, due=0, not_before=0)
    assert run.expires_at == MINUTE


@pytest.mark.parametrize(
    ("state", "kept"),
    [(RunState.SUCCEEDED, 1), (RunState.FAILED, 2), (RunState.LOST, 2), (RunState.CANCELLED, 1)],
)
def test_dead_letters_are_kept_twice_as_long(state: RunState, kept: int) -> None:
    assert keep_ns(state, DAY) == kept * DAY
