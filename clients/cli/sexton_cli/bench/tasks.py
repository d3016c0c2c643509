"""The tasks of the benches: as little as a task can do."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import sexton

PAYLOAD: Final = {"payload": "x" * 100}
"""What the tasks are given: about a hundred bytes, as the peers' are."""


@sexton.task("nothing")
async def nothing(payload: str = "") -> None:
    """Does nothing, so that what is measured is the way there and back."""


@sexton.task("stamp")
async def stamp(payload: str = "") -> int:  # noqa: ARG001 - it is what travels
    """Tells when it was started: nanoseconds of the machine's clock."""
    return time.time_ns()


@sexton.task("linger")
async def linger(payload: str = "") -> int:  # noqa: ARG001
    """Tells when it was started, and is still at work for half a second."""
    started = time.time_ns()
    await asyncio.sleep(0.5)
    return started
