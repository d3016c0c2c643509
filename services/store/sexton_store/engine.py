"""The embedded engine: one process, one disk, one writer.

Reads go straight to a snapshot of the disk, renewals to the table in memory; all that commits goes
through the writer. The engine implements `sexton_runtime.kv.engine.Engine`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import structlog

from sexton.errors import InvalidArgument, NoSpace, Overloaded, TooLarge, Unavailable
from sexton_runtime.clock import Clock
from sexton_runtime.kv.columns import Run
from sexton_runtime.kv.status import ClockReading
from sexton_runtime.kv.types import (
    LEASE_PREFIX,
    Acquired,
    KeyValue,
    Lease,
    LeaseRef,
    Limits,
    Page,
    Renewal,
    Snapshot,
    Txn,
    TxnResult,
    prefix_end,
)
from sexton_runtime.kv.validate import (
    check_acquire,
    check_keys,
    check_lease_prefix,
    check_range,
    check_release,
    check_renewals,
    check_revision,
    check_runs,
    check_txns,
    check_watch,
)
from sexton_runtime.randomness import Randomness
from sexton_store import cluster as clusters
from sexton_store.contract import LIMITS, EngineConfig, EngineStatus
from sexton_store.disk import Disk, View
from sexton_store.leases import LeaseTable
from sexton_store.machine import Result, result_of
from sexton_store.paging import continue_range, make_token
from sexton_store.requests import AcquireRequest, CommitRequest, PersistRequest, ReleaseRequest
from sexton_store.timekeeper import Timekeeper
from sexton_store.watch import Watcher
from sexton_store.writer import Writer

MAX_PASSED = 10_000
"""Keys that a scan leaves out before it gives others their turn: some milliseconds."""

_log = structlog.get_logger(__name__)


class EmbeddedEngine:
    """The store in this process (see `StoreEngine`)."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        randomness: Randomness,
        config: EngineConfig | None = None,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._randomness = randomness
        self._config = config or EngineConfig()
        self._failed = asyncio.Event()
        self._running: _Running | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._acquiring = 0  # calls under way that may each add a lease

    @property
    def limits(self) -> Limits:
        """Tells the bounds of this engine."""
        return LIMITS

    @property
    def failed(self) -> asyncio.Event:
        """Is set when a commit's outcome is not known: the process must exit, non-zero."""
        return self._failed

    @property
    def incarnation(self) -> str:
        """Identifies the incarnation of the data."""
        return self._live.cluster.incarnation

    async def start(self) -> None:
        """Creates or resumes the cluster, then serves; also on a full disk, if there is one."""
        assert self._running is None, "an engine is started once"
        running = _Running(self._disk, self._clock, self._randomness, self._config, self._failed)
        self._running = running
        self._tasks = [
            asyncio.create_task(running.writer.run(), name="store writer"),
            asyncio.create_task(running.tick_forever(), name="store ticker"),
        ]
        try:
            await running.writer.submit(PersistRequest())
        except NoSpace:
            if running.is_new:
                await self.stop()
                raise
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Answers what waits, records the clock, ends the watches. Idempotent."""
        if self._running is None:
            return
        writer, (writing, ticking) = self._running.writer, self._tasks
        ticking.cancel()
        if writer.serving:
            writer.persist()
        writer.stop()
        await asyncio.wait(self._tasks)
        writer.hub.end()
        for task in (writing, ticking):
            if not task.cancelled():
                task.result()

    def status(self) -> EngineStatus:
        """Tells what the store is and how it is."""
        live = self._live
        writer, cluster = live.writer, live.cluster
        counters = replace(
            writer.counters, slow_watchers=writer.hub.cut, clock_steps=live.time.mesh.steps
        )
        return EngineStatus(
            cluster_id=cluster.cluster_id,
            incarnation=cluster.incarnation,
            epoch=cluster.epoch,
            format_version=cluster.format_version,
            coordinator_shards=cluster.coordinator_shards,
            queue_shards=cluster.queue_shards,
            revision=writer.revision,
            oldest_watch_revision=writer.hub.oldest,
            full=writer.full,
            usage=self._disk.usage(),
            watches=len(writer.hub),
            leases=len(live.leases),
            waiting_requests=writer.lanes.requests,
            waiting_bytes=writer.lanes.weight_bytes,
            clock=live.time.read(),
            counters=counters,
        )

    def clock(self) -> ClockReading:
        """Reads mesh time."""
        return self._live.time.read()

    async def accept_clock(self, dispute: int) -> ClockReading:
        """Lets mesh time follow the wall clock; answers when that is durable."""
        live = self._live
        live.writer.check_serving()
        if dispute < 1:
            raise InvalidArgument("dispute", dispute, "the number of a dispute, from 1")
        live.time.accept(dispute)
        await live.writer.submit(PersistRequest())
        return live.time.read()

    async def commit(
        self, txns: Sequence[Txn], *, timeout_s: float | None = None
    ) -> tuple[TxnResult, ...]:
        """Evaluates independent transactions in order; answers when they are durable."""
        runs, cost = check_txns(tuple(txns), LIMITS)
        request = CommitRequest(runs, ops=cost.ops, size_bytes=cost.size_bytes)
        results = await self._live.writer.enqueue(request, timeout_s=timeout_s)
        return tuple([result_of(result) for result in results])

    def commit_runs(
        self, runs: Sequence[Run], *, timeout_s: float | None = None
    ) -> asyncio.Future[list[Result]]:
        """Evaluates independent transactions as `commit` does; cancel it to take them back."""
        cost = check_runs(runs, LIMITS)
        request = CommitRequest(runs, ops=cost.ops, size_bytes=cost.size_bytes)
        return self._live.writer.enqueue(request, timeout_s=timeout_s)

    async def get(self, keys: Sequence[bytes], *, keys_only: bool = False) -> Snapshot:
        """Reads keys from one snapshot that includes every commit acknowledged before."""
        check_keys(keys, LIMITS)
        live = self._live
        live.writer.check_serving()
        kvs: list[KeyValue] = []
        size_bytes = 0
        with self._disk.view() as view:
            for key in keys:
                kvs.append(_read(view, key, keys_only=keys_only))
                size_bytes += len(key) + len(kvs[-1].value)
                if size_bytes > LIMITS.max_page_bytes:
                    raise TooLarge("the keys' values", size_bytes, LIMITS.max_page_bytes)
            revision = live.revision_of(view)
        await live.writer.published(revision)
        return Snapshot(revision, tuple(kvs), live.time.mesh_ns())

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
        """Reads one page of [start, end) from one snapshot; an empty `end` is the last key."""
        check_range(start, end, limit, LIMITS)
        check_revision(min_version, "min_version")
        low, high = start, end
        if page_token:
            low, high = continue_range(start, end, page_token, reverse=reverse)
        live = self._live
        live.writer.check_serving()
        kvs: list[KeyValue] = []
        token, room = b"", LIMITS.max_page_bytes
        with self._disk.view() as view:
            headers_only = keys_only or min_version > 1
            whole = keys_only or not headers_only
            most = limit or LIMITS.max_page_items
            last, passed = b"", 0
            for found in view.scan(low, high, reverse=reverse, keys_only=headers_only):
                if found[4] < min_version:
                    last, passed = found.key, passed + 1
                    if passed < MAX_PASSED:
                        continue
                    token = make_token(start, end, last, reverse=reverse)
                    break
                kv = found if whole else _read(view, found.key, keys_only=False)
                key = kv[0]
                room -= len(key) + len(kv[1])
                if kvs and (len(kvs) == most or room < 0):
                    token = make_token(start, end, last, reverse=reverse)
                    break
                kvs.append(kv)
                last = key
            revision = live.revision_of(view)
        await live.writer.published(revision)
        return Page(revision, tuple(kvs), token, live.time.mesh_ns())

    def watch(self, prefix: bytes, start_revision: int = 0, *, keys_only: bool = False) -> Watcher:
        """Follows the changes below `prefix` from a revision on (0: the next)."""
        hub = self._live.writer.hub
        try:
            check_watch(prefix, start_revision, LIMITS)
        except (InvalidArgument, TooLarge) as error:
            return hub.refuse(error)
        return hub.open(prefix, start_revision, keys_only=keys_only)

    async def acquire_lease(
        self, name: str, holder: str, ttl_ms: int, *, value: bytes = b"", replaces: int = 0
    ) -> Acquired:
        """Creates the lease if it is absent, or after releasing it if its token is `replaces`."""
        check_acquire(name, holder, ttl_ms, value=value, replaces=replaces, limits=LIMITS)
        live = self._live
        one_more = name not in live.leases
        if one_more and len(live.leases) + self._acquiring >= self._config.max_leases:
            raise Overloaded(f"{len(live.leases):,} leases are held, or being acquired, already")
        wanted = Lease(name, holder, 0, ttl_ms, value, 0)
        request = AcquireRequest(wanted, replaces=replaces, leases=live.leases, time=live.time)
        self._acquiring += one_more
        try:
            return await live.writer.submit(request)
        finally:
            self._acquiring -= one_more

    async def renew_leases(self, leases: Sequence[LeaseRef]) -> tuple[Renewal, ...]:
        """Gives each lease its full time again, in memory, never behind commits."""
        check_renewals(leases, LIMITS)
        live = self._live
        live.writer.check_serving()
        awake_ns = live.time.awake_ns()
        renewals = tuple(live.leases.renew(name, token, awake_ns) for name, token in leases)
        live.writer.counters.renewals += sum(renewal.renewed for renewal in renewals)
        return renewals

    async def release_lease(self, name: str, token: int) -> int:
        """Deletes the lease's key if the token is its own; gives the revision, 0 if it was not."""
        check_release(name, token)
        live = self._live
        return await live.writer.submit(ReleaseRequest(name, token, leases=live.leases))

    async def list_leases(self, prefix: str = "") -> tuple[Lease, ...]:
        """Lists the leases whose name starts with `prefix`, in order of name."""
        check_lease_prefix(prefix)
        live = self._live
        live.writer.check_serving()
        return live.leases.list(prefix, live.time.awake_ns())

    @property
    def _live(self) -> _Running:
        if self._running is None:
            raise Unavailable("the store is starting; try again")
        return self._running


