"""Answers of the mesh that several pages, or several looks at one, share for a moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, cast

from sexton_console.web.desk import Desk

Answer = TypeVar("Answer")

_MOST: Final = 500
"""Answers that are remembered."""
_PATIENCE: Final = 20
"""So that all looks together take a twentieth of the time at most."""


async def shared(
    desk: Desk, key: str, seconds: float, ask: Callable[[], Awaitable[Answer]]
) -> Answer:
    """Gives an answer that is at most so old, asking where there is none.

    What takes long to answer is asked for less often: it may be as old as twenty times that.
    """
    now = desk.clock.monotonic_ns() / 1e9
    known = desk.memo.get(key)
    if known is not None and now < known[0]:
        return cast("Answer", known[1])
    answer = await ask()
    took_s = desk.clock.monotonic_ns() / 1e9 - now
    if len(desk.memo) >= _MOST:
        for old in sorted(desk.memo, key=lambda name: desk.memo[name][0])[: _MOST // 2]:
            del desk.memo[old]
    desk.memo[key] = (now + max(seconds, _PATIENCE * took_s), answer)
    return answer
