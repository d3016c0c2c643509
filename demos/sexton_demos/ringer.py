"""A sexton with a store: rings every minute, and remembers in one way or another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from sexton_core.instants import MINUTE, SECOND, Instant, format_instant, parse_instant
from sexton_core.schedules import CronTiming, ScheduleSpec, build
from sexton_demos.scene import Scene
from sexton_demos.telling import MIDNIGHT
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.types import Op, Put, Txn, prefix_end
from sexton_sim.process import Process

EVERY_MINUTE = build(ScheduleSpec(timing=CronTiming(expression="* * * * *"), timezone="UTC"))
FATAL: Final[Instant] = MIDNIGHT + 3 * MINUTE
END: Final[Instant] = MIDNIGHT + 10 * MINUTE
WORK_S: Final = 20


class Sexton:
    """Rings every minute, remembers in its own `way`, and is killed at one `moment`."""

    def __init__(self, scene: Scene, way: Way, moment: str) -> None:
        self.moment = moment
        self.rung: Counter[Instant] = Counter()
        self._scene = scene
        self._way = way
        self._name = f"{way.__name__}/{moment}"

    def start(self) -> None:
        """Starts the process, for the first time or again."""
        self.process = self._scene.start(self._name, self._live)

    def cursor(self, nominal: Instant) -> Put:
        """Gives the write that says: everything up to here is decided."""
        return Put(f"{self._name}/cursor".encode(), format_instant(nominal).encode())

    def run(self, nominal: Instant, state: bytes) -> Put:
        """Gives the write that says how one run stands."""
        return Put(f"{self._name}/runs/{format_instant(nominal)}".encode(), state)

    async def ring(self, nominal: Instant) -> None:
        """Works; at the end of it the bell has rung."""
        await asyncio.sleep(WORK_S)
        self.rung[nominal] += 1
        if self.moment == "after" and nominal == FATAL and self.rung[nominal] == 1:
            self.process.crash()
            await asyncio.sleep(0)  # from its next await on a killed process does nothing

    async def _live(self, process: Process) -> None:
        async with self._scene.client(process) as store:
            runs = f"{self._name}/runs/".encode()
            for kv in (await store.scan(runs, prefix_end(runs))).kvs:
                if kv.value == b"to do":
                    nominal = parse_instant(kv.key.decode().rpartition("/")[2])
                    await self.ring(nominal)
                    await write(store, self.run(nominal, b"done"))
            (kv,) = (await store.get([self.cursor(0).key])).kvs
            cursor = parse_instant(kv.value.decode()) if kv.value else process.clock.wall_ns()
            while (nominal := EVERY_MINUTE.next_after(cursor) or END) <= END:
                await asyncio.sleep(max(0, nominal - process.clock.wall_ns()) / SECOND)
                await self._way(self, store, nominal)
                cursor = nominal


Way = Callable[[Sexton, StoreClient, Instant], Awaitable[None]]


async def write(store: StoreClient, *ops: Op) -> None:
    """Commits all of it or nothing; durable when it returns."""
    await store.commit([Txn(then=ops)])
