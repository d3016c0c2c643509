"""The store's servicer: wire in, engine, wire out.

Every bound is checked before anything is touched: those of the wire's shapes here and in
``_wire.py``, all others by the engine. Errors are raised as `sexton.errors`; the gate of
`sexton_runtime.rpc` turns them into statuses.
"""
# ruff: noqa: N802 - the methods have the names of the protocol

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from sexton.errors import InvalidArgument, Unavailable, WrongIncarnation
from sexton.internal.v1 import store_pb2 as pb
from sexton.internal.v1 import store_pb2_grpc
from sexton_runtime.kv import validate
from sexton_runtime.kv.types import Compare, LeaseRef, Outcome, Target, Txn, WatchBatch
from sexton_runtime.rpc.wire import DEFAULT_TIMEOUT_S, INCARNATION, Metadata
from sexton_store import _wire as wire
from sexton_store.commit_stream import CommitStream
from sexton_store.contract import StoreEngine
from sexton_store.paging import continue_range, make_token

SERVICE = "sexton.internal.v1.StoreService"
STATUS_METHOD = f"/{SERVICE}/Status"

MAX_LEASES_PER_PAGE = 1_000
_WATCH_MESSAGE_BYTES = 2 * 1024 * 1024
"""A watch's message is closed beyond this; with one whole transaction more it stays below 4 MiB."""
_EVENT_OVERHEAD_BYTES = 64
_LAST_WORD_S = 0.5
"""How long a watch's caller is given to take that the store stops."""
_STOPPING = "the store is stopping; go on from the last revision that was seen, in a moment"

Backups = Callable[[], AsyncGenerator[pb.BackupResponse, None]]
"""Makes a copy and gives it piece by piece."""


