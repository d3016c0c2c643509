"""Trying again: what, how often, how long after."""

import asyncio
from typing import Any

import pytest

from sexton.errors import Fenced, InvalidArgument, OutcomeUnknown, Overloaded, Unavailable
from sexton_runtime.randomness import SeededRandomness
from sexton_runtime.retry import RetryPolicy, retry_idempotent
from sexton_sim.loop import SimLoop

POLICY = RetryPolicy(attempts=4, first_pause_s=1.0, longest_pause_s=3.0)


class Flaky:
    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


def attempt(flaky: Flaky) -> tuple[Any, float]:
    loop = SimLoop()

    async def main() -> Any:
        retrying = retry_idempotent(flaky, randomness=SeededRandomness(1), policy=POLICY)
        return (await asyncio.gather(retrying, return_exceptions=True))[0]

    began = loop.time()
    result = loop.run(main())
    return result, loop.time() - began


def test_what_passes_by_itself_is_tried_again_after_growing_pauses() -> None:
    flaky = Flaky(Unavailable(), OutcomeUnknown(), Overloaded())

    result, seconds = attempt(flaky)

    assert (result, flaky.calls) == ("done", 4)
    assert 3.0 <= seconds <= 6.0


def test_the_last_error_is_raised_when_the_attempts_are_used_up() -> None:
    flaky = Flaky(*[Unavailable(f"no. {number}") for number in range(1, 9)])

    result, _ = attempt(flaky)

    assert flaky.calls == 4
    assert str(result) == "no. 4"


@pytest.mark.parametrize("error", [Fenced(), InvalidArgument("a", 1, "2"), ValueError("x")])
def test_what_does_not_pass_by_itself_is_not_tried_again(error: Exception) -> None:
    flaky = Flaky(error)

    assert attempt(flaky) == (error, 0.0)
    assert flaky.calls == 1


def test_pauses_are_bounded_also_after_very_many_attempts() -> None:
    assert RetryPolicy().pause_s(10_000, SeededRandomness(1)) <= 2.0
