"""The disk of a simulated store: `MemoryDisk` with time, faults and a guard against the dead."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sexton_sim.history import Recorder
from sexton_sim.process import PROCESS
from sexton_store import cluster
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
        self.on_step: Callable[[str, WriteBatch], bool] = lambda _when, _batch: False
        """Told before and after a step is durable; tells whether it struck somebody down."""
        self._random = random.Random(f"disk-{seed}")  # noqa: S311 - determinism is the point
        self._recorder = recorder
        self._now_ns = now_ns
        self._disk = MemoryDisk(reserve_bytes=RESERVE_BYTES)
        self._begun_ns = 0
        self._jammed = False
        self._failing: bool | None = None
        self._failed: Callable[[], None] = lambda: None

    def open(self) -> SimDiskHandle:
        """Gives the disk to the process that runs now; earlier ones can't reach it any more."""
        self._disk = self._disk.crash()
        self._disk.jammed = self._jammed
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

    def jam(self) -> None:
        """Refuses every step: others have filled the disk to the last byte."""
        self._jammed = self._disk.jammed = True

    def clear(self) -> None:
        """Ends what `jam` began."""
        self._jammed = self._disk.jammed = False

    def fail_next(self, *, with_effect: bool, strike: Callable[[], None]) -> None:
        """Makes the next step's outcome unknown to the store; tells when it is so."""
        self._failing, self._failed = with_effect, strike

    def backup(self) -> MemoryDisk:
        """Copies what is durable."""
        return self._disk.copy()

    def revision(self) -> int:
        """Tells the last durable revision; 0 on a new disk."""
        record = self._disk.cluster_record()
        return 0 if record is None else cluster.decode(record).revision

    def restore(self, backup: MemoryDisk, *, wall_ns: int, incarnation: str) -> int:
        """Replaces what is durable by a backup, as `sexton_store.backup.restore` does.

        The store must be dead. Gives the revision at which it goes on. Raises `ValueError` where
        the wall clock is beyond what a revision can hold.
        """
        record = backup.cluster_record()
        assert record is not None, "a backup of a store that ran"
        record = cluster.restored(
            record, replaced_revision=self.revision(), wall_ns=wall_ns, incarnation=incarnation
        )
        self._disk.crash()
        self._disk = backup.copy(cluster_record=record)
        return self.revision()

    async def _before(self, batch: WriteBatch) -> None:
        self._begun_ns = self._now_ns()
        await asyncio.sleep(self._draw_s())
        self._fail_if(with_effect=False)
        if self.on_step("before", batch):
            await asyncio.sleep(0)

    async def _after(self, batch: WriteBatch) -> None:
        self._recorder.commits(batch.history, begun_ns=self._begun_ns, durable_ns=self._now_ns())
        self._fail_if(with_effect=True)
        self.on_step("after", batch)
        await asyncio.sleep(self._draw_s())

    def _fail_if(self, *, with_effect: bool) -> None:
        if self._failing is with_effect:
            self._failing = None
            self._failed()
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
