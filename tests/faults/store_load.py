"""A load whose every durable state is known beforehand, for whatever ends the store's process.

As a program (``python -m faults.store_load DATA SEED STEPS``) it runs an engine on a data folder
and writes a line with the revision after each answer. `durable_states` runs the same load on the
disk's twin and tells what must be found afterwards.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from sexton_runtime.clock import SystemClock
from sexton_runtime.kv.engine import Engine
from sexton_runtime.kv.types import Compare, Delete, Put, Target, Txn
from sexton_runtime.randomness import SeededRandomness
from sexton_store import cluster
from sexton_store.disk import Disk, Record, WriteBatch
from sexton_store.engine import EmbeddedEngine
from sexton_store.lmdb_disk import LmdbConfig, LmdbDisk
from sexton_store.memory_disk import MemoryDisk

State = dict[bytes, Record]

SIZES = (0, 20, 200, 200, 200, 1_500, 5_000, 20_000)
"""Value sizes: within a page, at its limit, and over several pages."""

CONFIG = LmdbConfig(
    initial_map_bytes=256 * 1024,
    max_map_bytes=64 * 1024 * 1024,
    margin_bytes=1024 * 1024,
    reserve_bytes=64 * 1024,
    verify_up_to_bytes=0,
)


async def run_load(engine: Engine, seed: str, steps: int) -> AsyncIterator[int]:
    """Runs the load's steps one after the other; gives the revision after each."""
    for number in range(steps):
        rng = random.Random(f"{seed}/{number}")
        name = f"load/{rng.randrange(3)}"
        held = {lease.name: lease for lease in await engine.list_leases()}
        match rng.randrange(8):
            case 0:
                token = held[name].token if name in held else 0
                acquired = await engine.acquire_lease(name, f"h{number}", 3_600_000, replaces=token)
                yield acquired.lease.token
            case 1 if name in held:
                yield await engine.release_lease(name, held[name].token)
            case _:
                txns = [_txn(rng) for _ in range(rng.randint(1, 5))]
                yield max(result.revision for result in await engine.commit(txns))


async def durable_states(twin: MemoryDisk, seed: str, steps: int) -> dict[int, State]:
    """Gives what is on the disk at each durable revision of the load that begins at `twin`."""
    states = {max_revision(twin): records(twin)}
    engine = EmbeddedEngine(twin, SystemClock(), SeededRandomness(seed))

    async def note(_: WriteBatch) -> None:
        states[max_revision(twin)] = records(twin)

    twin.before_return = note
    await engine.start()
    async for _ in run_load(engine, seed, steps):
        pass
    await engine.stop()
    return states


async def copied(disk: Disk) -> MemoryDisk:
    """Gives the twin of a disk as it now is."""
    twin = MemoryDisk()
    content = disk.cluster_record()
    if content is not None:
        batch = WriteBatch([(key, *record) for key, record in records(disk).items()], (), content)
        await twin.write(batch, use_reserve=False)
    return twin


def records(disk: Disk) -> State:
    """Reads everything that is on a disk."""
    with disk.view() as view:
        return {kv.key: Record(*kv[1:]) for kv in view.scan(b"", b"")}


def max_revision(disk: Disk) -> int:
    """Tells a disk's revision by its cluster record."""
    content = disk.cluster_record()
    return cluster.decode(content).revision if content else 0


def _txn(rng: random.Random) -> Txn:
    keys = rng.sample(range(120), rng.randint(1, 6))
    deletes = [Delete(b"key/%03d" % key) for key in keys[4:]]
    puts = [Put(b"key/%03d" % key, rng.randbytes(rng.choice(SIZES))) for key in keys[:4]]
    if rng.random() < 0.2:
        fails = Compare(b"never there", Target.EXISTS, operand=True)
        return Txn(compares=(fails,), then=(*puts,), orelse=(*deletes, *puts[:1]))
    return Txn(then=(*puts, *deletes))


async def _main(folder: Path, seed: str, steps: int) -> int:
    disk = LmdbDisk.open(folder, CONFIG)
    engine = EmbeddedEngine(disk, SystemClock(), SeededRandomness(seed))
    try:
        await engine.start()
        os.write(1, b"started\n")
        async for revision in run_load(engine, seed, steps):
            os.write(1, b"%d\n" % revision)
    except Exception as error:  # noqa: BLE001 - the test reads what ended it
        os.write(1, f"ended by {type(error).__name__}\n".encode())
        return 75
    await engine.stop()
    await disk.close()
    os.write(1, b"done\n")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
