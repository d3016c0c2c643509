"""What is received stands in a file, and the file has a thread of its own.

Nobody waits for the disk: what comes faster than it is written is refused, and whoever offers it
counts it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, Protocol, TypeVar

import structlog

_SWEEP_S: Final = 60.0

_log = structlog.get_logger(__name__)


class _Closable(Protocol):
    def close(self) -> object:
        """Closes it."""


File = TypeVar("File", bound=_Closable)
Result = TypeVar("Result")


class Keeper(ABC, Generic[File]):
    """A part of the console's lifecycle. Its methods are for the loop."""

    def __init__(self, name: str, *, max_waiting_bytes: int) -> None:
        """`max_waiting_bytes`: taken in and not written yet."""
        self._name = name
        self._max_waiting_bytes = max_waiting_bytes
        self._thread = ThreadPoolExecutor(1, name)
        self._file: File | None = None
        self._waiting_bytes = 0
        self._sweeping: asyncio.Task[None] | None = None

    @abstractmethod
    def _open(self) -> File:
        """Opens the file, in the thread."""

    @abstractmethod
    async def sweep_once(self) -> int:
        """Removes what is too old; tells how much went."""

    async def start(self) -> None:
        """Opens the file. One that can't be read is put aside: better without a past."""
        self._file = await self._do(self._open)
        self._sweeping = asyncio.create_task(self._sweep(), name=f"sweep-{self._name}")

    async def stop(self) -> None:
        """Writes what waits, and closes. Idempotent."""
        sweeping, self._sweeping = self._sweeping, None
        if sweeping is None or self._file is None:
            return
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        await self._do(self._file.close)
        self._thread.shutdown()

    async def flush(self) -> None:
        """Waits until everything that was offered is written."""
        await self._do(lambda: None)

    def _has_room(self, size: int) -> bool:
        """Tells whether so many bytes more may wait to be written."""
        return self._file is not None and self._waiting_bytes + size <= self._max_waiting_bytes

    def _write_soon(
        self,
        size: int,
        write: Callable[[File], object],
        written: Callable[[BaseException | None], None],
    ) -> None:
        """Has so many bytes written, for which there is room; tells `written` how that ended."""
        file, loop = self._file, asyncio.get_running_loop()
        assert file is not None, "there is room in an open file only"
        self._waiting_bytes += size

        def done(error: BaseException | None) -> None:
            self._waiting_bytes -= size
            written(error)

        self._thread.submit(write, file).add_done_callback(
            lambda future: loop.call_soon_threadsafe(done, future.exception())
        )

    async def _read(self, work: Callable[[File], Result]) -> Result:
        file = self._file
        assert file is not None, "it is started before it is asked"
        return await self._do(lambda: work(file))

    async def _do(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                await self.sweep_once()
            except sqlite3.Error as error:
                _log.error(
                    "What is too old could not be removed.",
                    action="sweep",
                    kept=self._name,
                    reason=str(error),
                )
