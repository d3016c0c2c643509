"""Tokens, repeats and races of completions."""

import pytest

from sexton_core.instants import SECOND
from sexton_core.runs import (
    Judgement,
    Run,
    RunPolicy,
    apply,
    assign,
    assigned,
    complete,
    live_token,
    report,
)
from sexton_core.words import Delivery, RunEvent, RunState

NOW = 1_000 * SECOND


def running(token: int, policy: RunPolicy | None = None) -> Run:
    run = Run(
        run_id="t20261129T030000Z-abcdefgh",
        policy=policy or RunPolicy(),
        created_at=NOW,
        due=NOW,
        not_before=NOW,
    )
    return apply(assigned(assign(run, "s1", NOW), token), RunEvent.START, NOW)


def test_a_completion_with_the_live_token_counts() -> None:
    settled = complete(running(7), 7, RunEvent.SUCCEED, NOW)
    assert settled.judgement is Judgement.ACCEPTED
    assert settled.run.state is RunState.SUCCEEDED


@pytest.mark.parametrize("token", [-1, 0, 6, 8, 2**63])
def test_a_completion_with_any_other_token_is_refused_and_changes_nothing(token: int) -> None:
    run = running(7)
    assert complete(run, token, RunEvent.SUCCEED, NOW) == (Judgement.REFUSED, run)


def test_a_repeat_is_answered_with_the_recorded_outcome_even_if_it_says_otherwise() -> None:
    ended = complete(running(7), 7, RunEvent.SUCCEED, NOW).run
    for event in (RunEvent.SUCCEED, RunEvent.FAIL, RunEvent.STOP):
        assert complete(ended, 7, event, NOW + SECOND) == (Judgement.REPEATED, ended)


def test_a_completion_of_a_replaced_attempt_is_refused() -> None:
    lost = apply(running(7), RunEvent.LOSE, NOW)
    again = assigned(assign(lost, "s2", NOW), 9)
    assert again.attempts == 2
    for run in (lost, again):
        assert complete(run, 7, RunEvent.SUCCEED, NOW).judgement is Judgement.REFUSED
    assert complete(again, 9, RunEvent.SUCCEED, NOW).judgement is Judgement.ACCEPTED


def test_a_late_completion_of_a_run_that_its_owner_gave_up_is_refused() -> None:
    lost = apply(running(7, RunPolicy(delivery=Delivery.AT_MOST_ONCE)), RunEvent.LOSE, NOW)
    assert lost.state is RunState.LOST
    assert complete(lost, 7, RunEvent.SUCCEED, NOW) == (Judgement.REFUSED, lost)


def test_a_completion_that_arrives_after_a_cancel_request_wins() -> None:
    cancelling = apply(running(7), RunEvent.CANCEL, NOW)
    assert complete(cancelling, 7, RunEvent.SUCCEED, NOW).run.state is RunState.SUCCEEDED
    failed = complete(cancelling, 7, RunEvent.FAIL, NOW).run
    assert failed.state is RunState.FAILED, "and is not retried"


def test_an_attempt_that_stopped_on_request_is_cancelled() -> None:
    cancelling = apply(running(7), RunEvent.CANCEL, NOW)
    assert complete(cancelling, 7, RunEvent.STOP, NOW).run.state is RunState.CANCELLED


def test_the_token_is_the_revision_that_made_it_running_until_a_later_write_copies_it() -> None:
    assert live_token(0, 41) == 41
    assert live_token(41, 57) == 41


def test_a_start_report_counts_once_and_only_with_the_live_token() -> None:
    run = assigned(assign(apply(running(7), RunEvent.LOSE, NOW), "s2", NOW), 9)
    assert report(run, 7, RunEvent.START, NOW).judgement is Judgement.REFUSED
    begun = report(run, 9, RunEvent.START, NOW)
    assert begun.judgement is Judgement.ACCEPTED
    assert report(begun.run, 9, RunEvent.START, NOW).judgement is Judgement.REPEATED


def test_an_attempt_that_has_begun_can_not_be_given_back_as_unbegun() -> None:
    assert report(running(7), 7, RunEvent.GIVE_BACK, NOW).judgement is Judgement.REFUSED
