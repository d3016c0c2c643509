"""Pauses between attempts: doubling, bounded, with jitter from the given randomness."""

from __future__ import annotations

from sexton_runtime.randomness import Randomness


class Backoff:
    """Gives the pause before each next attempt: half of it fixed, half of it drawn."""

    def __init__(self, randomness: Randomness, first_s: float, max_s: float) -> None:
        self._randomness = randomness
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s

    def next_s(self) -> float:
        """Gives the next pause in seconds and doubles the one after it."""
        pause_s = self._next_s
        self._next_s = min(pause_s * 2, self._max_s)
        return pause_s * self._randomness.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begins again with the first pause: the last attempt succeeded."""
        self._next_s = self._first_s
