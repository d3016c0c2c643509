"""A queue replica as a process: its parts, and in which order they live and end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial

from sexton.internal.v1 import records_pb2
from sexton.internal.v1.coordinator_pb2_grpc import add_MemberServiceServicer_to_server
from sexton.internal.v1.queue_pb2_grpc import add_QueueServiceServicer_to_server
from sexton.v1 import scheduler_pb2
from sexton.v1.worker_pb2_grpc import add_WorkerServiceServicer_to_server
from sexton_queue.config import QueueConfig
from sexton_queue.describe import describe
from sexton_queue.owner import Owner
from sexton_queue.rpc import MEMBERS, QUEUES, WORKERS, Servicer
from sexton_queue.spans import spans_to
from sexton_runtime import semconv
from sexton_runtime.binding import advertised
from sexton_runtime.clock import Clock
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.lease_keeper import LeaseKeeper
from sexton_runtime.lifecycle import ExitCode, Lifecycle
from sexton_runtime.randomness import Randomness
from sexton_runtime.rpc.grpc_transport import LEADER
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_runtime.rpc.server import Readiness, RpcServer, Service
from sexton_runtime.secrets import AnySecret, Role
from sexton_runtime.takeovers import Takeovers
from sexton_runtime.telemetry import Points, Telemetry
from sexton_runtime.transport import Transport
from sexton_runtime.version import software_version

MEMBER_TTL_S = 10.0
"""How long a silent replica is still listed as a member."""


class Queue:
    """One queue replica, over whatever transport it is given; `lifecycle` starts and stops it."""

    def __init__(
        self,
        config: QueueConfig,
        *,
        transport: Transport,
        clock: Clock,
        randomness: Randomness,
        secrets: Mapping[Role, AnySecret] | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Raises `ConfigError` where it may not listen there."""
        telemetry = telemetry or Telemetry()
        secrets = secrets or {}
        channel = PolicyChannel(transport.channel(config.store), secret=secrets.get(Role.MESH, ""))
        self.store = StoreClient(channel, clock=clock, randomness=randomness)
        self.keeper = LeaseKeeper(self.store, clock=clock, randomness=randomness)
        self._config = config
        self._clock = clock
        connection = _Connection(self.store, self.keeper, channel)
        self.owner = Owner(
            store=self.store,
            keeper=self.keeper,
            connected=connection.connected,
            clock=clock,
            randomness=randomness,
            on_leading=self._tell_health,
            config=config,
            member=self._record,
            takeovers=Takeovers(telemetry, clock, "queue"),
            ended=None if telemetry.exporter is None else spans_to(telemetry.exporter),
        )
        servicer = Servicer(self.owner, randomness, self._member)
        self.server = RpcServer(
            transport=transport,
            listen=config.listen,
            services=(
                Service(
                    WORKERS,
                    frozenset({Role.WORKER}),
                    partial(add_WorkerServiceServicer_to_server, servicer),
                ),
                Service(
                    QUEUES,
                    frozenset({Role.MESH}),
                    partial(add_QueueServiceServicer_to_server, servicer),
                ),
                Service(
                    MEMBERS,
                    frozenset({Role.MESH}),
                    partial(add_MemberServiceServicer_to_server, servicer),
                ),
            ),
            secrets=secrets,
            randomness=randomness,
            telemetry=telemetry,
            insecure=config.insecure,
        )
        membership = _Membership(self.keeper, connection.connected, self._record)
        self.lifecycle = Lifecycle(
            "queue",
            (
                telemetry,
                connection,
                self.server,
                membership,
                self.owner,
                Readiness(self.server.health, (WORKERS, QUEUES, MEMBERS)),
            ),
        )
        self.lifecycle.stop_when(
            self.store.expelled.wait, "the store is of another incarnation", ExitCode.RESTART
        )
        self.lifecycle.stop_when(
            self.owner.failed.wait, "trying again does not help", ExitCode.RESTART
        )
        self._measure(telemetry)

    @property
    def address(self) -> str:
        """Gives `host:port` at which others reach this replica."""
        return advertised(self.server.address, self._config.advertise)

    def _tell_health(self, leading: bool) -> None:  # noqa: FBT001 - a callback
        self.server.health.set(LEADER, serving=leading)

    def _record(self) -> records_pb2.MemberRecord:
        return records_pb2.MemberRecord(
            id=self.keeper.holder, address=self.address, software_version=software_version()
        )

    def _member(self) -> scheduler_pb2.Member:
        tenure = self.owner.tenure
        leading = tenure is not None and tenure.acting()
        skew_ns = 0
        if self.store.mesh_time.known:
            skew_ns = self._clock.wall_ns() - self.store.mesh_time.now_ns()
        return scheduler_pb2.Member(
            role=scheduler_pb2.Member.ROLE_QUEUE,
            id=self.keeper.holder,
            address=self.address,
            shard=self._config.shard,
            leading=leading,
            token=tenure.token if tenure is not None and leading else 0,
            skew_ms=int(skew_ns / 1e6),
            software_version=software_version(),
        )

    def _measure(self, telemetry: Telemetry) -> None:
        def events() -> Points:
            counters = asdict(self.owner.counters)
            return [(float(number), {semconv.KIND: kind}) for kind, number in counters.items()]

        def by_queue(field: str) -> Points:
            tenure = self.owner.tenure
            if tenure is None:
                return []
            answer = describe(tenure.machine, tenure.token, tenure.now(), queues_only=True)
            return [
                (float(getattr(info, field)), {semconv.DESTINATION: info.queue})
                for info in answer.queues
            ]

        def sessions() -> Points:
            tenure = self.owner.tenure
            return [] if tenure is None else [(float(len(tenure.machine.sessions.by_id)), {})]

        def owning() -> Points:
            return [(float(self.owner.tenure is not None), {})]

        telemetry.counter(semconv.QUEUE_EVENTS, events)
        telemetry.gauge(semconv.QUEUE_READY, partial(by_queue, "ready"))
        telemetry.gauge(semconv.QUEUE_DELAYED, partial(by_queue, "delayed"))
        telemetry.gauge(semconv.QUEUE_RUNNING, partial(by_queue, "running"))
        telemetry.gauge(semconv.QUEUE_SESSIONS, sessions)
        telemetry.gauge(semconv.QUEUE_OWNING, owning)


