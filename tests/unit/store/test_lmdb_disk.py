"""What only the real disk does: its lock, its map, its views, and damage."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import pytest
from faults.full_store import live_at_the_limit

from sexton_store.disk import DamagedError, DiskFailedError, DiskFullError, Record, WriteBatch
from sexton_store.doctor import child_environment
from sexton_store.folder import DATA_FILE, FolderLockedError, ReserveFile
from sexton_store.history import MemoryHistory
from sexton_store.lmdb_disk import LmdbConfig, LmdbDisk

KIB = 1024
MIB = 1024 * KIB
SMALL = LmdbConfig(
    initial_map_bytes=256 * KIB,
    max_map_bytes=8 * MIB,
    margin_bytes=MIB,
    reserve_bytes=64 * KIB,
    verify_up_to_bytes=0,
)
CHECKED = LmdbConfig(reserve_bytes=0)


def batch(number: int, size: int = 100) -> WriteBatch:
    record = Record(bytes(size), 1, 1, 1)
    return WriteBatch([(b"key/%04d/%02d" % (number, i), *record) for i in range(20)], (), b"c")


async def written(folder: Path, steps: int = 20) -> Path:
    """Gives the data file of a store that has been closed."""
    disk = LmdbDisk.open(folder, SMALL)
    for number in range(steps):
        await disk.write(batch(number), use_reserve=False)
    await disk.close()
    return folder / DATA_FILE


def python(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def exit_code_of_fork(call: Callable[[], object]) -> int:
    """Calls in a forked child; 7: it raised RuntimeError."""
    child = os.fork()
    if child != 0:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        call()
    except RuntimeError:
        os._exit(7)
    finally:
        os._exit(1)


@contextmanager
def reading_process(folder: Path) -> Iterator[None]:
    """Holds a snapshot open in another process, and kills that."""
    script = (
        "import lmdb, sys\n"
        "env = lmdb.Environment(sys.argv[1], max_dbs=2, readonly=True)\n"
        "with env.begin():\n    print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        yield
        reader.kill()


async def fill(disk: LmdbDisk) -> int:
    """Writes until there is no room; gives the number of the step that did not fit."""
    for number in range(1_000):
        try:
            await disk.write(batch(number, 20 * KIB), use_reserve=False)
        except DiskFullError:
            return number
    raise AssertionError("it does not become full")


class FullAtCommit:
    """An environment, or a transaction of it, whose commits find no room until told otherwise."""

    full = True
    too_late = False
    """Whether the commit has become durable when it says that there was no room."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def begin(self, *, write: bool = False) -> Any:
        return FullAtCommit(self._real.begin(write=write))

    def commit(self) -> None:
        if FullAtCommit.too_late:
            self._real.commit()
        if FullAtCommit.full:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        self._real.commit()


@pytest.mark.parametrize("reserve_bytes", [0, 64 * KIB])
async def test_a_commit_that_found_no_room_is_in_no_history_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reserve_bytes: int
) -> None:
    """Also where giving up the reserve does not help: there is none, or a quota is what is full."""
    history = MemoryHistory()
    config = replace(SMALL, reserve_bytes=reserve_bytes)
    disk = LmdbDisk.open(tmp_path, config, history=history)
    monkeypatch.setattr(disk._writer, "_env", FullAtCommit(disk._writer._env))
    step = batch(1)._replace(history=[b"one\n"])
    for use_reserve in (False, True, False, True):
        with pytest.raises(DiskFullError):
            await disk.write(step, use_reserve=use_reserve)
    assert history.lines == []
    monkeypatch.setattr(FullAtCommit, "full", False)
    await disk.write(step, use_reserve=False)
    assert history.lines == [b"one\n"]
    assert disk.usage().keys == 20
    await disk.close()


async def test_no_room_is_not_believed_of_a_commit_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LmdbDisk.open(tmp_path, SMALL)
    monkeypatch.setattr(disk._writer, "_env", FullAtCommit(disk._writer._env))
    monkeypatch.setattr(FullAtCommit, "too_late", True)
    with pytest.raises(DiskFailedError):
        await disk.write(batch(1), use_reserve=False)
    await disk.close()


class TestOneProcess:
    @pytest.mark.slow
    async def test_a_second_one_on_the_folder_is_refused_and_told_who_has_it(
        self, tmp_path: Path
    ) -> None:
        disk = LmdbDisk.open(tmp_path, SMALL)
        other = python(
            "import sys; from pathlib import Path; from sexton_store.lmdb_disk import LmdbDisk\n"
            "LmdbDisk.open(Path(sys.argv[1]))",
            tmp_path,
        )
        assert other.returncode == 1
        assert f"the data folder {tmp_path} is in use by process {os.getpid()}" in other.stderr
        await disk.close()

    async def test_the_folder_is_free_again_after_closing(self, tmp_path: Path) -> None:
        first = LmdbDisk.open(tmp_path, SMALL)
        with pytest.raises(FolderLockedError):
            LmdbDisk.open(tmp_path, SMALL)
        await first.close()
        await LmdbDisk.open(tmp_path, SMALL).close()

    async def test_a_forked_child_may_not_use_it(self, tmp_path: Path) -> None:
        disk = LmdbDisk.open(tmp_path, SMALL)
        assert exit_code_of_fork(disk.view) == 7
        await disk.close()


