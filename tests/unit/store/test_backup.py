from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import lmdb
import pytest
from crc32c import crc32c

from sexton.internal.v1 import cluster_pb2
from sexton_runtime.clock import SystemClock
from sexton_runtime.kv.types import Put, Txn
from sexton_runtime.randomness import SeededRandomness, SystemRandomness
from sexton_store.backup import FolderNotEmptyError, Restored, live_copy, read_chunks, restore
from sexton_store.cluster import NewerFormatError
from sexton_store.disk import DamagedError, DiskFullError
from sexton_store.doctor import examine
from sexton_store.engine import EmbeddedEngine
from sexton_store.folder import CLUSTER, CLUSTER_KEY, DATA_FILE, FolderLockedError
from sexton_store.lmdb_disk import LmdbConfig, LmdbDisk
from sexton_store.record import decode_cluster_record, encode_cluster_record

pytestmark = pytest.mark.slow  # every test starts a process or two

SMALL = LmdbConfig(reserve_bytes=0, verify_up_to_bytes=0)


class Wall(SystemClock):
    """The system's clocks, but the wall shows what the test says."""

    def __init__(self, wall_s: float) -> None:
        super().__init__()
        self.wall_s = wall_s

    def wall_ns(self) -> int:
        return round(self.wall_s * 1_000_000_000)


class Running:
    """A store's disk and engine."""

    def __init__(self, folder: Path) -> None:
        self.disk = LmdbDisk.open(folder, SMALL)
        self.engine = EmbeddedEngine(self.disk, SystemClock(), SeededRandomness(str(folder)))

    async def __aenter__(self) -> EmbeddedEngine:
        await self.engine.start()
        return self.engine

    async def __aexit__(self, *_: object) -> None:
        await self.engine.stop()
        await self.disk.close()


async def put(engine: EmbeddedEngine, key: bytes, value: bytes = b"value") -> int:
    [result] = await engine.commit([Txn(then=(Put(key, value),))])
    return result.revision


async def backed_up(folder: Path, to: Path, keys: int = 10) -> Path:
    """Gives a backup of a store at revision `keys` + 1, with one lease."""
    async with Running(folder) as engine:
        for number in range(keys):
            await put(engine, b"key/%02d" % number)
        await engine.acquire_lease("leader", "old holder", 60_000)
        async with live_copy(folder) as copy:
            shutil.copyfile(copy.path, to)
    return to


def of_newer_software(folder: Path) -> None:
    with lmdb.Environment(str(folder), max_dbs=2) as env, env.begin(write=True) as txn:
        database = env.open_db(CLUSTER, txn=txn)
        content = decode_cluster_record(txn.get(CLUSTER_KEY, db=database) or b"")
        record = cluster_pb2.ClusterRecord.FromString(content)
        record.format_version = 2
        txn.put(CLUSTER_KEY, encode_cluster_record(record.SerializeToString()), db=database)


def copies(folder: Path) -> list[Path]:
    return list(folder.glob("copy-*"))


def restored(
    backup: Path, folder: Path, *, wall_s: float = 1_000, replace: bool = False
) -> Restored:
    return restore(
        backup, folder, replace=replace, clock=Wall(wall_s), randomness=SystemRandomness()
    )


