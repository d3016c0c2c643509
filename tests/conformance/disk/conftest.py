from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conformance.disk.bench import Bench

from sexton_store.disk import Disk
from sexton_store.history import MemoryHistory
from sexton_store.lmdb_disk import LmdbConfig, LmdbDisk
from sexton_store.memory_disk import MemoryDisk

SMALL = LmdbConfig(
    initial_map_bytes=256 * 1024,
    max_map_bytes=2 * 1024 * 1024,
    margin_bytes=1024 * 1024,
    reserve_bytes=64 * 1024,
    verify_up_to_bytes=0,
)


@pytest.fixture(params=["lmdb", "memory"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    made: Bench
    history = MemoryHistory()
    if request.param == "lmdb":

        def open_disk() -> LmdbDisk:
            return LmdbDisk.open(tmp_path / "data", SMALL, history=history)

        async def reopen() -> Disk:
            await made.disk.close()
            return open_disk()

        made = Bench(open_disk(), reopen, history)
    else:
        memory = MemoryDisk(
            capacity_bytes=SMALL.max_map_bytes + SMALL.margin_bytes,
            reserve_bytes=SMALL.margin_bytes,
            history=history,
        )

        async def reopen() -> Disk:
            assert isinstance(made.disk, MemoryDisk)
            return made.disk.crash()

        made = Bench(memory, reopen, history)
    yield made
    await made.disk.close()


@pytest.fixture
def disk(bench: Bench) -> Disk:
    return bench.disk
