"""Asks what only a leader or an owner can do of whoever holds the lease.

What is asked is idempotent, so it is asked again, of the next one, while there is time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from sexton.errors import DeadlineExceeded, NotLeader, SextonError, Unavailable
from sexton_coordinator.mesh import Mesh
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_runtime.rpc.wire import DEFAULT_TIMEOUT_S

_ONE_TRY_S: Final = 3.0
"""A holder that is cut off does not answer; by then its lease is another's."""

_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 0.5
_MARGIN_S: Final = 0.05
"""Left of the caller's time for telling it why."""

Answer = TypeVar("Answer")


def time_left_s(context: Any) -> float:
    """Returns how long a call may take, read once at its beginning."""
    remaining = context.time_remaining()
    return max(0.0, (DEFAULT_TIMEOUT_S if remaining is None else float(remaining)) - _MARGIN_S)


async def ask_holder(
    mesh: Mesh,
    lease: str,
    call: Callable[[PolicyChannel, float], Awaitable[Answer]],
    *,
    timeout_s: float,
    here: Callable[[], Awaitable[Answer]] | None = None,
) -> Answer:
    """Calls the holder of a lease with a channel and a time-out, again until it answers.

    `here` answers instead where this replica is the holder: as a call of its own port would.

    Raises:
        NotLeader: nobody held the lease in time.
        Unavailable, OutcomeUnknown: the last one asked could not be reached, or broke off.

    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    pause_s = _PAUSE_S
    trouble: SextonError = NotLeader()
    while (left_s := deadline - loop.time()) > 0:
        holder = mesh.directory.holder(lease)
        if holder is not None and holder.address:
            try_s = min(left_s, _ONE_TRY_S)
            try:
                if here is not None and holder.id == mesh.id:
                    return await _in_time(here(), try_s)
                return await call(mesh.channel(holder.address), try_s)
            except (Unavailable, DeadlineExceeded) as error:
                trouble = error
        left_s = deadline - loop.time()
        try:
            async with asyncio.timeout(max(0.0, min(pause_s, left_s))):
                await mesh.directory.changed()
        except TimeoutError:
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    if isinstance(trouble, DeadlineExceeded):
        raise Unavailable(f"the holder of {lease} does not answer; try again") from None
    raise trouble


async def _in_time(answer: Awaitable[Answer], timeout_s: float) -> Answer:
    """Waits for an answer as long as for that of another replica; raises `DeadlineExceeded`."""
    deadline = asyncio.timeout(timeout_s)
    try:
        async with deadline:
            return await answer
    except TimeoutError:
        if not deadline.expired():
            raise
        raise DeadlineExceeded("this replica leads, and did not answer in time") from None
