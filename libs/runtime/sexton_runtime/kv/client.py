"""The store seen from the other services: `Engine` over the wire.

One client per process and store. It batches commits (`committer.py`), estimates mesh time from
every answer (`mesh_time.py`), repeats reads that a broken connection cut off, and never repeats a
write: after `OutcomeUnknown` the caller compares and reads (`unknown.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from sexton.errors import (
    Cancelled,
    DeadlineExceeded,
    Internal,
    OutcomeUnknown,
    SextonError,
    Unavailable,
    WrongIncarnation,
)
from sexton.internal.v1 import store_pb2 as pb
from sexton.internal.v1.store_pb2_grpc import StoreServiceStub
from sexton_runtime.clock import Clock
from sexton_runtime.kv import _wire
from sexton_runtime.kv._backoff import Backoff
from sexton_runtime.kv._watching import ClientWatch
from sexton_runtime.kv.committer import Committer
from sexton_runtime.kv.config import StoreClientConfig
from sexton_runtime.kv.mesh_time import MeshTime
from sexton_runtime.kv.status import ClockReading, StoreStatus
from sexton_runtime.kv.types import (
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
)
from sexton_runtime.kv.validate import (
    check_acquire,
    check_keys,
    check_lease_prefix,
    check_range,
    check_release,
    check_renewals,
    check_revision,
    check_watch,
)
from sexton_runtime.randomness import Randomness
from sexton_runtime.rpc.policy_channel import PolicyChannel

_T = TypeVar("_T")
_LEASES_PER_PAGE = 1_000


class StoreClient:
    """A store behind a channel. Use it as an async context manager, or `start` and `stop` it.

    Reads raise `Unavailable` or `DeadlineExceeded` when the store can't be reached in time. Writes
    raise `OutcomeUnknown` when, and only when, the effect may have happened or may yet happen;
    after every other error nothing happened. Every method raises `WrongIncarnation` for good once
    the store is another one than at the start: the process must begin anew.
    """

    def __init__(
        self,
        channel: PolicyChannel,
        *,
        clock: Clock,
        randomness: Randomness,
        config: StoreClientConfig | None = None,
    ) -> None:
        self.mesh_time = MeshTime(clock)
        self.expelled = asyncio.Event()
        """Set once the store has been found to be of another incarnation."""
        self._channel = channel
        self._stub = StoreServiceStub(channel)
        self._clock = clock
        self._randomness = randomness
        self._config = config or StoreClientConfig()
        self._first_status: StoreStatus | None = None
        self._wrong: WrongIncarnation | None = None
        self._committer: Committer | None = None
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self, *, timeout_s: float | None = None) -> StoreStatus:
        """Waits until the store answers, learns its incarnation and limits, and begins to work.

        Waits without end where `timeout_s` is None; raises `Unavailable` after it.
        """
        if self._first_status is not None:
            return self._first_status
        try:
            async with asyncio.timeout(timeout_s):
                status = await self._reach()
        except TimeoutError:
            raise Unavailable(f"the store did not answer within {timeout_s} s") from None
        self._first_status = status
        self._channel.incarnation = status.incarnation
        self._committer = Committer(
            open_call=self._open_commit_stream,
            limits=status.limits,
            clock=self._clock,
            randomness=self._randomness,
            mesh_time=self.mesh_time,
            config=self._config,
            on_error=self._note,
        )
        self._running = asyncio.create_task(self._committer.run(), name="store-committer")
        return status

    async def stop(self, *, grace_s: float = 1.0) -> None:
        """Lets what waits be sent and answered for up to `grace_s`, then ends. Idempotent.

        The channel stays its owner's to close.
        """
        if self._committer is None or self._running is None:
            return
        if not self._running.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._committer.drain()
        running, self._running = self._running, None
        running.cancel()
        (ended,) = await asyncio.gather(running, return_exceptions=True)
        if isinstance(ended, Exception):
            raise ended

    @property
    def started(self) -> bool:
        """Tells whether the store has been reached."""
        return self._first_status is not None

    @property
    def limits(self) -> Limits:
        """Tells the bounds of the store's engine."""
        return self._reached().limits

    @property
    def incarnation(self) -> str:
        """Identifies the store's incarnation."""
        return self._reached().incarnation

    # Commits ----------------------------------------------------------------------------------

    async def commit(
        self,
        txns: Sequence[Txn],
        *,
        timeout_s: float | None = None,
        only_while: Callable[[], bool] | None = None,
    ) -> tuple[TxnResult, ...]:
        """Commits independent transactions, sharing messages with other callers.

        See `Committer.commit` for `only_while` and the errors. Cancelling the caller takes back
        what was not sent; what was sent goes on.
        """
        self._require_same_store()
        assert self._committer is not None
        return await self._committer.commit(
            txns,
            timeout_s=self._config.commit_timeout_s if timeout_s is None else timeout_s,
            only_while=only_while,
        )

    async def compare_and_set(
        self,
        key: bytes,
        expected_mod_revision: int,
        value: bytes | None,
        *,
        timeout_s: float | None = None,
    ) -> tuple[TxnResult, KeyValue]:
        """Writes (None: deletes) one key if its modification revision is the expected one.

        One call of its own, without pace. Gives the result and, where refused, the key as it
        stands. Raises `OutcomeUnknown` as `commit` does.
        """
        request = pb.CompareAndSetRequest(key=key, expected_mod_revision=expected_mod_revision)
        if value is None:
            request.delete = True
        else:
            request.put = value
        timeout = self._config.commit_timeout_s if timeout_s is None else timeout_s
        response = await self._write(self._stub.CompareAndSet, request, timeout)
        return _wire.result_from_wire(response.result), _wire.kv_from_wire(response.current)

    # Reads ------------------------------------------------------------------------------------

    async def get(self, keys: Sequence[bytes], *, keys_only: bool = False) -> Snapshot:
        """Reads keys from one snapshot that includes every commit acknowledged before."""
        check_keys(keys, self.limits)
        request = pb.GetRequest(keys=keys, keys_only=keys_only, reads_packed=True)
        response = await self._read(self._stub.Get, request)
        return Snapshot(response.revision, _wire.kvs_from_wire(response), response.mesh_time_ns)

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
        check_range(start, end, limit, self.limits)
        check_revision(min_version, "min_version")
        request = pb.ScanRequest(
            start=start,
            end=end,
            limit=limit,
            reverse=reverse,
            keys_only=keys_only,
            page_token=page_token,
            min_version=min_version,
            reads_packed=True,
        )
        response = await self._read(self._stub.Scan, request)
        return Page(
            response.revision,
            _wire.kvs_from_wire(response),
            response.next_page_token,
            response.mesh_time_ns,
        )

    def watch(
        self, prefix: bytes, start_revision: int = 0, *, keys_only: bool = False
    ) -> ClientWatch:
        """Follows the changes below `prefix`; ends only by raising. Close it (`aclose`).

        Raises `Unavailable` when the connection breaks or falls silent: watch again from the
        last progress + 1. `RelistingWatcher` does all of this.
        """

        def open_call() -> Any:
            check_watch(prefix, start_revision, self.limits)
            return self._stub.Watch(
                pb.WatchRequest(prefix=prefix, start_revision=start_revision, keys_only=keys_only)
            )

        return ClientWatch(
            open_call,
            idle_s=self._config.watch_idle_s,
            mesh_time=self.mesh_time,
            on_error=self._note,
        )

    # Leases -----------------------------------------------------------------------------------

    async def acquire_lease(
        self, name: str, holder: str, ttl_ms: int, *, value: bytes = b"", replaces: int = 0
    ) -> Acquired:
        """Creates the lease if it is absent, or after releasing it if its token is `replaces`.

        After `OutcomeUnknown` ask again: the answer shows the holder's own lease, if it has one.
        """
        check_acquire(name, holder, ttl_ms, value=value, replaces=replaces, limits=self.limits)
        request = pb.AcquireLeaseRequest(
            name=name, holder=holder, ttl_ms=ttl_ms, value=value, replaces=replaces
        )
        timeout = self._config.lease_timeout_s
        return _wire.acquired_from_wire(
            await self._write(self._stub.AcquireLease, request, timeout)
        )

    async def renew_leases(self, leases: Sequence[LeaseRef]) -> tuple[Renewal, ...]:
        """Gives each lease its full time again. An error tells nothing about any of them."""
        check_renewals(leases, self.limits)
        request = pb.RenewLeaseRequest(
            leases=[pb.LeaseRef(name=lease.name, token=lease.token) for lease in leases]
        )
        timeout = self._config.lease_timeout_s
        return _wire.renewals_from_wire(await self._write(self._stub.RenewLease, request, timeout))

    async def release_lease(self, name: str, token: int) -> int:
        """Deletes the lease's key if the token is its own; gives the revision, 0 if it was not."""
        check_release(name, token)
        request = pb.ReleaseLeaseRequest(lease=pb.LeaseRef(name=name, token=token))
        timeout = self._config.lease_timeout_s
        response = await self._write(self._stub.ReleaseLease, request, timeout)
        return int(response.revision)

    async def list_leases(self, prefix: str = "") -> tuple[Lease, ...]:
        """Lists the leases whose name starts with `prefix`, in order of name, over all pages."""
        check_lease_prefix(prefix)
        found: list[Lease] = []
        request = pb.ListLeasesRequest(prefix=prefix, page_size=_LEASES_PER_PAGE)
        while True:
            response = await self._read(self._stub.ListLeases, request)
            found.extend(map(_wire.lease_from_wire, response.leases))
            if not response.next_page_token:
                return tuple(found)
            request.page_token = response.next_page_token

    # The store itself -------------------------------------------------------------------------

    async def status(self) -> StoreStatus:
        """Asks what the store is and how it is."""
        return _wire.status_from_wire(await self._read(self._stub.Status, pb.StatusRequest()))

    async def clock(self) -> ClockReading:
        """Asks for mesh time and how it stands to the store's wall clock."""
        response = await self._read(self._stub.GetClock, pb.GetClockRequest())
        return _wire.clock_from_wire(response)

    async def accept_clock(self, dispute: int) -> ClockReading:
        """Lets mesh time follow the wall clock; raises `StaleRevision` for another dispute."""
        request = pb.AcceptClockRequest(dispute=dispute)
        timeout = self._config.commit_timeout_s
        response = await self._write(self._stub.AcceptClock, request, timeout)
        return _wire.clock_from_wire(response.clock)

    # Calls ------------------------------------------------------------------------------------

    async def _reach(self) -> StoreStatus:
        backoff = self._backoff()
        while True:
            try:
                response = await self._call(
                    self._stub.Status, pb.StatusRequest(), self._config.lease_timeout_s
                )
            except (Unavailable, DeadlineExceeded, Cancelled):
                await asyncio.sleep(backoff.next_s())
            else:
                return _wire.status_from_wire(response)

    async def _read(self, method: Callable[..., Awaitable[_T]], request: object) -> _T:
        """Calls what is idempotent, again and again within `read_timeout_s`."""
        self._require_same_store()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.read_timeout_s
        backoff = self._backoff()
        while True:
            try:
                return await self._call(method, request, max(0.001, deadline - loop.time()))
            except (Unavailable, Cancelled) as error:  # a stopping server cancels what it gets late
                pause_s = backoff.next_s()
                if loop.time() + pause_s >= deadline:
                    raise Unavailable(error.message) from None  # nothing is unknown of a read
                await asyncio.sleep(pause_s)

    async def _write(
        self, method: Callable[..., Awaitable[_T]], request: object, timeout_s: float
    ) -> _T:
        """Calls once; an error that leaves the outcome open becomes `OutcomeUnknown`."""
        self._require_same_store()
        try:
            return await self._call(method, request, timeout_s)
        except (DeadlineExceeded, Cancelled, Internal) as error:
            raise OutcomeUnknown(error.message) from error

    async def _call(
        self, method: Callable[..., Awaitable[_T]], request: object, timeout_s: float
    ) -> _T:
        sent_ns = self._clock.boot_ns()
        call: Any = method(request, timeout=timeout_s)
        try:
            response: Any = await call
        except SextonError as error:
            self._note(error)
            raise
        finally:
            call.cancel()
        if mesh_time_ns := getattr(response, "mesh_time_ns", 0):
            self.mesh_time.observe(mesh_time_ns, sent_ns, self._clock.boot_ns())
        answer: _T = response
        return answer

    def _open_commit_stream(self) -> Any:
        return self._stub.CommitStream()

    def _note(self, error: SextonError) -> None:
        """Remembers for good that the store is another one."""
        if isinstance(error, WrongIncarnation) and self._wrong is None:
            self._wrong = error
            self.expelled.set()
            if self._committer is not None:
                self._committer.close(error)

    def _require_same_store(self) -> None:
        self._reached()
        if self._wrong is not None:
            raise self._wrong

    def _reached(self) -> StoreStatus:
        assert self._first_status is not None, "the store client has not been started"
        return self._first_status

    def _backoff(self) -> Backoff:
        config = self._config
        return Backoff(self._randomness, config.reconnect_first_s, config.reconnect_max_s)
