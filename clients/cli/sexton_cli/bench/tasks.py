"""The task of the throughput bench: as little as a task can do."""

from __future__ import annotations

import sexton

NAME = "nothing"


@sexton.task(NAME)
async def nothing() -> None:
    """Does nothing, so that what is measured is the way there and back."""
