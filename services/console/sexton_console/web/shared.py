"""Answers of the mesh that several pages, or several looks at one, share for a moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, cast

from sexton_console.web.desk import Desk

Answer = TypeVar("Answer")

_MOST: Final = 500
"""Answers that are remembered."""


async def shared(
    desk: Desk, key: str, seconds: float, ask: Callable[[], Awaitable[Answer]]
) -> Answer:
    """Gives an answer that is at most so old, asking where there is none."""
    now = desk.clock.monotonic_ns() / 1e9
    known = desk.memo.get(key)
    if known is not None and now - known[0] < seconds:
        return cast("Answer", known[1])
    answer = await ask()
    if len(desk.memo) >= _MOST:
        for old in sorted(desk.memo, key=lambda name: desk.memo[name][0])[: _MOST // 2]:
            del desk.memo[old]
    desk.memo[key] = (now, answer)
    return answer
