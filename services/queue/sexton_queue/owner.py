"""The competition for a shard: standby, then owner for one tenure after the other.

The role is dropped before anything else when the lease is lost: what asks `tenure` finds none, and
every stream of the tenure ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from sexton.errors import NotLeader, SextonError
from sexton.internal.v1 import records_pb2
from sexton_queue.config import QueueConfig
from sexton_queue.counters import Counters
from sexton_queue.machine import Machine
from sexton_queue.spans import Ended
from sexton_queue.tenure import Tenure
from sexton_records import keys
from sexton_runtime.clock import Clock
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.lease_keeper import LeaseKeeper
from sexton_runtime.kv.watcher import LASTING
from sexton_runtime.randomness import Randomness
from sexton_runtime.takeovers import Takeovers

_PAUSE_S: Final = 0.5
"""After a tenure that ended by a fault of our own."""
_ADDRESS_AGE_NS: Final = 1_000_000_000
"""For how long a known owner's address is told without asking the store again."""
_ADDRESS_TIMEOUT_S: Final = 1.0

_log = structlog.get_logger(__name__)


class Owner:
    """A replica's part in owning one shard. A part of a lifecycle."""

    def __init__(
        self,
        *,
        store: StoreClient,
        keeper: LeaseKeeper,
        connected: asyncio.Event,
        clock: Clock,
        randomness: Randomness,
        on_leading: Callable[[bool], object],
        config: QueueConfig,
        member: Callable[[], records_pb2.MemberRecord],
        takeovers: Takeovers,
        ended: Ended | None = None,
    ) -> None:
        """`ended` is given the record of each run whose end is durable."""
        self._takeovers = takeovers
        self.counters = Counters()
        self.tenure: Tenure | None = None
        self.failed = asyncio.Event()
        """Set when nothing but a new start of the process can help."""
        self.times = config.times()
        self._config = config
        self._store = store
        self._keeper = keeper
        self._connected = connected
        self._clock = clock
        self._randomness = randomness
        self._on_leading = on_leading
        self._member = member
        self._ended = ended
        self._competing: asyncio.Task[None] | None = None
        self._faulted = False
        self._address = ""
        self._address_ns = -_ADDRESS_AGE_NS

    async def start(self) -> None:
        """Begins to compete."""
        self._on_leading(False)
        self._competing = asyncio.create_task(self._compete(), name="queue-owner")

    async def stop(self) -> None:
        """Hands over and ends: the lease is given back, workers are told to reconnect."""
        tenure, competing = self.tenure, self._competing
        self._competing = None
        if competing is None:
            return
        if tenure is not None:
            self._on_leading(False)
            await tenure.hand_over()
        competing.cancel()
        await asyncio.gather(competing, return_exceptions=True)

    async def require(self) -> Tenure:
        """Gives the tenure under which to act; raises `NotLeader` where there is none."""
        tenure = self.tenure
        if tenure is not None and tenure.acting():
            return tenure
        raise NotLeader(await self._owner_address())

    async def _compete(self) -> None:
        await self._connected.wait()
        while self._competing is not None:  # one that stops must not win what it has given back
            try:
                lease = await self._keeper.acquire(
                    keys.queue_lease(self._config.shard),
                    ttl_s=self._config.lease_ttl_ms / 1_000,
                    value=self._member().SerializeToString(),
                )
                status = await self._store.status()
            except LASTING:
                self.failed.set()
                raise
            except SextonError:
                await asyncio.sleep(_PAUSE_S)
                continue
            machine = Machine(
                shard=self._config.shard,
                coordinator_shards=status.coordinator_shards,
                times=self.times,
                max_running=self._config.bounds(),
                counters=self.counters,
                ended=self._ended,
            )
            tenure = Tenure(
                machine,
                lease,
                self._store,
                shard=self._config.shard,
                coordinator_shards=status.coordinator_shards,
                clock=self._clock,
                randomness=self._randomness,
                takeover=self._takeovers.begin(lease, self._config.shard, self._keeper.holder),
            )
            async with lease:
                await self._own(tenure)
            if self._faulted:
                self._faulted = False
                await asyncio.sleep(_PAUSE_S)

    async def _own(self, tenure: Tenure) -> None:
        self.counters.takeovers += 1
        self.tenure = tenure
        _log.info(
            "This queue owns its shard.", action="own", shard=self._config.shard, token=tenure.token
        )
        leading = asyncio.create_task(self._tell_health(tenure))
        try:
            await tenure.run()
        except Exception as error:
            _log.exception("A tenure ended by a fault.", action="own", shard=self._config.shard)
            if _lasting(error):
                self.failed.set()
                raise
            self._faulted = True
        finally:
            self.tenure = None
            leading.cancel()
            self._on_leading(False)
            tenure.end_streams(NotLeader())
        _log.info(
            "This queue no longer owns its shard.",
            action="lose",
            shard=self._config.shard,
            reason=str(tenure.lease.lost_because),
        )

    async def _tell_health(self, tenure: Tenure) -> None:
        await tenure.loaded.wait()
        self._on_leading(True)

    async def _owner_address(self) -> str:
        now_ns = self._clock.boot_ns()
        if now_ns - self._address_ns >= _ADDRESS_AGE_NS and self._store.started:
            self._address_ns = now_ns
            name = keys.queue_lease(self._config.shard)
            try:
                async with asyncio.timeout(_ADDRESS_TIMEOUT_S):
                    leases = await self._store.list_leases(name)
            except (SextonError, TimeoutError):
                leases = ()
            self._address = next(
                (_address(lease.value) for lease in leases if lease.name == name), ""
            )
        return self._address


def _address(value: bytes) -> str:
    return records_pb2.MemberRecord.FromString(value).address


def _lasting(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_lasting(one) for one in error.exceptions)
    return isinstance(error, LASTING)