class _Connection:
    """The store as a part: looked for in the background, so that a replica can be stopped."""

    def __init__(self, store: StoreClient, keeper: LeaseKeeper, channel: PolicyChannel) -> None:
        self.connected = asyncio.Event()
        self._store = store
        self._keeper = keeper
        self._channel = channel
        self._connecting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to look for the store."""
        self._connecting = asyncio.create_task(self._connect(), name="store-connection")

    async def stop(self) -> None:
        """Gives back what is held and closes the connection."""
        connecting, self._connecting = self._connecting, None
        if connecting is None:
            return
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        await self._keeper.stop()
        await self._store.stop()
        await self._channel.close()

    async def _connect(self) -> None:
        await self._store.start()
        self._keeper.start()
        self.connected.set()


class _Membership:
    """The lease by which a replica is listed, whether it owns its shard or not."""

    def __init__(
        self,
        keeper: LeaseKeeper,
        connected: asyncio.Event,
        record: Callable[[], records_pb2.MemberRecord],
    ) -> None:
        self._keeper = keeper
        self._connected = connected
        self._record = record
        self._holding: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to hold the lease."""
        self._holding = asyncio.create_task(self._hold(), name="membership")

    async def stop(self) -> None:
        """Leaves the list. Idempotent."""
        holding, self._holding = self._holding, None
        if holding is not None:
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)

    async def _hold(self) -> None:
        await self._connected.wait()
        name = f"members/queue/{self._keeper.holder}"
        while True:
            lease = await self._keeper.acquire(
                name, ttl_s=MEMBER_TTL_S, value=self._record().SerializeToString()
            )
            async with lease:
                await lease.lost.wait()
