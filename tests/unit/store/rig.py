"""An embedded engine over a memory disk, in virtual time, with its power switch and its clocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from sexton_runtime.kv.types import KeyValue, Put, Txn, TxnResult
from sexton_runtime.randomness import SeededRandomness
from sexton_sim.loop import SimLoop
from sexton_store.contract import EngineConfig
from sexton_store.disk import WriteBatch
from sexton_store.engine import EmbeddedEngine
from sexton_store.memory_disk import MemoryDisk

T = TypeVar("T")


def puts(*keys: bytes, size: int = 0) -> list[Txn]:
    return [Txn(then=(Put(key, b"v" * size),)) for key in keys]


class Gate:
    """A hook of the disk that holds steps until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, batch: WriteBatch) -> None:
        self.reached.set()
        await self.opened.wait()

    def open(self) -> None:
        self.opened.set()


class Rig:
    """One store process on one machine."""

    def __init__(
        self, loop: SimLoop, *, disk: MemoryDisk | None = None, config: EngineConfig | None = None
    ) -> None:
        self.loop = loop
        self.machine = loop.machine("machine")
        self.disk = disk or MemoryDisk()
        self.config = config or EngineConfig()
        self._incarnations = 0

    async def start(self) -> None:
        self._incarnations += 1
        self.process = self.loop.process("store", self.machine)
        self.engine = EmbeddedEngine(
            self.disk, self.process.clock, SeededRandomness(self._incarnations), self.config
        )
        await self.do(self.engine.start())

    async def kill(self) -> None:
        """kill -9, then a start: what was not durable is lost."""
        self.process.crash()
        self.disk = self.disk.crash()
        await self.start()

    async def reboot(self) -> None:
        """The machine loses its power and starts again."""
        self.process.crash()
        self.machine.reboot()
        self.disk = self.disk.crash()
        await self.start()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts a call in the store's process."""
        return self.process.spawn(work)

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        return await self.begin(work)

    async def put(self, key: bytes, value: bytes = b"") -> TxnResult:
        (result,) = await self.do(self.engine.commit([Txn(then=(Put(key, value),))]))
        return result

    async def read(self, key: bytes) -> KeyValue:
        return (await self.do(self.engine.get([key]))).kvs[0]

    @property
    def revision(self) -> int:
        return self.engine.status().revision

    def hold_writes(self) -> Gate:
        """Makes the next steps wait before they are durable."""
        gate = Gate()
        self.disk.before_durable = gate
        return gate

    def slow_writes(self, seconds: float) -> None:
        """Makes each step take that long."""

        async def wait(batch: WriteBatch) -> None:
            await asyncio.sleep(seconds)

        self.disk.before_durable = wait


def simulated(scenario: Callable[[Rig], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Makes a test of a scenario: it is handed a rig that has been started."""

    def test() -> None:
        loop = SimLoop()

        async def main() -> None:
            rig = Rig(loop)
            await rig.start()
            await scenario(rig)

        loop.run(main())

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test