class StoreServicer(store_pb2_grpc.StoreServiceServicer):
    """Serves one engine. As a part of a lifecycle its stop ends the streams that have no end."""

    def __init__(self, engine: StoreEngine, backups: Backups | None, version: str) -> None:
        self._engine = engine
        self._backups = backups
        self._version = version
        self._ends: dict[object, Callable[[], object]] = {}
        self._watching: set[asyncio.Task[Any]] = set()
        self._stopping = False

    async def start(self) -> None:
        """Is there for the lifecycle; the servicer works from the start of its server."""

    async def stop(self) -> None:
        """Ends all streams as unavailable and refuses new ones. Idempotent.

        A watch whose caller does not take what was sent is cut off after a moment.
        """
        self._stopping = True
        for end in list(self._ends.values()):
            end()
        if self._watching:
            _, stuck = await asyncio.wait(self._watching, timeout=_LAST_WORD_S)
            for task in stuck:
                task.cancel()

    def guard_incarnation(self, method: str, metadata: Metadata) -> None:
        """Refuses a call of another cluster, or of the time before a restore."""
        given = metadata.get(INCARNATION)
        if given and method != STATUS_METHOD and method.startswith(f"/{SERVICE}/"):
            incarnation = self._engine.incarnation
            if given != incarnation:
                raise WrongIncarnation(str(given), incarnation)

    async def Get(self, request: pb.GetRequest, _context: Any) -> pb.GetResponse:
        """Reads keys from one snapshot."""
        found = await self._engine.get(request.keys, keys_only=request.keys_only)
        answer = pb.GetResponse(revision=found.revision, mesh_time_ns=found.mesh_time_ns)
        wire.add_kvs(answer, found.kvs, packed=request.reads_packed)
        return answer

    async def Scan(self, request: pb.ScanRequest, _context: Any) -> pb.ScanResponse:
        """Reads one page of a range."""
        page = await self._engine.scan(
            request.start,
            request.end,
            limit=request.limit,
            reverse=request.reverse,
            keys_only=request.keys_only,
            page_token=request.page_token,
            min_version=request.min_version,
        )
        answer = pb.ScanResponse(
            revision=page.revision,
            next_page_token=page.next_token,
            mesh_time_ns=page.mesh_time_ns,
        )
        wire.add_kvs(answer, page.kvs, packed=request.reads_packed)
        return answer

    async def CompareAndSet(
        self, request: pb.CompareAndSetRequest, context: Any
    ) -> pb.CompareAndSetResponse:
        """Writes one key if it is as expected."""
        op = wire.op_from_wire(request, "")
        limits = self._engine.limits
        validate.check_written_key(request.key, limits)
        validate.check_value(request.put, limits, "put")
        validate.check_revision(request.expected_mod_revision, "expected_mod_revision")
        compare = Compare(request.key, Target.MOD_REVISION, request.expected_mod_revision)
        (result,) = await self._engine.commit((Txn((compare,), (op,)),), timeout_s=_left(context))
        answer = pb.CompareAndSetResponse(result=wire.result_to_wire(result))
        if result.outcome is Outcome.REFUSED:
            found = await self._engine.get((request.key,))
            answer.current.CopyFrom(wire.kv_to_wire(found.kvs[0]))
        answer.mesh_time_ns = self._now_ns()
        return answer

    async def Commit(self, request: pb.CommitRequest, context: Any) -> pb.CommitResponse:
        """Evaluates independent transactions."""
        results = await self._engine.commit(
            wire.txns_from_wire(request.txns), timeout_s=_left(context)
        )
        return pb.CommitResponse(results=wire.results_to_wire(results), mesh_time_ns=self._now_ns())

    async def CommitStream(  # type: ignore[override]  # the stubs know only generators
        self, request_iterator: Any, context: Any
    ) -> None:
        """Evaluates transactions as they come."""
        stream = CommitStream(self._engine, request_iterator)
        with self._open(stream.finish):
            await stream.answer_all(context.write)

    async def Watch(
        self, request: pb.WatchRequest, _context: Any
    ) -> AsyncIterator[pb.WatchResponse]:
        """Follows the changes below a prefix. The engine bounds what waits for a slow reader."""
        validate.check_watch(request.prefix, request.start_revision, self._engine.limits)
        task = asyncio.current_task()
        assert task is not None
        batches = self._engine.watch(
            request.prefix, request.start_revision, keys_only=request.keys_only
        )
        with self._open(lambda: batches.end(Unavailable(_STOPPING))):
            self._watching.add(task)
            task.add_done_callback(self._watching.discard)
            async with aclosing(batches) as stream:
                async for batch in stream:
                    for response in _watch_responses(batch):
                        yield response
        raise Unavailable(_STOPPING)

    async def AcquireLease(
        self, request: pb.AcquireLeaseRequest, _context: Any
    ) -> pb.AcquireLeaseResponse:
        """Creates a lease if there is none, or the named one is replaced."""
        acquired = await self._engine.acquire_lease(
            request.name,
            request.holder,
            request.ttl_ms,
            value=request.value,
            replaces=request.replaces,
        )
        return pb.AcquireLeaseResponse(
            granted=acquired.granted,
            lease=wire.lease_to_wire(acquired.lease),
            mesh_time_ns=acquired.mesh_time_ns,
        )

    async def RenewLease(
        self, request: pb.RenewLeaseRequest, _context: Any
    ) -> pb.RenewLeaseResponse:
        """Gives leases their full time again."""
        refs = [LeaseRef(lease.name, lease.token) for lease in request.leases]
        renewals = await self._engine.renew_leases(refs)
        return pb.RenewLeaseResponse(
            renewals=[
                pb.RenewLeaseResponse.Renewal(renewed=renewed, remaining_ms=remaining_ms)
                for renewed, remaining_ms in renewals
            ],
            mesh_time_ns=self._now_ns(),
        )

    async def ReleaseLease(
        self, request: pb.ReleaseLeaseRequest, _context: Any
    ) -> pb.ReleaseLeaseResponse:
        """Deletes a lease."""
        revision = await self._engine.release_lease(request.lease.name, request.lease.token)
        return pb.ReleaseLeaseResponse(
            released=revision > 0, revision=revision, mesh_time_ns=self._now_ns()
        )

    async def ListLeases(
        self, request: pb.ListLeasesRequest, _context: Any
    ) -> pb.ListLeasesResponse:
        """Lists leases in order of name."""
        if not 0 <= request.page_size <= MAX_LEASES_PER_PAGE:
            expected = f"0 to {MAX_LEASES_PER_PAGE}"
            raise InvalidArgument("page_size", request.page_size, expected)
        validate.check_lease_prefix(request.prefix)
        query, first = request.prefix.encode(), b""
        if request.page_token:
            first, _ = continue_range(query, b"", request.page_token, reverse=False)
        leases = [
            lease
            for lease in await self._engine.list_leases(request.prefix)
            if lease.name.encode() >= first
        ]
        page = leases[: request.page_size or MAX_LEASES_PER_PAGE]
        token = b""
        if len(page) < len(leases):
            token = make_token(query, b"", page[-1].name.encode(), reverse=False)
        return pb.ListLeasesResponse(
            leases=[wire.lease_to_wire(lease) for lease in page],
            next_page_token=token,
            mesh_time_ns=self._now_ns(),
        )

    async def Backup(
        self, _request: pb.BackupRequest, _context: Any
    ) -> AsyncIterator[pb.BackupResponse]:
        """Streams a verified copy."""
        if self._backups is None:
            raise Unavailable("this store keeps nothing on a disk; there is nothing to copy")
        async with aclosing(self._backups()) as pieces:
            async for piece in pieces:
                yield piece

    async def Status(self, _request: pb.StatusRequest, _context: Any) -> pb.StatusResponse:
        """Tells what the store is and how it is."""
        return wire.status_to_wire(self._engine.status(), self._engine.limits, self._version)

    async def GetClock(self, _request: pb.GetClockRequest, _context: Any) -> pb.GetClockResponse:
        """Tells mesh time."""
        return wire.clock_to_wire(self._engine.clock())

    async def AcceptClock(
        self, request: pb.AcceptClockRequest, _context: Any
    ) -> pb.AcceptClockResponse:
        """Lets mesh time follow the wall clock."""
        clock = await self._engine.accept_clock(request.dispute)
        return pb.AcceptClockResponse(clock=wire.clock_to_wire(clock))

    def _now_ns(self) -> int:
        return self._engine.clock().mesh_time_ns

    @contextmanager
    def _open(self, end: Callable[[], object]) -> Iterator[None]:
        """Keeps a stream's end at hand while the stream is open."""
        if self._stopping:
            raise Unavailable(_STOPPING)
        key = object()
        self._ends[key] = end
        try:
            yield
        finally:
            del self._ends[key]


def _left(context: Any) -> float:
    """Tells the time left for a call, read once at its beginning.

    gRPC computes it from the wall clock, so that a later look may be wrong by a jump of it.
    """
    remaining_s = context.time_remaining()
    return DEFAULT_TIMEOUT_S if remaining_s is None else float(remaining_s)


def _watch_responses(batch: WatchBatch) -> Iterator[pb.WatchResponse]:
    """Writes a batch as messages below the transport's limit; a revision is never split."""
    response = pb.WatchResponse(mesh_time_ns=batch.mesh_time_ns)
    size = 0
    for revision in batch.revisions:
        if size > _WATCH_MESSAGE_BYTES:
            yield response
            response = pb.WatchResponse(mesh_time_ns=batch.mesh_time_ns)
            size = 0
        response.revisions.append(wire.revision_to_wire(revision))
        response.progress_revision = revision.revision
        for event in revision.events:
            size += len(event.kv.key) + len(event.kv.value) + _EVENT_OVERHEAD_BYTES
    response.progress_revision = batch.progress_revision
    yield response
