"""A store on a full disk refuses at once what grows, and goes on with what settles and frees."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from faults.full_store import live_at_the_limit

from sexton_runtime.clock import SystemClock
from sexton_runtime.kv.types import Delete, Outcome, Put, Txn
from sexton_runtime.randomness import SeededRandomness
from sexton_store.contract import EngineConfig
from sexton_store.doctor import examine
from sexton_store.engine import EmbeddedEngine
from sexton_store.history import FileHistory, read_history
from sexton_store.lmdb_disk import LmdbConfig, LmdbDisk

pytestmark = [pytest.mark.system, pytest.mark.slow]

MIB = 1024 * 1024
CONFIG = LmdbConfig(reserve_bytes=MIB, verify_up_to_bytes=0)


class Store:
    def __init__(self, disk: Path) -> None:
        # The history has a disk of its own: its lines grow with deletes too.
        self.folder, self.lines = disk / "data", disk.parent / "history"
        self.disk = LmdbDisk.open(self.folder, CONFIG, history=FileHistory(self.lines))
        config = EngineConfig(history=True)
        self.engine = EmbeddedEngine(self.disk, SystemClock(), SeededRandomness(1), config)

    async def commit(self, *ops: Put | Delete, reserve: bool = False) -> Outcome:
        [result] = await self.engine.commit([Txn(then=ops, use_reserve=reserve)])
        return result.outcome

    async def fill(self, prefix: bytes, value_bytes: int) -> list[bytes]:
        """Submits until it is refused; gives the keys that were accepted."""
        keys: list[bytes] = []
        while True:
            key = b"%s%06d" % (prefix, len(keys))
            value = random.Random(len(keys)).randbytes(value_bytes)
            if await self.commit(Put(key, value)) is Outcome.NO_SPACE:
                return keys
            keys.append(key)

    async def keys(self) -> set[bytes]:
        found: set[bytes] = set()
        token = b""
        while True:
            page = await self.engine.scan(keys_only=True, page_token=token)
            found |= {kv.key for kv in page.kvs}
            token = page.next_token
            if not token:
                return found

    async def end(self) -> None:
        await self.engine.stop()
        await self.disk.close()


def occupy(disk: Path) -> Path:
    """Fills the disk to the last byte, as another program would."""
    other = disk / "other"
    with other.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return other


@pytest.mark.parametrize("value_bytes", [500, 3_000, 100_000])
async def test_a_full_disk(small_disk: Path, value_bytes: int) -> None:
    store = Store(small_disk)
    await store.engine.start()
    submitted = await store.fill(b"run/", value_bytes)
    assert len(submitted) * value_bytes > 3 * MIB
    occupied = occupy(small_disk)
    submitted += await store.fill(b"last/", value_bytes)  # what a refused step had allocated
    assert store.engine.status().full

    # Submit fails fast, again and again; nothing is half there. One more may fit: a page may be
    # freed by the record of the clock, which is written every few seconds.
    more = [await store.fill(b"more%02d/" % number, value_bytes) for number in range(20)]
    assert sum(map(len, more)) <= 2
    submitted += [key for keys in more for key in keys]
    assert await store.keys() == set(submitted)

    # Settlements and deletes go on.
    settled = submitted[: min(100, len(submitted) // 2)]
    for key in settled:
        done = await store.commit(Delete(key), Put(b"ended/" + key, b"done" * 25), reserve=True)
        assert done is Outcome.COMMITTED
    purged = submitted[len(settled) : -5]
    for key in purged:
        assert await store.commit(Delete(key)) is Outcome.COMMITTED
    expected = {b"ended/" + key for key in settled} | set(submitted[-5:])
    assert await store.keys() == expected

    # There is room inside the file now, although the disk is as full as before; no restart.
    assert await store.commit(Put(b"again", bytes(value_bytes))) is Outcome.COMMITTED
    assert not store.engine.status().full
    occupied.unlink()
    assert await store.commit(Put(b"and again", bytes(value_bytes))) is Outcome.COMMITTED
    assert await store.keys() == expected | {b"again", b"and again"}
    await store.end()
    assert examine(store.folder).findings == ()

    # The history holds the same commits, without the refused ones.
    kept: set[bytes] = set()
    for commit in read_history(store.lines):
        for change in commit.changes:
            (kept.discard if change.after is None else kept.add)(change.key)
    assert kept == expected | {b"again", b"and again"}
    reopened = Store(small_disk)
    await reopened.engine.start()
    assert await reopened.keys() == expected | {b"again", b"and again"}
    await reopened.end()


async def test_a_store_starts_on_a_full_disk_and_can_be_emptied(small_disk: Path) -> None:
    store = Store(small_disk)
    await store.engine.start()
    submitted = await store.fill(b"run/", 3_000)
    await store.end()
    occupy(small_disk)

    store = Store(small_disk)
    await store.engine.start()
    for key in submitted:
        assert await store.commit(Delete(key)) is Outcome.COMMITTED
    assert await store.commit(Put(b"again", bytes(3_000))) is Outcome.COMMITTED
    assert await store.keys() == {b"again"}
    await store.end()


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_in_a_long_life_on_a_full_disk_only_growing_is_refused(
    small_disk: Path, seed: int
) -> None:
    (small_disk / "other").write_bytes(bytes(4 * MIB))
    disk = LmdbDisk.open(small_disk / "data", CONFIG)
    assert await live_at_the_limit(disk, seed, steps=3_000) > 10
    await disk.close()
