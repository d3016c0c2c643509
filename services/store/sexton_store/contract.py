"""What the store's servicer and application see of its engine.

`sexton_runtime.kv.engine.Engine` is what every client sees; this adds what only the process that
runs the engine needs: its life, its state, its clock and its configuration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from sexton.errors import SextonError
from sexton_runtime.kv.columns import Run
from sexton_runtime.kv.engine import Engine, Watching
from sexton_runtime.kv.status import ClockReading
from sexton_runtime.kv.types import Limits
from sexton_store.disk import DiskUsage
from sexton_store.leases import MAX_COUNTED_NS, NS_PER_MS
from sexton_store.machine import Result

KIB = 1024
MIB = 1024 * KIB

LIMITS = Limits(
    max_key_bytes=480,  # LMDB's 511, less what an index may put before a key
    max_value_bytes=MIB,
    max_ops_per_txn=100,  # etcd's 128, less room for fences
    max_txn_bytes=MIB,
    max_txns_per_commit=1_000,
    max_commit_bytes=3 * MIB,  # below gRPC's 4 MiB per message
    max_keys_per_get=1_000,
    max_page_items=1_000,
    max_page_bytes=3 * MIB,
    min_lease_ttl_ms=100,
    max_lease_ttl_ms=3_600_000,
    max_leases_per_renew=1_000,
)
"""The embedded engine's bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Bounds and periods of the embedded engine. Sizes count keys and values, in bytes."""

    coordinator_shards: int | None = None
    """1 to 1,000, fixed when the cluster is created; None: what it is, or 1 of a new one."""
    queue_shards: int | None = None
    """1 to 1,000, fixed when the cluster is created; None: what it is, or 1 of a new one."""
    max_step_txns: int = 1_000
    """Transactions that one durable step gathers."""
    max_step_bytes: int = 8 * MIB
    """Bytes that one durable step gathers."""
    max_waiting_requests: int = 20_000
    """Requests that wait for a step; one more is answered Overloaded."""
    max_waiting_bytes: int = 64 * MIB
    """Bytes that wait for a step; more is answered Overloaded."""
    watch_window_events: int = 100_000
    """Events kept for watchers that come or lag behind."""
    watch_window_bytes: int = 64 * MIB
    """Bytes kept for watchers that come or lag behind."""
    max_watchers: int = 1_000
    """Watches open at once; one more is answered Overloaded."""
    max_leases: int = 10_000
    """Leases held at once; one more is answered Overloaded."""
    progress_interval_ms: int = 5_000
    """A watcher to which nothing happened hears this often how far it is."""
    tick_ms: int = 50
    """How often the awake clock and the deadlines are looked at; at most 250."""
    persist_interval_ms: int = 5_000
    """How old the durable mesh clock may grow while nothing is written."""
    history: bool = False
    """Whether each step hands its history lines to the disk."""

    def __post_init__(self) -> None:
        """Raises `ValueError` where a bound can't be one."""
        for name in fields(self):
            value = getattr(self, name.name)
            if value is not None and value < 1 and name.name != "history":
                raise ValueError(f"{name.name}: {value} can't be; use 1 or more")
        if self.tick_ms > MAX_COUNTED_NS // NS_PER_MS:
            raise ValueError(f"tick_ms: {self.tick_ms} can't be; awake time counts at most 250")


@dataclass(slots=True, kw_only=True)
class EngineCounters:
    """What the engine has done since its start."""

    steps: int = 0
    """Durable steps, those of the clock included."""
    txns: int = 0
    """Transactions evaluated in steps that ended well."""
    ops: int = 0
    """Compares and writes of those transactions."""
    dropped: int = 0
    """Requests dropped unevaluated: deadline passed, or the caller had gone."""
    overloaded: int = 0
    """Requests refused because too much waited."""
    full_steps: int = 0
    """Steps that the disk had no space for."""
    renewals: int = 0
    """Renewals granted."""
    expired_leases: int = 0
    """Leases whose time ran out."""
    slow_watchers: int = 0
    """Watchers that were cut."""
    clock_steps: int = 0
    """Forward steps of the wall clock that mesh time followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """What the store is and how it is, at one moment."""

    cluster_id: str
    incarnation: str
    epoch: int
    format_version: int
    coordinator_shards: int
    queue_shards: int
    revision: int
    """The last durable revision."""
    oldest_watch_revision: int
    """The oldest from which Watch can start."""
    full: bool
    """Whether growing writes are refused for want of space."""
    usage: DiskUsage
    watches: int
    leases: int
    waiting_requests: int
    waiting_bytes: int
    clock: ClockReading
    counters: EngineCounters


class StoreWatching(Watching, Protocol):
    """A watch that its server can end."""

    def end(self, error: SextonError) -> None:
        """Lets the reader run into an error, once it has what it is reading."""
        ...


class StoreEngine(Engine, Protocol):
    """An engine that this process runs."""

    def watch(
        self, prefix: bytes, start_revision: int = 0, *, keys_only: bool = False
    ) -> StoreWatching:
        """Follows the changes below `prefix` (see `Engine.watch`)."""
        ...

    def commit_runs(
        self, runs: Sequence[Run], *, timeout_s: float | None = None
    ) -> asyncio.Future[list[Result]]:
        """Evaluates independent transactions as `commit` does; cancel it to take them back.

        Gives of each that was committed its revision, and of every other one its result.
        """
        ...

    @property
    def failed(self) -> asyncio.Event:
        """Is set when a commit's outcome is not known: the process must exit, non-zero."""
        ...

    @property
    def incarnation(self) -> str:
        """Identifies the incarnation of the data; calls of another are refused."""
        ...

    async def start(self) -> None:
        """Creates or resumes the cluster, then serves.

        Raises `NewerFormatError`, `DamagedError`, `OutcomeUnknown`, and `NoSpace` where there is
        none for a new cluster; an existing one starts on a full disk.
        """
        ...

    async def stop(self) -> None:
        """Answers what waits, records the clock, ends the watches. Idempotent. Closes no disk."""
        ...

    def status(self) -> EngineStatus:
        """Tells what the store is and how it is."""
        ...

    def clock(self) -> ClockReading:
        """Reads mesh time."""
        ...

    async def accept_clock(self, dispute: int) -> ClockReading:
        """Lets mesh time follow the wall clock; answers when that is durable.

        Accepting the last dispute again, once it is settled, changes nothing. Raises
        `StaleRevision` where `dispute` is not the last one, `InvalidArgument` where it is below 1.
        """
        ...
