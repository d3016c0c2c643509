"""Somebody who does one thing after the other, by a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from sexton import errors

Deeds: TypeAlias = tuple[tuple[float, Callable[[], Awaitable[None]]], ...]
"""What somebody does, and how often to the rest."""


class Person:
    """One person. Whoever derives from it sets the deeds."""

    _deeds: Deeds

    def __init__(self, rng: random.Random) -> None:
        self._random = rng

    async def act(self) -> None:
        """Does one thing; what is refused or not answered is an outcome like others."""
        ((_, deed),) = self._random.choices(self._deeds, [weight for weight, _ in self._deeds])
        try:
            await deed()
        except errors.SextonError:
            await asyncio.sleep(0.1)
