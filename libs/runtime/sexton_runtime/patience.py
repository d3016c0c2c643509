"""Lets what is not urgent wait a moment for company.

A message costs both sides as much as dozens of the items in it, so where runs come one by one it
pays to send what nobody waits for along with what comes next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Patience:
    """One writer's; it has one timer at most, however often it is asked."""

    __slots__ = ("_moment_s", "_over", "_timer", "_wake")

    def __init__(self, moment_s: float, wake: Callable[[], object]) -> None:
        """`wake` has the writer look again: called once the moment is over."""
        self._moment_s = moment_s
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._over = False

    def wait(self) -> bool:
        """Tells whether to wait; the moment begins with the first time since `end`."""
        if not self._over and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._moment_s, self._pass)
        return not self._over

    def end(self) -> None:
        """Takes that it has been sent, or that there is nobody to send it to. Idempotent."""
        self._over = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pass(self) -> None:
        self._timer, self._over = None, True
        self._wake()
