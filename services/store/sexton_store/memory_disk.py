"""The twin of `LmdbDisk`: keeps what is durable in memory, and can be made to misbehave.

What survives a `crash()` is exactly what was durable at that moment. The seams for faults:

- `before_durable` and `before_return` are awaited inside `write`, before and after the step becomes
  durable: a slow disk, a crash in between, a gate that a test opens;
- `capacity_bytes` bounds the size, the last `reserve_bytes` of it for steps that may use them;
  `jammed` refuses every step, as a disk that others have filled to the last byte;
- `fail_next()` makes the next step fail with an unknown outcome, with or without its effect.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sexton_runtime.kv.types import KeyValue
from sexton_store.disk import (
    DamagedError,
    DiskFailedError,
    DiskFullError,
    DiskUsage,
    Record,
    WriteBatch,
)
from sexton_store.history import HistorySink

Hook = Callable[[WriteBatch], Awaitable[None]]

RECORD_OVERHEAD_BYTES = 32
"""What a record takes beside its key and value."""
UNBOUNDED_BYTES = 2**40


@dataclass(slots=True)
class _State:
    """One durable state. Replaced, not changed, while a view looks at it."""

    cluster_record: bytes | None = None
    records: dict[bytes, Record] = field(default_factory=dict)
    order: list[bytes] = field(default_factory=list)
    used_bytes: int = 0
    views: int = 0

    def copy(self) -> _State:
        return _State(self.cluster_record, dict(self.records), list(self.order), self.used_bytes)

    def apply(self, batch: WriteBatch) -> None:
        self.cluster_record = batch.cluster_record
        for row in batch.puts:
            key = row[0]
            if key not in self.records:
                insort(self.order, key)
            self.records[key] = Record(*row[1:])
        for key in batch.deletes:
            if self.records.pop(key, None) is not None:
                del self.order[bisect_left(self.order, key)]

    def size_after(self, batch: WriteBatch) -> int:
        size = self.used_bytes
        for row in batch.puts:
            key = row[0]
            size += _size(key, Record(*row[1:])) - _size(key, self.records.get(key))
        for key in batch.deletes:
            size -= _size(key, self.records.get(key))
        return size


class MemoryView:
    """A snapshot of a `MemoryDisk`."""

    def __init__(self, state: _State, damaged: frozenset[bytes]) -> None:
        self._state = state
        self._damaged = damaged

    def cluster_record(self) -> bytes:
        """Gives the snapshot's cluster record; empty on a new disk."""
        return self._state.cluster_record or b""

    def get(self, key: bytes) -> Record | None:
        """Reads a record; raises `DamagedError` where a test has damaged it."""
        if key in self._damaged:
            raise DamagedError(f"the record of {key!r} does not match its checksum")
        return self._state.records.get(key)

    def header(self, key: bytes) -> tuple[int, int, int] | None:
        """Reads a record's numbers."""
        record = self._state.records.get(key)
        return None if record is None else record[1:]

    def headers(self, keys: Sequence[bytes]) -> dict[bytes, tuple[int, int, int]]:
        """Reads the numbers of records."""
        records = self._state.records
        return {key: records[key][1:] for key in keys if key in records}

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[KeyValue]:
        """Reads [start, end) in order; an empty `end` is the last key."""
        order = self._state.order
        low = bisect_left(order, start)
        high = bisect_left(order, end) if end else len(order)
        for index in range(high - 1, low - 1, -1) if reverse else range(low, high):
            key = order[index]
            if keys_only:
                yield KeyValue(key, b"", *self._state.records[key][1:])
                continue
            record = self.get(key)
            assert record is not None
            yield KeyValue(key, *record)


