"""One durable step at a time: what the writer thread does with LMDB, and how it judges errors."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import lmdb

from sexton_store.disk import DiskFailedError, DiskFullError
from sexton_store.folder import (
    CLUSTER,
    CLUSTER_KEY,
    DATA_FILE,
    FULL_ERRNOS,
    RECORDS,
    ReserveFile,
    allocated_bytes,
    free_bytes,
)
from sexton_store.history import HistorySink

SHORT_WRITE_FREE_BYTES = 1024 * 1024
"""LMDB reports a write that a full disk cut short as EIO; with less than this free it was that."""

_STEP_OVERHEAD_PAGES = 16
"""The roots, the cluster record's leaf and the free list's pages that every step rewrites."""


class NeedsMapError(Exception):
    """The step needs a larger map. Nothing was written."""


class Step(NamedTuple):
    """A write batch as the writer thread wants it: encoded."""

    items: Sequence[tuple[bytes, bytes]]
    deletes: Sequence[bytes]
    cluster_record: bytes
    history: Sequence[bytes]
    use_reserve: bool


class MapLimits(NamedTuple):
    """Bytes of the map that steps may use: ordinary ones, and those that settle or free."""

    ordinary: int
    reserve: int

    @property
    def margin(self) -> int:
        """Tells what only the latter may use."""
        return self.reserve - self.ordinary


class MapState(NamedTuple):
    """What the last durable step left: pages in use, pages ever used, depth and number of keys."""

    live_pages: int
    used_pages: int
    depth: int
    keys: int
    txn_id: int


class StepWriter:
    """Writes steps into an environment that is this process's alone. Blocks; not thread-safe."""

    def __init__(
        self,
        folder: Path,
        env: lmdb.Environment,
        limits: MapLimits,
        reserve: ReserveFile,
        history: HistorySink | None,
    ) -> None:
        self._folder = folder
        self._env = env
        self._limits = limits
        self._reserve = reserve
        self._history = history
        self._records = env.open_db(RECORDS)
        self._cluster = env.open_db(CLUSTER)
        self._data_file = folder / DATA_FILE
        self._page_bytes = env.stat()["psize"]
        with env.begin() as txn:
            self.state = self._state(txn, used_pages=env.info()["last_pgno"] + 1)

    def write(self, step: Step) -> None:
        """Makes a step durable.

        Raises `NeedsMapError` or `DiskFullError` (nothing of it was written; go on), or
        `DiskFailedError` (not known; stop).
        """
        may_give_up = step.use_reserve
        while True:
            try:
                self._commit(step)
            except lmdb.MapFullError:
                raise NeedsMapError from None
            except (lmdb.Error, OSError) as error:
                if not self._is_full(error):
                    raise DiskFailedError(f"the commit failed: {error}") from error
                if not (may_give_up and self._reserve.held):
                    raise DiskFullError(
                        f"the disk of {self._folder}, or of its history, is full"
                    ) from error
                self._reserve.give_up()
                may_give_up = False  # once: what is full need not be what the reserve is on
            else:
                return

    def _commit(self, step: Step) -> None:
        """Puts the step through one transaction; on any error nothing of it is kept open."""
        self._admit_before(step)
        txn = self._env.begin(write=True)
        noted = False
        try:
            if step.items:
                with txn.cursor(self._records) as cursor:
                    cursor.putmulti(step.items)
            for key in step.deletes:
                txn.delete(key, db=self._records)
            txn.put(CLUSTER_KEY, step.cluster_record, db=self._cluster)
            state = self._state(txn, used_pages=0)
            self._admit_after(step, state)
            if self._history is not None and step.history:
                self._history.append(step.history)
                noted = True
            txn.commit()
        except BaseException as error:
            txn.abort()
            if noted and self._history is not None and self._is_full(error):
                self._history.undo()
            raise
        self.state = state._replace(used_pages=self._env.info()["last_pgno"] + 1)

    def _admit_before(self, step: Step) -> None:
        """Refuses an ordinary step whose worst case would eat the pages that a later delete needs.

        Pages that a step copies are free again only two steps later, so an ordinary step that took
        all free ones could leave a store in which not even a delete goes through. A whole reserve
        prevents that; where it is used up, a quarter of it must stay in the free list.
        """
        if step.use_reserve:
            return
        capacity, kept = self._capacity()
        if self._reserve.held and self.state.used_pages * self._page_bytes <= capacity - kept:
            return
        copies = (len(step.items) + len(step.deletes)) * (self.state.depth + 1)
        values = sum(1 + len(data) // self._page_bytes for _, data in step.items)
        worst = min(copies, self.state.live_pages) + values + _STEP_OVERHEAD_PAGES
        if (self.state.live_pages + worst) * self._page_bytes > capacity - kept // 4:
            raise self._refusal(capacity - kept)

    def _admit_after(self, step: Step, state: MapState) -> None:
        """Refuses a step that leaves more live pages than its kind may; deleting always may."""
        if not step.use_reserve:
            capacity, kept = self._capacity()
        elif step.items:
            capacity, kept = self._limits.reserve, self._limits.margin // 4
        else:
            return
        if state.live_pages * self._page_bytes > capacity - kept:
            raise self._refusal(capacity - kept)

    def _capacity(self) -> tuple[int, int]:
        """Tells how many bytes the data file may have, and how many of them are a reserve.

        A full disk whose reserve has been given up lets the file grow no more, but steps may fill
        what deletes have freed inside it, up to a reserve that is then kept there.
        """
        if self._reserve.held or self._reserve.take():
            return self._limits.reserve, self._limits.margin
        return min(allocated_bytes(self._data_file), self._limits.reserve), self._reserve.size_bytes

    def _refusal(self, limit_bytes: int) -> DiskFullError:
        used = self.state.live_pages * self._page_bytes
        if self._reserve.held:
            return DiskFullError(
                f"the store has reached its limit: {used} of {limit_bytes} bytes (max_map_bytes)"
            )
        return DiskFullError(
            f"the disk of {self._folder} is full ({free_bytes(self._folder)} bytes are free), and "
            f"what is free inside the data file is the last reserve"
        )

    def _is_full(self, error: BaseException) -> bool:
        """Tells whether an error means "no room" and the environment is as it was before.

        LMDB sets a failed meta page write right by refusing everything from then on, which
        beginning a transaction shows.
        """
        if isinstance(error, DiskFullError | lmdb.MapFullError):
            return True
        code = getattr(error, "code" if isinstance(error, lmdb.Error) else "errno", None)
        short_write = code == errno.EIO and free_bytes(self._folder) < SHORT_WRITE_FREE_BYTES
        if code not in FULL_ERRNOS and not short_write:
            return False
        try:
            self._env.begin(write=True).abort()
            return self._env.info()["last_txnid"] == self.state.txn_id
        except lmdb.Error:
            return False

    def _state(self, txn: lmdb.Transaction, *, used_pages: int) -> MapState:
        stat = txn.stat(self._records)
        pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return MapState(
            live_pages=pages + _STEP_OVERHEAD_PAGES,
            used_pages=used_pages,
            depth=stat["depth"],
            keys=stat["entries"],
            txn_id=txn.id(),
        )
