"""The Protocol of a store: what the embedded engine, a remote one and their twins all are.

Semantics are no stronger than what etcd's Txn, Lease and Watch can promise, so that a distributed
engine can stand behind the same calls. One conformance suite (``tests/conformance/engine``) holds
every implementation to them, reading each one's `limits`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from sexton_runtime.kv.types import (
    Acquired,
    Lease,
    LeaseRef,
    Limits,
    Page,
    Renewal,
    Snapshot,
    Txn,
    TxnResult,
    WatchBatch,
)


class Watching(Protocol):
    """An open watch, an asynchronous iterator. Whoever opened it closes it."""

    def __aiter__(self) -> AsyncIterator[WatchBatch]:
        """Gives itself."""
        ...

    async def __anext__(self) -> WatchBatch:
        """Waits for the next batch."""
        ...

    async def aclose(self) -> None:
        """Ends it; idempotent. A following `__anext__` raises `StopAsyncIteration`."""
        ...


class Engine(Protocol):
    """Ordered keys, atomic transactions, watches and leases under one global revision.

    Every method may raise `sexton.errors.InvalidArgument` or `TooLarge` (a shape, or a bound of
    `limits`; see `validate.py`) and `Unavailable` (not serving; nothing happened). Those that
    commit also raise `Overloaded` (too much waits; nothing happened) and `OutcomeUnknown` (the
    engine stops: whether the effect happened is not known), the lease calls `NoSpace`.
    """

    @property
    def limits(self) -> Limits:
        """Tells the bounds of this engine."""
        ...

    async def commit(
        self, txns: Sequence[Txn], *, timeout_s: float | None = None
    ) -> tuple[TxnResult, ...]:
        """Evaluates independent transactions in order; answers when what they wrote is durable.

        A refused one never aborts its neighbours. When `timeout_s` has passed before the batch
        is evaluated it is dropped whole and `DeadlineExceeded` is raised; once evaluated it
        is carried through, also if the caller is cancelled.
        """
        ...

    async def get(self, keys: Sequence[bytes], *, keys_only: bool = False) -> Snapshot:
        """Reads keys from one snapshot that includes every commit acknowledged before.

        Raises `TooLarge` where keys and values together pass `max_page_bytes`: ask for fewer.
        """
        ...

    async def scan(
        self,
        start: bytes = b"",
        end: bytes = b"",
        *,
        limit: int = 0,
        reverse: bool = False,
        keys_only: bool = False,
        page_token: bytes = b"",
        min_version: int = 0,
    ) -> Page:
        """Reads one page of [start, end) from one snapshot; an empty `end` is the last key.

        Keys with a version below `min_version` are left out: the page may be short, or empty, and
        yet not be the last.
        """
        ...

    def watch(self, prefix: bytes, start_revision: int = 0, *, keys_only: bool = False) -> Watching:
        """Follows the changes below `prefix` from a revision on (0: the next).

        The first batch comes at once and carries the progress; batches are gapless, in order
        and atomic per revision. Whatever is wrong is raised by `__anext__`: `Compacted`,
        `FutureRevision`, `SlowWatcher`, `Overloaded`, `InvalidArgument`, `Unavailable`.
        """
        ...

    async def acquire_lease(
        self, name: str, holder: str, ttl_ms: int, *, value: bytes = b"", replaces: int = 0
    ) -> Acquired:
        """Creates the lease if it is absent, or after releasing it if its token is `replaces`."""
        ...

    async def renew_leases(self, leases: Sequence[LeaseRef]) -> tuple[Renewal, ...]:
        """Gives each lease its full time again, in memory, never behind commits."""
        ...

    async def release_lease(self, name: str, token: int) -> int:
        """Deletes the lease's key if the token is its own; gives the revision, 0 if it was not."""
        ...

    async def list_leases(self, prefix: str = "") -> tuple[Lease, ...]:
        """Lists the leases whose name starts with `prefix`, in order of name."""
        ...
