"""The Protocol of what lies under the embedded engine: ordered bytes that survive.

`LmdbDisk` is the real one, `MemoryDisk` its twin; both pass ``tests/conformance/disk``. A disk
knows nothing of revisions, leases or compares: it stores what the engine tells it, atomically.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from sexton_runtime.kv.types import KeyValue


class Record(NamedTuple):
    """What is stored under a key."""

    value: bytes
    create_revision: int
    mod_revision: int
    version: int


Row = tuple[bytes, bytes, int, int, int]
"""A key and its record: value, create revision, mod revision, version."""


class WriteBatch(NamedTuple):
    """One durable step: final records, deletions, and the cluster record's new bytes.

    A key stands in `puts` or in `deletes`, once; both are in order of keys, in which they are
    written fastest. `history` holds the step's lines for the history file, written before the step
    is made durable (see `history.py`).
    """

    puts: Sequence[Row]
    deletes: Sequence[bytes]
    cluster_record: bytes
    history: Sequence[bytes] = ()


class DiskUsage(NamedTuple):
    """How full a disk is, in bytes."""

    used_bytes: int
    map_bytes: int
    max_map_bytes: int
    disk_free_bytes: int
    keys: int
    oldest_reader_ms: int


class DiskFullError(Exception):
    """The step did not fit. Nothing of it was written; the disk goes on working."""


class DiskFailedError(Exception):
    """Whether the step became durable is not known. The process must stop and start again."""


class DamagedError(Exception):
    """What is on the disk is not what was written there (checksum, format)."""


class View(Protocol):
    """A consistent read-only snapshot. Short-lived: open, read, close within one step."""

    def cluster_record(self) -> bytes:
        """Gives the snapshot's own cluster record, so that its revision is known exactly."""
        ...

    def get(self, key: bytes) -> Record | None:
        """Reads a record; raises `DamagedError` where its checksum is wrong."""
        ...

    def header(self, key: bytes) -> tuple[int, int, int] | None:
        """Reads (create_revision, mod_revision, version) without the value."""
        ...

    def headers(self, keys: Sequence[bytes]) -> Mapping[bytes, tuple[int, int, int]]:
        """Reads `header` of those of many keys that there are; fastest where they are in order."""
        ...

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[KeyValue]:
        """Reads [start, end) in order; an empty `end` is the last key."""
        ...


class Disk(Protocol):
    """Ordered durable bytes: single writer, snapshot readers that never block it."""

    def cluster_record(self) -> bytes | None:
        """Gives the last durable cluster record; None on a new disk."""
        ...

    def view(self) -> AbstractContextManager[View]:
        """Opens a snapshot of the last durable step."""
        ...

    async def write(self, batch: WriteBatch, *, use_reserve: bool) -> None:
        """Makes one step durable. One at a time; must not be cancelled.

        Raises `DiskFullError` (nothing happened) or `DiskFailedError` (stop the process).
        """
        ...

    def usage(self) -> DiskUsage:
        """Tells how full the disk is."""
        ...

    async def close(self) -> None:
        """Ends; idempotent."""
        ...
