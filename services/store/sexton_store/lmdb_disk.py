"""The real disk: LMDB in a data folder, with one writer thread of its own.

Commits use LMDB's default, durable flags: data pages synced, then the meta page. The map grows by
itself. Two reserves keep a full store able to shrink:

* **Disk**: a preallocated file (`folder.ReserveFile`). The first step that may use the reserve and
  finds the disk full gives it up; until it could be taken again only such steps are let through.
* **Map**: ordinary steps see a map of `max_map_bytes` and must leave the live pages within it;
  steps that may use the reserve see `margin_bytes` more, of which the last quarter is kept for
  those that only delete. LMDB copies every page that it changes and reuses freed pages two
  commits later at the earliest, so without a margin a full map could not even be emptied.

Views are short read transactions, opened and closed on the event loop within one step of it. LMDB
moves the map when it grows, under the feet of any open transaction: so growth happens on the event
loop, while no view is open and the writer thread is idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import queue
import shutil
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import lmdb

from sexton_runtime.clock import Clock, SystemClock
from sexton_store._step_writer import MapLimits, NeedsMapError, Step, StepWriter
from sexton_store._views import LmdbView, ReaderWatch
from sexton_store.disk import DiskFailedError, DiskFullError, DiskUsage, View, WriteBatch
from sexton_store.doctor import require_whole, verify_in_child
from sexton_store.folder import (
    CLUSTER,
    CLUSTER_KEY,
    DATA_FILE,
    NEW_FOLDER,
    RECORDS,
    FolderLock,
    ReserveFile,
    free_bytes,
    remove_leftover_copies,
    sync_folder,
)
from sexton_store.history import HistorySink
from sexton_store.record import (
    decode_cluster_record,
    encode_cluster_record,
    encode_rows,
)

MIB = 1024 * 1024

READER_CHECK_NS = 60 * 1_000_000_000
"""How often readers that died with their process are cleared from LMDB's table."""

VIEWS_WAIT_S = 5.0
"""How long growth waits for views to close; they are meant to live for one step of the loop."""

_MAX_READERS = 254


@dataclass(frozen=True, slots=True, kw_only=True)
class LmdbConfig:
    """Sizes of a store on disk, in bytes."""

    initial_map_bytes: int = 64 * MIB
    """The map of a new store; it doubles when it is full."""
    max_map_bytes: int = 16 * 1024 * MIB
    """To which the live data may grow. This is address space, not memory."""
    margin_bytes: int = 64 * MIB
    """What deletes and settlements may use of the map beyond `max_map_bytes`."""
    reserve_bytes: int = 64 * MIB
    """What is held on the disk for deletes and settlements; 0: nothing."""
    verify_up_to_bytes: int = 64 * MIB
    """A data file up to this size is checked whole at every start (about 10 ms per MiB)."""


