"""Named points that a simulation passes: what is set there happens once, at the next passing."""

from __future__ import annotations

from collections.abc import Callable

Strike = Callable[[str], None]
"""Is told who passed."""


class Traps:
    """What is to happen at the next passing of each point."""

    def __init__(self) -> None:
        self._set: dict[str, list[Strike]] = {}

    def set(self, point: str, strike: Strike) -> None:
        """Sets a trap."""
        self._set.setdefault(point, []).append(strike)

    def passed(self, point: str, who: str = "") -> bool:
        """Springs what is set at a point; tells whether anything was."""
        strikes = self._set.pop(point, ())
        for strike in strikes:
            strike(who)
        return bool(strikes)

    def clear(self) -> None:
        """Takes all of them away."""
        self._set.clear()
