"""Snapshots of the data file, and the watch over those that stay open.

LMDB reuses no page that an open snapshot may still see: a forgotten one makes the file grow without
end, and while one of this process is open the map cannot be moved.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

import lmdb

from sexton_runtime.clock import Clock
from sexton_runtime.kv.types import KeyValue
from sexton_store.disk import Record
from sexton_store.folder import CLUSTER_KEY
from sexton_store.record import (
    decode_cluster_record,
    decode_head,
    decode_key,
    decode_key_value,
    decode_record,
)

_ROW = re.compile(r"^\s*(\d+)\s+([0-9a-f]+)\s+(\d+)\s*$", re.MULTILINE)
"""A line of LMDB's table of readers with a snapshot open: pid, thread, transaction."""


class ReaderWatch:
    """Counts this process's views exactly, and ages other processes' readers as they are seen.

    Used on the event loop only.
    """

    def __init__(self, env: lmdb.Environment, clock: Clock) -> None:
        self._env = env
        self._clock = clock
        self._own: dict[int, int] = {}
        self._others: dict[tuple[str, str, str], int] = {}
        self._none_open: asyncio.Event | None = None

    @property
    def open_views(self) -> int:
        """Tells how many views of this process are open."""
        return len(self._own)

    def opened(self, view: object) -> None:
        """Notes a view that has been opened."""
        self._own[id(view)] = self._clock.monotonic_ns()

    def closed(self, view: object) -> None:
        """Notes that it has been closed."""
        del self._own[id(view)]
        if self._none_open is not None and not self._own:
            self._none_open.set()

    async def none_open(self) -> None:
        """Waits until no view is open; until the next await none will be."""
        while self._own:
            self._none_open = asyncio.Event()
            await self._none_open.wait()
        self._none_open = None

    def oldest_ms(self) -> int:
        """Tells the age of the oldest snapshot, in milliseconds of awake time; 0: none.

        A reader of another process (a backup) counts from when it was first looked at.
        """
        now = self._clock.monotonic_ns()
        own_pid = str(os.getpid())
        rows = [row for row in _ROW.findall(self._env.readers()) if row[0] != own_pid]
        self._others = {row: self._others.get(row, now) for row in rows}
        return (now - min((*self._own.values(), *self._others.values()), default=now)) // 1_000_000


class LmdbView:
    """A read transaction, opened by ``with``; `View` is its contract."""

    __slots__ = ("_cluster", "_env", "_readers", "_records", "_txn")

    _txn: lmdb.Transaction[memoryview]

    def __init__(
        self,
        env: lmdb.Environment,
        records: lmdb._Database,
        cluster: lmdb._Database,
        readers: ReaderWatch,
    ) -> None:
        self._env = env
        self._records = records
        self._cluster = cluster
        self._readers = readers

    def __enter__(self) -> Self:
        """Takes the snapshot."""
        self._txn = self._env.begin(self._records, buffers=True)
        self._readers.opened(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Lets the snapshot go; scans that are still open end with it."""
        self._txn.abort()
        self._readers.closed(self)

    def cluster_record(self) -> bytes:
        """Gives the snapshot's cluster record; empty on a new disk."""
        data = self._txn.get(CLUSTER_KEY, db=self._cluster)
        return b"" if data is None else decode_cluster_record(data)

    def get(self, key: bytes) -> Record | None:
        """Reads a record."""
        data = self._txn.get(key)
        return None if data is None else decode_record(key, data)

    def header(self, key: bytes) -> tuple[int, int, int] | None:
        """Reads a record's numbers."""
        data = self._txn.get(key)
        return None if data is None else decode_head(key, data)

    def headers(self, keys: Sequence[bytes]) -> dict[bytes, tuple[int, int, int]]:
        """Reads the numbers of records, in one call to LMDB."""
        found = self._txn.cursor(self._records).getmulti(keys)
        return {key: decode_head(key, data) for key, data in [(bytes(k), d) for k, d in found]}

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[KeyValue]:
        """Reads a range."""
        cursor = self._txn.cursor(self._records)
        if reverse:
            found = cursor.prev() if end and cursor.set_range(end) else cursor.last()
        else:
            found = cursor.set_range(start) if start else cursor.first()
        if not found:
            return
        decode = decode_key if keys_only else decode_key_value
        for raw, data in cursor.iterprev() if reverse else cursor.iternext():
            key = bytes(raw)
            if (key < start) if reverse else (end and key >= end):
                return
            yield decode(key, data)