class _Running:
    """What exists from the start on."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        randomness: Randomness,
        config: EngineConfig,
        failed: asyncio.Event,
    ) -> None:
        record = disk.cluster_record()
        self.is_new = record is None
        if record is None:
            self.cluster = clusters.create(
                randomness,
                coordinator_shards=config.coordinator_shards or 1,
                queue_shards=config.queue_shards or 1,
            )
            revision = 0
            self.time = Timekeeper(clock, None)
        else:
            self.cluster, revision, clock_record = clusters.decode(record)
            self.cluster.check_shards(config.coordinator_shards, config.queue_shards)
            self.time = Timekeeper(clock, clock_record)
        self.leases = _load_leases(disk, self.time)
        self._config = config
        self._announced_dispute = 0
        self.writer = Writer(
            disk=disk,
            cluster=self.cluster,
            revision=revision,
            leases=self.leases,
            time=self.time,
            config=config,
            failed=failed,
        )

    def revision_of(self, view: View) -> int:
        """Gives a snapshot's revision: while a step is written it may be that step's already."""
        if not self.writer.writing:
            return self.writer.revision
        return clusters.decode(view.cluster_record()).revision

    async def tick_forever(self) -> None:
        """Looks at the clocks, and sees to what is due."""
        config = self._config
        ticks = 0
        try:
            while True:
                await asyncio.sleep(config.tick_ms / 1_000)
                ticks += 1
                elapsed_ms = ticks * config.tick_ms
                self.tick(
                    persist=elapsed_ms % config.persist_interval_ms < config.tick_ms,
                    remind=elapsed_ms % config.progress_interval_ms < config.tick_ms,
                )
        except Exception as error:
            self.writer.fail((), error)
            raise

    def tick(self, *, persist: bool, remind: bool) -> None:
        """Looks at the clocks once; makes due what is due."""
        self.time.mesh_ns()
        mesh = self.time.mesh
        if mesh.disputed and mesh.dispute != self._announced_dispute:
            self._announced_dispute = mesh.dispute
            _log.error(
                "The wall clock has jumped; mesh time goes on without it. "
                "Look with `sexton clock status`, settle it with `sexton clock accept`.",
                action="store.clock_disputed",
                dispute=mesh.dispute,
            )
        if self.leases.due(self.time.awake_ns()):
            self.writer.poke()
        if persist or mesh.changed:
            self.writer.persist()
        if remind:
            self.writer.hub.remind()


def _load_leases(disk: Disk, time: Timekeeper) -> LeaseTable:
    """Reads the leases that the last process left; each has its full time again."""
    leases = LeaseTable()
    awake_ns = time.awake_ns()
    with disk.view() as view:
        for kv in view.scan(LEASE_PREFIX, prefix_end(LEASE_PREFIX)):
            holder, ttl_ms, value = clusters.decode_lease(kv.value)
            leases.grant(
                kv.key.removeprefix(LEASE_PREFIX).decode(),
                holder=holder,
                token=kv.create_revision,
                ttl_ms=ttl_ms,
                value=value,
                awake_ns=awake_ns,
            )
    return leases


def _read(view: View, key: bytes, *, keys_only: bool) -> KeyValue:
    if keys_only:
        return KeyValue(key, b"", *(view.header(key) or (0, 0, 0)))
    record = view.get(key)
    return KeyValue(key, b"", 0, 0, 0) if record is None else KeyValue(key, *record)