class TestFolder:
    async def test_what_killed_processes_left_is_removed_when_it_is_opened(
        self, tmp_path: Path
    ) -> None:
        await LmdbDisk.open(tmp_path, SMALL).close()
        (tmp_path / DATA_FILE).unlink()
        for leftover in ("new", "copy-abc"):
            (tmp_path / leftover).mkdir()
            (tmp_path / leftover / DATA_FILE).write_bytes(b"half")
        await LmdbDisk.open(tmp_path, SMALL).close()
        assert sorted(os.listdir(tmp_path)) == ["data.mdb", "lock.mdb", "reserve", "store.lock"]

    async def test_nobody_else_may_read_it(self, tmp_path: Path) -> None:
        await LmdbDisk.open(tmp_path / "data", SMALL).close()
        with os.scandir(tmp_path / "data") as entries:
            assert {entry.stat().st_mode & 0o777 for entry in entries} == {0o600}
        assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


class TestMap:
    async def test_it_grows_by_itself(self, tmp_path: Path) -> None:
        disk = LmdbDisk.open(tmp_path, SMALL)
        assert disk.usage().map_bytes == 256 * KIB
        for number in range(20):
            await disk.write(batch(number, 2 * KIB), use_reserve=False)
        assert disk.usage().map_bytes == 2 * MIB
        assert disk.usage().keys == 400
        await disk.close()

    async def test_growth_waits_for_the_views_to_close(self, tmp_path: Path) -> None:
        disk = LmdbDisk.open(tmp_path, SMALL)
        with disk.view() as view:
            writing = asyncio.create_task(disk.write(batch(0, 20 * KIB), use_reserve=False))
            done, _ = await asyncio.wait([writing], timeout=0.05)
            assert not done
            assert view.get(b"key/0000/00") is None
        await writing
        with disk.view() as view:
            assert view.header(b"key/0000/00") == (1, 1, 1)
        await disk.close()

    async def test_a_view_that_stays_open_stops_growth_but_not_the_disk(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sexton_store.lmdb_disk.VIEWS_WAIT_S", 0.01)
        disk = LmdbDisk.open(tmp_path, SMALL)
        with disk.view():
            with pytest.raises(DiskFullError, match="1 views stay open"):
                await disk.write(batch(0, 20 * KIB), use_reserve=False)
            await disk.write(batch(1), use_reserve=False)
        await disk.write(batch(0, 20 * KIB), use_reserve=False)
        await disk.close()

    async def test_a_step_beyond_the_limit_says_so(self, tmp_path: Path) -> None:
        disk = LmdbDisk.open(tmp_path, SMALL)
        with pytest.raises(DiskFullError, match="limit"):
            await disk.write(batch(0, 900 * KIB), use_reserve=False)
        await disk.write(batch(0), use_reserve=False)
        await disk.close()

    async def test_the_map_is_back_at_its_limit_after_the_reserve_was_used(
        self, tmp_path: Path
    ) -> None:
        disk = LmdbDisk.open(tmp_path, SMALL)
        number = await fill(disk)
        await disk.write(batch(number, 20 * KIB), use_reserve=True)
        assert disk.usage().map_bytes > 8 * MIB
        keys = [row[0] for row in batch(0).puts]
        await disk.write(WriteBatch((), keys, b"c"), use_reserve=True)
        await disk.write(WriteBatch((), (), b"c"), use_reserve=False)
        assert disk.usage().map_bytes <= 9 * MIB
        await disk.close()

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", [1, 2])
    async def test_in_a_long_life_at_the_limit_only_growing_is_refused(
        self, tmp_path: Path, seed: int
    ) -> None:
        config = replace(SMALL, max_map_bytes=3 * MIB, margin_bytes=512 * KIB)
        disk = LmdbDisk.open(tmp_path, config)
        assert await live_at_the_limit(disk, seed, steps=300) > 10
        await disk.close()


class TestReserveFile:
    def test_it_is_taken_given_up_and_taken_again(self, tmp_path: Path) -> None:
        reserve = ReserveFile(tmp_path, MIB)
        file = tmp_path / "reserve"
        states = [(reserve.held, file.stat().st_blocks * 512 >= MIB)]
        reserve.give_up()
        states.append((reserve.held, file.stat().st_blocks > 0))
        states.append((reserve.take(), file.stat().st_blocks * 512 >= MIB))
        reserve.close()
        assert states == [(True, True), (False, False), (True, True)]
        assert file.stat().st_blocks * 512 >= MIB

    def test_it_is_not_taken_where_there_is_no_room(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sexton_store.folder.free_bytes", lambda _: MIB)
        reserve = ReserveFile(tmp_path, MIB)
        assert not reserve.held
        monkeypatch.setattr("sexton_store.folder.free_bytes", lambda _: MIB + MIB // 4)
        assert reserve.take()
        reserve.close()


class TestReaders:
    async def test_an_open_view_has_an_age(self, tmp_path: Path) -> None:
        class Awake:
            now_ns = 0

            def monotonic_ns(self) -> int:
                return self.now_ns

        clock = Awake()
        disk = LmdbDisk.open(tmp_path, SMALL, clock=clock)  # type: ignore[arg-type]
        assert disk.usage().oldest_reader_ms == 0
        with disk.view():
            clock.now_ns = 1_500_000_000
            assert disk.usage().oldest_reader_ms == 1_500
        usage = disk.usage()
        assert usage.oldest_reader_ms == 0
        await disk.close()

    async def test_a_reader_of_another_process_has_an_age_until_it_ends(
        self, tmp_path: Path
    ) -> None:
        disk = LmdbDisk.open(tmp_path, SMALL)
        with reading_process(tmp_path):
            first = disk.usage().oldest_reader_ms
            await asyncio.sleep(0.02)
            assert disk.usage().oldest_reader_ms >= first + 20
        await disk.close()
        again = LmdbDisk.open(tmp_path, SMALL)
        assert again.usage().oldest_reader_ms == 0
        await again.close()


class TestFailure:
    async def test_an_unknown_outcome_ends_writing_for_good(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk = LmdbDisk.open(tmp_path, SMALL)
        await disk.write(batch(0), use_reserve=False)

        def broken(_: object) -> None:
            raise lmdb.PanicError("mdb_txn_begin: the environment had a fatal error")

        monkeypatch.setattr(disk._writer, "_commit", broken)
        with pytest.raises(DiskFailedError, match="fatal error"):
            await disk.write(batch(1), use_reserve=False)
        monkeypatch.undo()
        with pytest.raises(DiskFailedError, match="fatal error"):
            await disk.write(batch(2), use_reserve=False)
        await disk.close()

    async def test_a_defect_in_the_writer_thread_is_a_failure_not_a_hang(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk = LmdbDisk.open(tmp_path, SMALL)

        def defect(_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(disk._writer, "write", defect)
        with pytest.raises(DiskFailedError, match="ZeroDivisionError"):
            await disk.write(batch(1), use_reserve=False)
        await disk.close()


@pytest.mark.slow
class TestDamage:
    async def test_a_whole_file_is_opened(self, tmp_path: Path) -> None:
        await written(tmp_path)
        # The cluster record of these tests is no real one, which is damage enough to be found.
        with pytest.raises(DamagedError, match="the cluster record"):
            LmdbDisk.open(tmp_path, CHECKED)

    @pytest.mark.parametrize("left", [0, 100, 4096, 8192, 20_000, -1])
    async def test_a_file_that_was_cut_short_is_refused(self, tmp_path: Path, left: int) -> None:
        file = await written(tmp_path)
        size = file.stat().st_size
        os.truncate(file, left % size if left >= 0 else size - 4096)
        with pytest.raises(DamagedError, match=r"data\.mdb.*(cut short|damaged|meta)"):
            LmdbDisk.open(tmp_path, SMALL)

    @pytest.mark.parametrize("page", [2, 5, 9])
    async def test_a_flipped_bit_in_the_head_of_a_page_is_refused(
        self, tmp_path: Path, page: int
    ) -> None:
        file = await written(tmp_path, steps=3)
        changed = bytearray(file.read_bytes())
        changed[page * 4096 + 10] ^= 0x10
        file.write_bytes(changed)
        with pytest.raises(DamagedError, match=r"restore a backup"):
            LmdbDisk.open(tmp_path, CHECKED)

    async def test_a_flipped_byte_of_a_value_is_found_when_it_is_read(self, tmp_path: Path) -> None:
        disk = LmdbDisk.open(tmp_path, SMALL)
        marked = Record(b"the value that is damaged on the disk", 1, 1, 1)
        await disk.write(
            WriteBatch([(b"k", *marked), (b"l", *marked)], (), b"c"), use_reserve=False
        )
        await disk.close()
        file = tmp_path / DATA_FILE
        content = file.read_bytes()
        assert content.count(b"that is damaged") == 2
        file.write_bytes(content.replace(b"that is damaged", b"that is Damaged", 1))
        disk = LmdbDisk.open(tmp_path, SMALL)
        with disk.view() as view:
            assert view.header(b"k") == view.header(b"l") == (1, 1, 1)
            with pytest.raises(DamagedError, match="its value's checksum is wrong"):
                [view.get(b"k"), view.get(b"l")]
        await disk.close()
