"""The disk of a simulated store: `MemoryDisk` with time, faults and a guard against the dead."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sexton_sim.history import Recorder
from sexton_sim.process import PROCESS
from sexton_store.disk import DiskFailedError, DiskUsage, View, WriteBatch
from sexton_store.memory_disk import UNBOUNDED_BYTES, MemoryDisk

RESERVE_BYTES = 64 * 1024


class SimDisk:
    """What survives its processes. Each process of the store opens it anew (`open`).

    A write takes time before and after it becomes durable, so that a crash falls on either side.
    """

    def __init__(self, seed: str, recorder: Recorder, now_ns: Callable[[], int]) -> None:
        self.slow_s = 0.0
        """Added to each write at most: a disk that is busy."""
        self.injected: Counter[str] = Counter()
        self.views_open = 0
        self.before_durable: Callable[[], None] | None = None
        self.after_durable: Callable[[], None] | None = None
        self._random = random.Random(f"disk-{seed}")  # noqa: S311 - determinism is the point
        self._recorder = recorder
        self._now_ns = now_ns
        self._disk = MemoryDisk(reserve_bytes=RESERVE_BYTES)
        self._begun_ns = 0
        self._failing: bool | None = None

    def open(self) -> SimDiskHandle:
        """Gives the disk to the process that runs now; earlier ones can't reach it any more."""
        self._disk = self._disk.crash()
        self._disk.before_durable = self._before
        self._disk.before_return = self._after
        self.views_open = 0
        return SimDiskHandle(self, self._disk)

    def fill(self, *, spare_bytes: int) -> None:
        """Leaves room for so many bytes more."""
        self._disk.capacity_bytes = self._disk.usage().used_bytes + RESERVE_BYTES + spare_bytes

    def empty(self) -> None:
        """Gives all the room in the world."""
        self._disk.capacity_bytes = UNBOUNDED_BYTES

    def fail_next(self, *, with_effect: bool) -> None:
        """Makes the next step's outcome unknown to the store."""
        self._failing = with_effect

    async def _before(self, batch: WriteBatch) -> None:
        del batch
        self._begun_ns = self._now_ns()
        await asyncio.sleep(self._draw_s())
        self._fail_if(with_effect=False)
        strike, self.before_durable = self.before_durable, None
        if strike is not None:
            strike()
            await asyncio.sleep(0)

    async def _after(self, batch: WriteBatch) -> None:
        self._recorder.commits(batch.history, begun_ns=self._begun_ns, durable_ns=self._now_ns())
        self._fail_if(with_effect=True)
        strike, self.after_durable = self.after_durable, None
        if strike is not None:
            strike()
        await asyncio.sleep(self._draw_s())

    def _fail_if(self, *, with_effect: bool) -> None:
        if self._failing is with_effect:
            self._failing = None
            raise DiskFailedError("the simulation asked for an unknown outcome")

    def _draw_s(self) -> float:
        quick = self._random.uniform(0.00005, 0.0003)
        return quick + (self._random.uniform(0, self.slow_s) / 2 if self.slow_s else 0.0)


class SimDiskHandle:
    """The `Disk` of one process of the store."""

    def __init__(self, owner: SimDisk, disk: MemoryDisk) -> None:
        self._owner = owner
        self._disk = disk
        self._process = PROCESS.get(None)

    def cluster_record(self) -> bytes | None:
        """Gives the last durable cluster record; None on a new disk."""
        return self._disk.cluster_record()

    @contextmanager
    def view(self) -> Iterator[View]:
        """Opens a snapshot of the last durable step."""
        self._owner.views_open += 1
        try:
            with self._disk.view() as view:
                yield view
        finally:
            self._owner.views_open -= 1

    async def write(self, batch: WriteBatch, *, use_reserve: bool) -> None:
        """Makes one step durable; a dead process's write never begins."""
        if self._process is not None and not self._process.alive:
            await asyncio.Event().wait()
        await self._disk.write(batch, use_reserve=use_reserve)

    def usage(self) -> DiskUsage:
        """Tells how full the disk is."""
        return self._disk.usage()

    async def close(self) -> None:
        """Ends; idempotent."""
        await self._disk.close()