async def test_a_live_copy_is_whole_compact_and_consistent(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with Running(folder) as engine:
        for number in range(10):
            await put(engine, b"key/%02d" % number, bytes(10_000))
        async with live_copy(folder) as copy:
            await put(engine, b"later")
            content = copy.path.read_bytes()
            chunks = list(read_chunks(copy))
        assert (copy.revision, copy.records, copy.total_bytes) == (10, 10, len(content))
        assert len(content) < (folder / DATA_FILE).stat().st_size
        assert b"".join(data for data, _ in chunks) == content
        assert chunks[-1][1] == crc32c(content)
        assert copies(folder) == []
        assert await put(engine, b"still writing") == 12


async def test_a_copy_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    async with Running(tmp_path) as engine:
        await put(engine, b"key")

        async def copy() -> None:
            async with live_copy(tmp_path):
                await asyncio.sleep(60)

        copying = asyncio.create_task(copy())
        await asyncio.sleep(0.02)
        copying.cancel()
        await asyncio.wait([copying])
        assert copies(tmp_path) == []
        assert await put(engine, b"key") == 2


async def test_a_copy_needs_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Running(tmp_path):
        monkeypatch.setattr("sexton_store.backup.free_bytes", lambda _: 4096)
        with pytest.raises(DiskFullError, match="there is less room"):
            async with live_copy(tmp_path):
                pass


async def test_a_restored_store_has_all_and_goes_on_above(tmp_path: Path) -> None:
    backup = await backed_up(tmp_path / "old", tmp_path / "backup")
    result = restored(backup, tmp_path / "new", wall_s=1_000)
    assert result.revision == 1_000 * 2**21
    assert (result.backup_revision, result.replaced_revision) == (11, None)
    assert result.records == 11
    assert examine(tmp_path / "new").healthy
    async with Running(tmp_path / "new") as engine:
        assert engine.incarnation == result.incarnation
        page = await engine.scan(b"key/", b"key0")
        assert [kv.create_revision for kv in page.kvs] == list(range(1, 11))
        assert await put(engine, b"next") == 1_000 * 2**21 + 1


async def test_leases_are_kept_and_have_their_full_time_again(tmp_path: Path) -> None:
    backup = await backed_up(tmp_path / "old", tmp_path / "backup")
    restored(backup, tmp_path / "new")
    async with Running(tmp_path / "new") as engine:
        [lease] = await engine.list_leases()
        assert (lease.name, lease.holder, lease.token) == ("leader", "old holder", 11)
        assert 50_000 < lease.remaining_ms <= 60_000
        refused = await engine.acquire_lease("leader", "new holder", 1_000)
        assert not refused.granted


async def test_restoring_twice_gives_rising_revisions_and_other_incarnations(
    tmp_path: Path,
) -> None:
    backup = await backed_up(tmp_path / "old", tmp_path / "backup")
    folder = tmp_path / "new"
    first = restored(backup, folder, wall_s=1_000)
    async with Running(folder) as engine:
        token = (await engine.acquire_lease("other", "h", 60_000)).lease.token
    second = restored(backup, folder, wall_s=1_000, replace=True)
    assert second.replaced_revision == token
    assert second.revision == token + 1
    third = restored(backup, folder, wall_s=999, replace=True)
    assert third.revision == second.revision + 1
    assert len({first.incarnation, second.incarnation, third.incarnation}) == 3
    assert first.cluster_id == second.cluster_id == third.cluster_id


async def test_two_restores_within_a_second_give_no_token_twice(tmp_path: Path) -> None:
    backup = await backed_up(tmp_path / "old", tmp_path / "backup")
    first = restored(backup, tmp_path / "one", wall_s=1_000.25)
    second = restored(backup, tmp_path / "other", wall_s=1_000.75)
    assert (first.revision, second.revision) == (1_000 * 2**21 + 2**19, 1_000 * 2**21 + 3 * 2**19)


async def test_a_restored_file_is_its_owners_alone(tmp_path: Path) -> None:
    backup = await backed_up(tmp_path / "old", tmp_path / "backup")
    backup.chmod(0o644)
    restored(backup, tmp_path / "new")
    assert (tmp_path / "new" / DATA_FILE).stat().st_mode & 0o777 == 0o600


async def test_a_bad_backup_is_named_and_leaves_no_folder(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    backup.write_text("dear diary")
    with pytest.raises(DamagedError) as raised:
        restored(backup, tmp_path / "new")
    assert str(raised.value) == (
        f"{backup} is damaged (1 finding, the first: it is not a data file of a store, or its "
        f"start is damaged). Nothing was restored; take another backup."
    )
    assert not (tmp_path / "new").exists()


async def test_a_backup_of_newer_software_is_not_called_damaged(tmp_path: Path) -> None:
    backup = await backed_up(tmp_path / "old", tmp_path / "backup")
    of_newer_software(tmp_path / "old")
    shutil.copyfile(tmp_path / "old" / DATA_FILE, backup)
    for start in (
        lambda: restored(backup, tmp_path / "new"),
        lambda: LmdbDisk.open(tmp_path / "old"),
    ):
        with pytest.raises(NewerFormatError, match=r"the data has format 2, .* start the version"):
            start()
    assert [finding.check for finding in examine(tmp_path / "old").findings] == ["format"]


async def test_a_restore_above_the_backup_even_if_the_wall_clock_is_wrong(tmp_path: Path) -> None:
    backup = await backed_up(tmp_path / "old", tmp_path / "backup")
    assert restored(backup, tmp_path / "new", wall_s=0).revision == 12


async def test_a_wall_clock_beyond_all_revisions_is_refused(tmp_path: Path) -> None:
    backup = await backed_up(tmp_path / "old", tmp_path / "backup")
    with pytest.raises(ValueError, match=r"beyond 2\^53"):
        restored(backup, tmp_path / "new", wall_s=2**32)
    assert not (tmp_path / "new" / DATA_FILE).exists()


async def test_a_folder_with_anything_in_it_is_not_replaced_unasked(tmp_path: Path) -> None:
    backup = await backed_up(tmp_path / "old", tmp_path / "backup")
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    with pytest.raises(FolderNotEmptyError, match=r"not empty \(letter.txt\)"):
        restored(backup, folder)
    restored(backup, folder, replace=True)
    assert (folder / "letter.txt").read_text() == "dear"


async def test_a_running_store_is_not_replaced(tmp_path: Path) -> None:
    backup = await backed_up(tmp_path / "old", tmp_path / "backup")
    async with Running(tmp_path / "new"):
        with pytest.raises(FolderLockedError):
            restored(backup, tmp_path / "new", replace=True)


@pytest.mark.parametrize("damage", ["cut", "flipped"])
async def test_a_damaged_backup_changes_nothing(tmp_path: Path, damage: str) -> None:
    backup = await backed_up(tmp_path / "old", tmp_path / "backup")
    content = backup.read_bytes()
    spoilt = {
        "cut": content[:-4096],
        "flipped": content.replace(b"value", b"valve", 1),
    }[damage]
    assert spoilt != content
    backup.write_bytes(spoilt)
    before = (tmp_path / "old" / DATA_FILE).read_bytes()
    with pytest.raises(DamagedError):
        restored(backup, tmp_path / "old", replace=True)
    assert (tmp_path / "old" / DATA_FILE).read_bytes() == before
    async with Running(tmp_path / "old") as engine:
        assert await put(engine, b"key") == 12


async def test_damaged_data_can_be_replaced(tmp_path: Path) -> None:
    backup = await backed_up(tmp_path / "old", tmp_path / "backup")
    (tmp_path / "old" / DATA_FILE).write_bytes(b"lost")
    result = restored(backup, tmp_path / "old", replace=True)
    assert result.replaced_revision is None
    assert result.revision == 1_000 * 2**21