class MemoryDisk:
    """Ordered bytes that survive a `crash()`, but not the process."""

    def __init__(
        self,
        *,
        capacity_bytes: int = UNBOUNDED_BYTES,
        reserve_bytes: int = 0,
        history: HistorySink | None = None,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.reserve_bytes = reserve_bytes
        self.jammed = False
        self.before_durable: Hook | None = None
        self.before_return: Hook | None = None
        self.writes = 0
        """Steps that became durable."""
        self._state = _State()
        self._history = history
        self._damaged: frozenset[bytes] = frozenset()
        self._failing: bool | None = None  # what the next write does before it fails
        self._failed = False
        self._writing = False
        self._closed = False

    def crash(self) -> MemoryDisk:
        """Gives the disk as the next process finds it; this one never becomes durable again."""
        self._closed = True
        successor = MemoryDisk(
            capacity_bytes=self.capacity_bytes,
            reserve_bytes=self.reserve_bytes,
            history=self._history,
        )
        successor._state = self._state.copy()
        successor._damaged = self._damaged
        return successor

    def copy(self, *, cluster_record: bytes | None = None) -> MemoryDisk:
        """Gives a copy of what is durable, as a backup is one; under another cluster record."""
        copied = MemoryDisk(capacity_bytes=self.capacity_bytes, reserve_bytes=self.reserve_bytes)
        copied._state = self._state.copy()
        if cluster_record is not None:
            copied._state.cluster_record = cluster_record
        return copied

    def fail_next(self, *, with_effect: bool) -> None:
        """Makes the next step's outcome unknown: durable all the same, or not."""
        self._failing = with_effect

    def damage(self, key: bytes) -> None:
        """Makes reading a record's value fail."""
        self._damaged |= {key}

    def cluster_record(self) -> bytes | None:
        """Gives the last durable cluster record; None on a new disk."""
        return self._state.cluster_record

    @contextmanager
    def view(self) -> Iterator[MemoryView]:
        """Opens a snapshot of the last durable step."""
        state = self._state
        state.views += 1
        try:
            yield MemoryView(state, self._damaged)
        finally:
            state.views -= 1

    async def write(self, batch: WriteBatch, *, use_reserve: bool) -> None:
        """Makes one step durable; what goes wrong is what the test asked for."""
        if self._closed or self._failed:
            raise DiskFailedError("the disk is closed or has failed")
        assert not self._writing, "one write at a time"
        self._writing = True
        try:
            await self._write(batch, use_reserve=use_reserve)
        finally:
            self._writing = False

    def usage(self) -> DiskUsage:
        """Tells how full the disk is."""
        used = self._state.used_bytes
        return DiskUsage(
            used_bytes=used,
            map_bytes=self.capacity_bytes,
            max_map_bytes=self.capacity_bytes,
            disk_free_bytes=max(0, self.capacity_bytes - used),
            keys=len(self._state.records),
            oldest_reader_ms=0,
        )

    async def close(self) -> None:
        """Ends; idempotent."""
        self._closed = True

    async def _write(self, batch: WriteBatch, *, use_reserve: bool) -> None:
        size = self._state.size_after(batch)
        capacity = self.capacity_bytes - (0 if use_reserve else self.reserve_bytes)
        if size > max(capacity, self._state.used_bytes if use_reserve else 0):
            raise DiskFullError(f"{size} bytes do not fit in {capacity}")
        if self.jammed:
            raise DiskFullError("nothing fits any more")
        if self._history is not None and batch.history:
            self._history.append(batch.history)
        if self.before_durable is not None:
            await self.before_durable(batch)
        if self._closed:
            raise DiskFailedError("the process crashed before the step was durable")
        failing, self._failing = self._failing, None
        if failing is not False:
            if self._state.views:
                self._state = self._state.copy()
            self._state.apply(batch)
            self._state.used_bytes = size
            self.writes += 1
        if failing is not None:
            self._failed = True
            raise DiskFailedError("the test asked for an unknown outcome")
        if self.before_return is not None:
            await self.before_return(batch)


def _size(key: bytes, record: Record | None) -> int:
    return 0 if record is None else len(key) + len(record.value) + RECORD_OVERHEAD_BYTES