class LmdbDisk:
    """An open data folder; `Disk` is its contract. One per folder; never used by a forked child."""

    def __init__(
        self,
        folder: Path,
        lock: FolderLock,
        config: LmdbConfig,
        clock: Clock,
        history: HistorySink | None,
    ) -> None:
        """Internal: `open` is the way in."""
        self._folder = folder
        self._lock = lock
        self._pid = os.getpid()
        self._clock = clock
        self._history = history
        self._limits = MapLimits(
            ordinary=config.max_map_bytes, reserve=config.max_map_bytes + config.margin_bytes
        )
        self._env = _open_environment(folder, min(config.initial_map_bytes, config.max_map_bytes))
        self._reserve = ReserveFile(folder, config.reserve_bytes)
        self._records = self._env.open_db(RECORDS)
        self._cluster = self._env.open_db(CLUSTER)
        with self._env.begin() as txn:
            stored = txn.get(CLUSTER_KEY, db=self._cluster)
        self._cluster_record = None if stored is None else decode_cluster_record(stored)
        self._writer = StepWriter(folder, self._env, self._limits, self._reserve, history)
        self._page_bytes = self._env.stat()["psize"]
        self._readers = ReaderWatch(self._env, clock)
        self._writing = False
        self._failure: str | None = None
        self._closed = False
        self._jobs: queue.SimpleQueue[tuple[Step | None, asyncio.Future[None]]]
        self._jobs = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="sexton-store-writer", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        folder: Path,
        config: LmdbConfig | None = None,
        *,
        clock: Clock | None = None,
        history: HistorySink | None = None,
    ) -> LmdbDisk:
        """Opens a data folder, creating it where it does not exist. Blocks.

        Raises `FolderLockedError` where another process has it open, `DamagedError` where the data
        file is not whole or does not pass its check, `NewerFormatError`, `DiskFailedError` or
        `OSError` where the folder cannot be used.
        """
        config = config or LmdbConfig()
        if not folder.is_dir():
            if folder.exists():
                raise NotADirectoryError(errno.ENOTDIR, "a store needs a folder", str(folder))
            folder.mkdir(parents=True, mode=0o700)
            sync_folder(folder.parent)
        lock = FolderLock(folder)
        try:
            remove_leftover_copies(folder)
            data_file = folder / DATA_FILE
            if data_file.exists():
                require_whole(folder)
                if data_file.stat().st_size <= config.verify_up_to_bytes:
                    verify_in_child(folder)
            else:
                _create(folder)
            return cls(folder, lock, config, clock or SystemClock(), history)
        except lmdb.Error as error:
            lock.release()
            raise DiskFailedError(f"the data in {folder} cannot be opened: {error}") from error
        except BaseException:
            lock.release()
            raise

    @property
    def folder(self) -> Path:
        """Tells the data folder."""
        return self._folder

    def cluster_record(self) -> bytes | None:
        """Gives the last durable cluster record; None on a new disk."""
        return self._cluster_record

    def view(self) -> AbstractContextManager[View]:
        """Opens a snapshot of the last durable step. On the event loop only."""
        self._check_process()
        return LmdbView(self._env, self._records, self._cluster, self._readers)

    async def write(self, batch: WriteBatch, *, use_reserve: bool) -> None:
        """Makes one step durable; see `Disk`."""
        self._check_process()
        if self._closed or self._failure is not None:
            raise DiskFailedError(self._failure or "the disk is closed")
        assert not self._writing, "a step is being written"
        step = Step(
            items=encode_rows(batch.puts),
            deletes=batch.deletes,
            cluster_record=encode_cluster_record(batch.cluster_record),
            history=batch.history,
            use_reserve=use_reserve,
        )
        self._writing = True
        try:
            await self._write_growing(step)
        except DiskFailedError as error:
            self._failure = str(error)
            raise
        finally:
            self._writing = False
        self._cluster_record = batch.cluster_record

    def usage(self) -> DiskUsage:
        """Tells how full the disk is; `used_bytes` counts the pages that live data takes."""
        self._check_process()
        state = self._writer.state
        return DiskUsage(
            used_bytes=state.live_pages * self._page_bytes,
            map_bytes=self._env.info()["map_size"],
            max_map_bytes=self._limits.ordinary,
            disk_free_bytes=free_bytes(self._folder),
            keys=state.keys,
            oldest_reader_ms=self._readers.oldest_ms(),
        )

    async def close(self) -> None:
        """Ends the writer thread after what it is doing, and gives the folder back; idempotent."""
        if self._closed:
            return
        self._check_process()
        self._closed = True
        ended = asyncio.get_running_loop().create_future()
        self._jobs.put((None, ended))
        await asyncio.shield(ended)
        self._thread.join()
        self._env.close()
        self._reserve.close()
        if self._history is not None:
            self._history.close()
        self._lock.release()

    async def _write_growing(self, step: Step) -> None:
        limit = self._limits.reserve if step.use_reserve else self._limits.ordinary
        if self._env.info()["map_size"] > limit:
            # A step of the reserve has grown it. LMDB keeps what is in use.
            await self._resize(limit)
        while True:
            done = asyncio.get_running_loop().create_future()
            self._jobs.put((step, done))
            try:
                await done
            except NeedsMapError:
                size = self._env.info()["map_size"]
                if size >= limit:
                    raise DiskFullError(
                        f"the map of {self._folder} is full at its limit of {limit} bytes"
                    ) from None
                await self._resize(min(2 * size, limit))
            else:
                return

    async def _resize(self, map_bytes: int) -> None:
        """Maps the file anew once no view is open; the writer thread is idle meanwhile."""
        try:
            async with asyncio.timeout(VIEWS_WAIT_S):
                await self._readers.none_open()
        except TimeoutError:
            raise DiskFullError(
                f"the map cannot grow: {self._readers.open_views} views stay open, the oldest for "
                f"{self._readers.oldest_ms()} ms"
            ) from None
        try:
            self._env.set_mapsize(map_bytes)
        except lmdb.Error as error:
            # The old map is gone, so nothing can be read any more.
            raise DiskFailedError(f"the map could not be resized: {error}") from error

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"the store of {self._folder} was opened by process {self._pid} and must not be "
                f"used by its forked child {os.getpid()}: spawn processes instead"
            )

    def _serve(self) -> None:
        """Writes the steps that come; runs in the writer thread until it is told to end."""
        look_at_ns = 0
        while True:
            if self._clock.monotonic_ns() >= look_at_ns:
                self._env.reader_check()
                look_at_ns = self._clock.monotonic_ns() + READER_CHECK_NS
            try:
                step, done = self._jobs.get(timeout=READER_CHECK_NS / 1e9)
            except queue.Empty:
                continue
            error: BaseException | None = None
            if step is not None:
                try:
                    self._writer.write(step)
                except (DiskFullError, DiskFailedError, NeedsMapError) as known:
                    error = known
                except BaseException as unknown:  # noqa: BLE001 - a lost waiter would hang the store
                    error = DiskFailedError(f"the writer thread failed: {unknown!r}")
                    error.__cause__ = unknown
            # The loop may be gone when the process is ending anyway.
            with contextlib.suppress(RuntimeError):
                done.get_loop().call_soon_threadsafe(_settle, done, error)
            if step is None:
                return


def _settle(done: asyncio.Future[None], error: BaseException | None) -> None:
    """Ends a step's wait; on the event loop. Nobody waits any more if the writer was cancelled."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _open_environment(folder: Path, map_bytes: int) -> lmdb.Environment:
    return lmdb.Environment(
        str(folder), map_size=map_bytes, max_dbs=2, max_readers=_MAX_READERS, mode=0o600
    )


def _create(folder: Path) -> None:
    """Creates the data file with its two empty databases, whole or not at all."""
    new = folder / NEW_FOLDER
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    with _open_environment(new, MIB) as env:
        env.open_db(RECORDS)
        env.open_db(CLUSTER)
    (new / DATA_FILE).rename(folder / DATA_FILE)
    shutil.rmtree(new)
    sync_folder(folder)
