"""Randomness as a Protocol, so that a simulation can decide it."""

from __future__ import annotations

import random
import secrets
from typing import Protocol


class Randomness(Protocol):
    """A source of identifiers and jitter."""

    def token_hex(self, nbytes: int) -> str:
        """Gives `nbytes` random bytes as lower-case hexadecimal digits."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """Gives a number from [low, high]."""
        ...


class SystemRandomness:
    """The operating system's source."""

    def __init__(self) -> None:
        self._jitter = random.SystemRandom()

    def token_hex(self, nbytes: int) -> str:
        """Draws from the system's source of secrets."""
        return secrets.token_hex(nbytes)

    def uniform(self, low: float, high: float) -> float:
        """Draws evenly."""
        return self._jitter.uniform(low, high)


class SeededRandomness:
    """The twin: the same seed gives the same draws. Never for secrets."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)  # noqa: S311 - determinism is the point

    def token_hex(self, nbytes: int) -> str:
        """Draws from the seed."""
        return self._random.randbytes(nbytes).hex()

    def uniform(self, low: float, high: float) -> float:
        """Draws from the seed."""
        return self._random.uniform(low, high)
