"""Competes for the lease of every coordinator shard, and leads those that it gets."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import structlog

from sexton.errors import NotLeader, SextonError
from sexton_coordinator.leader.counters import Counters
from sexton_coordinator.leader.tenure import Tenure
from sexton_coordinator.mesh import Mesh
from sexton_records import keys
from sexton_runtime import semconv
from sexton_runtime.rpc.grpc_transport import LEADER
from sexton_runtime.rpc.health import Health
from sexton_runtime.takeovers import Takeovers
from sexton_runtime.telemetry import Points, Telemetry

_log = structlog.get_logger(__name__)


class Leadership:
    """A part of a coordinator's lifecycle: one loop per shard, which leads while it may."""

    def __init__(self, mesh: Mesh, *, lease_ttl_s: float, telemetry: Telemetry) -> None:
        self.failed = asyncio.Event()
        """Set when leading failed in a way that does not pass by itself."""
        self.counters = Counters()
        self._mesh = mesh
        self._lease_ttl_s = lease_ttl_s
        self._tenures: dict[int, Tenure] = {}
        self._running: list[asyncio.Task[None]] = []
        self._leading: set[asyncio.Task[None]] = set()
        self._takeovers = Takeovers(telemetry, mesh.clock, "coordinator")
        self._health: Health | None = None
        self._stopping = False
        telemetry.gauge(semconv.COORDINATOR_SHARDS_LED, self._shards_led)
        telemetry.gauge(semconv.COORDINATOR_OVERDUE, self._overdue)
        telemetry.counter(semconv.COORDINATOR_EVENTS, self._events)

    def report_to(self, health: Health) -> None:
        """Has the health service `leader` say whether this replica leads a shard."""
        self._health = health
        health.set(LEADER, serving=False)

    async def start(self) -> None:
        """Begins to compete."""
        for shard in range(self._mesh.coordinator_shards):
            self._running.append(
                asyncio.create_task(self._compete(shard), name=f"leadership-{shard}")
            )

    async def stop(self) -> None:
        """Hands over what is led. Idempotent."""
        self._stopping = True
        await asyncio.gather(*(tenure.hand_over() for tenure in list(self._tenures.values())))
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, *self._leading, return_exceptions=True)

    def tenure(self, shard: int) -> Tenure | None:
        """Returns the tenure under which this replica leads a shard; None: it does not."""
        tenure = self._tenures.get(shard)
        return tenure if tenure is not None and tenure.lease.still_held() else None

    def of_job(self, uid: str) -> Tenure:
        """Returns the tenure that leads a job's shard; raises `NotLeader` where there is none."""
        return self.require(keys.shard_of(uid, self._mesh.coordinator_shards))

    def require(self, shard: int) -> Tenure:
        """Returns the tenure that leads a shard; raises `NotLeader` where another replica does."""
        tenure = self.tenure(shard)
        if tenure is None:
            leader = self._mesh.directory.leader(shard)
            elsewhere = leader is not None and leader.address != self._mesh.address
            raise NotLeader(leader.address if leader is not None and elsewhere else "")
        return tenure

    async def _compete(self, shard: int) -> None:
        """Leads a shard, again and again."""
        name = keys.coordinator_lease(shard)
        while not self._stopping:
            try:
                lease = await self._mesh.keeper.acquire(
                    name, ttl_s=self._lease_ttl_s, value=self._mesh.member()
                )
            except SextonError as error:
                self._fail(shard, error)
                return
            self.counters.tenures += 1
            _log.info("Leads a shard.", action="lead", shard=shard, token=lease.token)
            tenure = self._tenures[shard] = Tenure(
                mesh=self._mesh,
                lease=lease,
                shard=shard,
                counters=self.counters,
                takeover=self._takeovers.begin(lease, shard, self._mesh.id),
            )
            self._report()
            try:
                await self._lead(tenure)
            finally:
                del self._tenures[shard]
                self._report()
            await lease.release()
            _log.info(
                "Leads a shard no longer.",
                action="lead",
                shard=shard,
                token=lease.token,
                because=str(lease.lost_because),
            )

    async def _lead(self, tenure: Tenure) -> None:
        """Runs a tenure in a task of its own, so that nothing of its end is left behind here."""
        leading = asyncio.create_task(tenure.run(), name=f"tenure-{tenure.shard}")
        self._leading.add(leading)
        leading.add_done_callback(self._leading.discard)
        try:
            await asyncio.wait((leading,))
        finally:
            leading.cancel()
        error = None if leading.cancelled() else leading.exception()
        if isinstance(error, Exception):
            self._fail(tenure.shard, error)

    def _fail(self, shard: int, error: Exception) -> None:
        if not self._stopping:
            _log.error("Leading failed.", action="lead", shard=shard, exc_info=error)
            self.failed.set()

    def _report(self) -> None:
        if self._health is not None:
            self._health.set(LEADER, serving=bool(self._tenures))

    def _shards_led(self) -> Points:
        return [(float(len(self._tenures)), {})]

    def _overdue(self) -> Points:
        return [(float(sum(tenure.overdue for tenure in self._tenures.values())), {})]

    def _events(self) -> Points:
        counted = asdict(self.counters)
        return [(float(number), {semconv.KIND: kind}) for kind, number in counted.items()]
