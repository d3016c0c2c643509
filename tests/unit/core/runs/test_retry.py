"""Backoff: growth, cap, jitter, and inputs that would overflow."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton_core.errors import IdError, PolicyError
from sexton_core.instants import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from sexton_core.runs import Retry, RunPolicy, backoff
from sexton_core.words import Delivery

RUN = "t20261129T030000Z-abcdefgh"


def test_the_wait_doubles_until_the_cap() -> None:
    retry = Retry(max_attempts=1_000, max_backoff_ns=10 * SECOND, jitter=0.0)
    waits = [backoff(retry, RUN, failures) // SECOND for failures in range(1, 7)]
    assert waits == [1, 2, 4, 8, 10, 10]


@pytest.mark.parametrize("failures", [1, 64, 1_025, 10**9, 10**30])
@pytest.mark.parametrize("multiplier", [1.0, 1.000_001, 2.0, 100.0])
def test_no_number_of_failures_overflows(failures: int, multiplier: float) -> None:
    retry = Retry(
        initial_backoff_ns=MILLISECOND, multiplier=multiplier, max_backoff_ns=7 * DAY, jitter=0.0
    )
    assert MILLISECOND <= backoff(retry, RUN, failures) <= 7 * DAY


def test_a_multiplier_of_one_always_waits_equally_long() -> None:
    retry = Retry(multiplier=1.0, jitter=0.0)
    assert [backoff(retry, RUN, failures) for failures in (1, 2, 10**9)] == [SECOND] * 3


def test_jitter_is_the_same_whenever_it_is_asked_for_and_differs_between_runs() -> None:
    retry = Retry(jitter=1.0)
    waits = {backoff(retry, f"t20261129T0300{n:02}Z-abcdefgh", 1) for n in range(60)}
    assert len(waits) == 60
    assert backoff(retry, RUN, 1) == backoff(Retry(jitter=1.0), RUN, 1)


@given(
    st.integers(MILLISECOND, 7 * DAY),
    st.floats(1.0, 100.0),
    st.integers(MILLISECOND, 7 * DAY),
    st.floats(0.0, 1.0),
)
def test_waits_never_shrink_without_jitter_nor_pass_the_cap_with_it(
    initial: int, multiplier: float, cap: int, jitter: float
) -> None:
    initial, cap = min(initial, cap), max(initial, cap)
    steady = Retry(
        initial_backoff_ns=initial, multiplier=multiplier, max_backoff_ns=cap, jitter=0.0
    )
    waits = [backoff(steady, RUN, failures) for failures in range(1, 20)]
    assert all(earlier <= later for earlier, later in pairwise(waits))
    drawn = Retry(
        initial_backoff_ns=initial, multiplier=multiplier, max_backoff_ns=cap, jitter=jitter
    )
    for failures, wait in enumerate(waits, 1):
        assert wait * (1 - jitter) - 1 <= backoff(drawn, RUN, failures) <= wait <= cap


@pytest.mark.parametrize(
    ("field", "shown", "fields"),
    [
        ("retry.max_attempts", "0", {"max_attempts": 0}),
        ("retry.max_attempts", "1000000000", {"max_attempts": 10**9}),
        ("retry.max_attempts", "True", {"max_attempts": True}),
        ("retry.max_attempts", "2.5", {"max_attempts": 2.5}),
        ("retry.initial_backoff", "0s", {"initial_backoff_ns": 0}),
        ("retry.initial_backoff", "-1s", {"initial_backoff_ns": -SECOND}),
        ("retry.initial_backoff", "1h", {"initial_backoff_ns": HOUR}),
        ("retry.max_backoff", "8d", {"max_backoff_ns": 8 * DAY}),
        ("retry.multiplier", "0.5", {"multiplier": 0.5}),
        ("retry.multiplier", "nan", {"multiplier": float("nan")}),
        ("retry.multiplier", "inf", {"multiplier": float("inf")}),
        ("retry.jitter", "1.5", {"jitter": 1.5}),
        ("retry.jitter", "-0.1", {"jitter": -0.1}),
    ],
)
def test_retry_rules_out_of_range_are_refused_by_name_and_value(
    field: str, shown: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(PolicyError) as refused:
        Retry(**fields)
    assert refused.value.field == field
    assert shown in str(refused.value)
    assert "expected" in str(refused.value)


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("priority", {"priority": 101}),
        ("max_deliveries", {"max_deliveries": 0}),
        ("timeout", {"timeout_ns": 0}),
        ("timeout", {"timeout_ns": SECOND - 1}),
        ("deadline", {"deadline_ns": 367 * DAY}),
        ("start_within", {"start_within_ns": -MINUTE}),
    ],
)
def test_run_policies_out_of_range_are_refused_by_name(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(PolicyError) as refused:
        RunPolicy(**fields)
    assert refused.value.field == field


@pytest.mark.parametrize("queue", ["", "Reports", "a/b", "a" * 64, "répare", "-a", "a-", "a\n"])
def test_a_queue_name_that_is_no_id_is_refused(queue: str) -> None:
    with pytest.raises(IdError, match="queue"):
        RunPolicy(queue=queue)


def test_retries_contradict_at_most_once() -> None:
    with pytest.raises(PolicyError, match="1, because delivery is at_most_once"):
        RunPolicy(delivery=Delivery.AT_MOST_ONCE, retry=Retry(max_attempts=5))
    assert RunPolicy(delivery=Delivery.AT_MOST_ONCE).retries.max_attempts == 1
    assert RunPolicy().retries.max_attempts == 3
