"""Trying again, for idempotent calls only.

Nothing else is repeated automatically: after a broken connection nobody but the caller of a
mutation can find out what became of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt

from sexton.errors import Overloaded, Unavailable
from sexton_runtime.randomness import Randomness

T = TypeVar("T")

TRANSIENT = (Unavailable, Overloaded)
"""What may pass by itself. Includes `OutcomeUnknown`: an idempotent call may have happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how patiently. The pause doubles and is drawn from [half, whole] of it."""

    attempts: int = 5
    first_pause_s: float = 0.05
    longest_pause_s: float = 2.0

    def pause_s(self, attempt: int, randomness: Randomness) -> float:
        """Gives the pause after the attempt, which is counted from 1."""
        whole = min(self.longest_pause_s, self.first_pause_s * 2.0 ** min(attempt - 1, 30))
        return randomness.uniform(whole / 2, whole)


async def retry_idempotent(
    call: Callable[[], Awaitable[T]],
    *,
    randomness: Randomness,
    policy: RetryPolicy | None = None,
) -> T:
    """Makes the call until it succeeds; raises its last error once the attempts are used up.

    Time is bounded by the deadlines of the attempts and by the caller's own `asyncio.timeout`.
    """
    chosen = policy or RetryPolicy()

    def pause(state: RetryCallState) -> float:
        return chosen.pause_s(state.attempt_number, randomness)

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(TRANSIENT),
        stop=stop_after_attempt(chosen.attempts),
        wait=pause,
        sleep=asyncio.sleep,
        reraise=True,
    )
    return await retrying(call)
