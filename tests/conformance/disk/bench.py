from __future__ import annotations

from collections.abc import Awaitable, Callable

from sexton_store.disk import Disk
from sexton_store.history import MemoryHistory


class Bench:
    """One disk under test, and what a restart of its process makes of it."""

    def __init__(self, disk: Disk, reopen: Callable[[], Awaitable[Disk]], history: MemoryHistory):
        self.disk = disk
        self.history = history
        self._reopen = reopen

    async def restart(self) -> Disk:
        self.disk = await self._reopen()
        return self.disk
