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


class Pace:
    """How long one writer waits between two messages.

    Longer where items come in a steady stream: nobody waits for one of hundreds in a second as for
    the only one, and the fewer messages carry them the less they cost.
    """

    __slots__ = ("_last_s", "_least_s", "_most_s", "_steady_per_s")

    def __init__(self, least_s: float, most_s: float, steady_per_s: float) -> None:
        """Takes the two pauses, and the items per second from which on the longer one is made."""
        self._least_s = least_s
        self._most_s = most_s
        self._steady_per_s = steady_per_s
        self._last_s = -1.0

    def after(self, items: int, now_s: float) -> float:
        """Tells how long to wait after a message with so many items, by a monotonic clock."""
        passed_s, self._last_s = max(now_s - self._last_s, self._least_s), now_s
        return self._most_s if items >= self._steady_per_s * passed_s else self._least_s
