"""When a failed attempt is tried again: exponential backoff with a cap and repeatable jitter."""

import math
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from sexton_core.checks import check_duration, check_number, check_range
from sexton_core.instants import DAY, MILLISECOND, MINUTE, SECOND, Duration

MAX_ATTEMPTS: Final = 1_000
"""The largest `max_attempts`. A job that may fail more often has an outage, not a hiccup."""

MAX_MULTIPLIER: Final = 100.0
MAX_BACKOFF: Final = 7 * DAY

_JITTER_STEPS: Final = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often, and after which waits, a failed run is tried again.

    The wait after the n-th failure is `initial_backoff_ns * multiplier ** (n - 1)`, at most
    `max_backoff_ns`, less up to the fraction `jitter` of it.

    Raises:
        PolicyError: a value is outside its range.

    """

    max_attempts: int = 3
    """Failures until the run is a dead letter, from 1 (no retry) to `MAX_ATTEMPTS`."""
    initial_backoff_ns: Duration = SECOND
    """From 1 ms to `max_backoff_ns`."""
    multiplier: float = 2.0
    """From 1 (always the same wait) to `MAX_MULTIPLIER`."""
    max_backoff_ns: Duration = 5 * MINUTE
    """At most `MAX_BACKOFF`."""
    jitter: float = 0.1
    """From 0 (none) to 1: taken off the wait, so that the cap holds."""

    def __post_init__(self) -> None:
        check_range("retry.max_attempts", self.max_attempts, 1, MAX_ATTEMPTS)
        check_duration("retry.max_backoff", self.max_backoff_ns, MILLISECOND, MAX_BACKOFF)
        check_duration(
            "retry.initial_backoff", self.initial_backoff_ns, MILLISECOND, self.max_backoff_ns
        )
        check_number("retry.multiplier", self.multiplier, 1.0, MAX_MULTIPLIER)
        check_number("retry.jitter", self.jitter, 0.0, 1.0)


def backoff(retry: Retry, run_id: str, failures: int) -> Duration:
    """Returns how long to wait after the n-th failure of a run, in nanoseconds.

    The same run and failure wait equally long whoever asks: a checker can tell whether an attempt
    came too early. Neither a large multiplier nor many failures overflow.
    """
    assert failures >= 1, "the first failure is number one"
    growth = retry.max_backoff_ns / retry.initial_backoff_ns
    wait = retry.max_backoff_ns
    # The power is taken only where it stays below the cap, so that no float overflows.
    if retry.multiplier == 1.0:
        wait = retry.initial_backoff_ns
    elif failures - 1 < math.log(growth) / math.log(retry.multiplier):
        wait = min(wait, int(retry.initial_backoff_ns * retry.multiplier ** (failures - 1)))
    return wait - int(wait * retry.jitter * _fraction(run_id, failures))


def _fraction(run_id: str, failures: int) -> float:
    """Returns a number in [0, 1) that looks random and is always the same."""
    digest = blake2b(f"{run_id}/{failures}".encode(), digest_size=4, person=b"sexton-backoff")
    return int.from_bytes(digest.digest()) / _JITTER_STEPS
