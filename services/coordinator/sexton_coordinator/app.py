"""The coordinator as a process: API, leases, leading, and in which order they live and end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sexton_coordinator.api.services import Api
from sexton_coordinator.leader.leadership import Leadership
from sexton_coordinator.leader.rpc import LeaderServicer, leader_services
from sexton_coordinator.mesh import Mesh
from sexton_runtime.binding import advertised
from sexton_runtime.clock import Clock
from sexton_runtime.lifecycle import ExitCode, Lifecycle
from sexton_runtime.randomness import Randomness
from sexton_runtime.rpc.server import Readiness, RpcServer
from sexton_runtime.secrets import AnySecret, Role
from sexton_runtime.telemetry import Telemetry
from sexton_runtime.transport import Transport

MEMBER_TTL_S = 10.0
"""How long a replica that died is still listed as a member."""


class Coordinator:
    """One replica, over whatever transport it is given; `lifecycle` starts and stops it."""

    def __init__(
        self,
        *,
        transport: Transport,
        clock: Clock,
        randomness: Randomness,
        store: str,
        listen: str,
        advertise: str = "",
        lease_ttl_s: float = 2.0,
        secrets: Mapping[Role, AnySecret] | None = None,
        insecure: bool = False,
        trace_sample: float = 0.0,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Raises `ConfigError` where it may not listen there."""
        telemetry = telemetry or Telemetry()
        self.mesh = Mesh(
            transport=transport,
            clock=clock,
            randomness=randomness,
            store=store,
            secrets=secrets,
            trace_sample=trace_sample,
        )
        self.leadership = Leadership(self.mesh, lease_ttl_s=lease_ttl_s, telemetry=telemetry)
        api = Api(self.mesh, LeaderServicer(self.leadership))
        services = (*api.services, *leader_services(self.mesh, self.leadership))
        self.server = RpcServer(
            transport=transport,
            listen=listen,
            services=services,
            secrets=secrets or {},
            randomness=randomness,
            telemetry=telemetry,
            insecure=insecure,
        )
        self.leadership.report_to(self.server.health)
        self.lifecycle = Lifecycle(
            "coordinator",
            (
                telemetry,
                self.mesh,
                self.server,
                api,
                _Address(self.mesh, self.server, advertise),
                _Membership(self.mesh),
                self.leadership,
                Readiness(self.server.health, [service.name for service in services]),
            ),
        )
        for condition, reason in (
            (self.mesh.store.expelled.wait, "the store is another incarnation"),
            (self.mesh.directory.failed.wait, "the leases can't be followed any more"),
            (self.leadership.failed.wait, "leading failed in a way that does not pass by itself"),
        ):
            self.lifecycle.stop_when(condition, reason, ExitCode.RESTART)


class _Address:
    """Tells the mesh where this replica is reached, once its port is known."""

    def __init__(self, mesh: Mesh, server: RpcServer, advertise: str) -> None:
        self._mesh = mesh
        self._server = server
        self._advertise = advertise

    async def start(self) -> None:
        self._mesh.address = advertised(self._server.address, self._advertise)

    async def stop(self) -> None:
        """Nothing: an address does no harm."""


class _Membership:
    """Holds `members/coordinator/{id}`, so that everybody sees that this replica is there."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._running = asyncio.create_task(self._hold(), name="membership")

    async def stop(self) -> None:
        """Ends; the keeper gives the lease back."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _hold(self) -> None:
        name = f"members/coordinator/{self._mesh.id}"
        while True:
            lease = await self._mesh.keeper.acquire(
                name, ttl_s=MEMBER_TTL_S, value=self._mesh.member()
            )
            await lease.lost.wait()
