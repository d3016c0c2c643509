"""The implementations of `Engine` that one suite holds to the same behaviour.

A world runs a scenario - a coroutine function that is handed a `Store` - on whatever loop its
implementation needs. To hold a further implementation to the suite, append a factory to `WORLDS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from sexton_runtime.clock import SystemClock
from sexton_runtime.kv.engine import Engine
from sexton_runtime.randomness import SeededRandomness
from sexton_sim.loop import SimLoop
from sexton_store.engine import EmbeddedEngine
from sexton_store.lmdb_disk import LmdbConfig, LmdbDisk
from sexton_store.memory_disk import MemoryDisk

DEADLINE_S = 20
"""A scenario that hangs fails, instead of hanging the suite."""


class Store(Protocol):
    """A running engine, and its power switch."""

    @property
    def engine(self) -> Engine:
        """The engine that runs now."""
        ...

    async def restart(self) -> None:
        """Ends the engine and starts another one on the same data."""
        ...


Scenario = Callable[[Store], Awaitable[None]]


class World(Protocol):
    """Runs scenarios on one implementation."""

    def run(self, scenario: Scenario) -> None:
        """Runs one scenario on a new, empty store."""
        ...


class MemoryWorld:
    """The embedded engine over the in-memory disk, in virtual time."""

    def __init__(self, folder: Path) -> None:
        self._loop = SimLoop()
        self._disk = MemoryDisk()

    def run(self, scenario: Scenario) -> None:
        async def main() -> None:
            await self._start()
            async with asyncio.timeout(3_600):
                await scenario(self)
            await self.engine.stop()

        self._loop.run(main())

    async def restart(self) -> None:
        """Kills it: what was not durable is lost."""
        self._disk, lost = self._disk.crash(), self.engine
        await lost.stop()
        await self._start()

    async def _start(self) -> None:
        self.engine = EmbeddedEngine(self._disk, self._loop.system.clock, SeededRandomness(1))
        await self.engine.start()


class LmdbWorld:
    """The embedded engine over LMDB, in real time."""

    CONFIG = LmdbConfig(
        initial_map_bytes=8 * 2**20,
        max_map_bytes=64 * 2**20,
        margin_bytes=2**20,
        reserve_bytes=0,
        verify_up_to_bytes=0,
    )

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "data"

    def run(self, scenario: Scenario) -> None:
        async def main() -> None:
            await self._start()
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await scenario(self)
            finally:
                await self._stop()

        asyncio.run(main())

    async def restart(self) -> None:
        """Stops it in order and opens the folder again."""
        await self._stop()
        await self._start()

    async def _start(self) -> None:
        self._disk = LmdbDisk.open(self._folder, self.CONFIG)
        self.engine = EmbeddedEngine(self._disk, SystemClock(), SeededRandomness(1))
        await self.engine.start()

    async def _stop(self) -> None:
        await self.engine.stop()
        await self._disk.close()


WORLDS: dict[str, Callable[[Path], World]] = {"memory": MemoryWorld, "lmdb": LmdbWorld}
