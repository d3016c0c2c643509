"""A server with everything that each of ours has: gate, health, reflection, an orderly end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from grpc import aio
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from sexton_runtime import semconv
from sexton_runtime.binding import check_listen
from sexton_runtime.randomness import Randomness
from sexton_runtime.rpc import health
from sexton_runtime.rpc.gate import CallGate, Guard
from sexton_runtime.secrets import Access, AnySecret, Role
from sexton_runtime.telemetry import Points, Telemetry
from sexton_runtime.transport import Transport

GRACE_S = 5.0
"""How long calls in flight are given when the server stops."""


class Service(NamedTuple):
    """A service that a server offers: its full name, who may call it, how it is added."""

    name: str
    roles: frozenset[Role]
    register: Callable[[aio.Server], None]
    reads: frozenset[str] = frozenset()
    """Methods that the reader's secret allows: they change nothing."""


class RpcServer:
    """A part of a service's lifecycle: listens from start to stop.

    Its health as a whole is set by `Readiness`, the last part to start and the first to stop.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        listen: str,
        services: Sequence[Service],
        secrets: Mapping[Role, AnySecret],
        randomness: Randomness,
        telemetry: Telemetry,
        guards: Sequence[Guard] = (),
        insecure: bool = False,
        grace_s: float = GRACE_S,
    ) -> None:
        """Raises `ConfigError` where it may not listen there."""
        roles = {service.name: service.roles for service in services}
        roles[health.SERVICE] = frozenset()
        roles[reflection.SERVICE_NAME] = frozenset(Role)
        access = Access(secrets, roles, {each.name: each.reads for each in services if each.reads})
        check_listen(listen, "listen", secured=access.secured, insecure=insecure)
        self.health = health.Health()
        self.gate = CallGate(
            access=access, randomness=randomness, telemetry=telemetry, guards=guards
        )
        self.port = 0
        self._listen = listen
        self._transport = transport
        self._grace_s = grace_s
        self._server = transport.server((self.gate,))
        for service in services:
            service.register(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(  # type: ignore[no-untyped-call]
            reflection.aio.ReflectionServicer(sorted(roles)), self._server
        )
        telemetry.counter(semconv.RPC_CALLS, self._calls)

    @property
    def address(self) -> str:
        """Gives `host:port` as bound; the port is known once started."""
        return f"{self._listen.rpartition(':')[0]}:{self.port}"

    async def start(self) -> None:
        """Binds and listens. Raises `OSError` where the address is taken."""
        self.port = self._transport.bind(self._server, self._listen)
        await self._server.start()

    async def stop(self) -> None:
        """Refuses new calls, gives those in flight their grace, and ends. Idempotent."""
        self.health.close()
        await self._server.stop(self._grace_s)

    def _calls(self) -> Points:
        return [
            (float(number), {semconv.RPC_METHOD: method, semconv.RPC_CODE: code})
            for (method, code), number in self.gate.calls.items()
        ]


class Readiness:
    """The last part of a service to start and the first to stop: its health."""

    def __init__(self, states: health.Health, services: Sequence[str] = ()) -> None:
        self._health = states
        self._services = (health.OVERALL, *services)

    async def start(self) -> None:
        """Says that the server and its services are to be used."""
        for service in self._services:
            self._health.set(service, serving=True)

    async def stop(self) -> None:
        """Says that they are not."""
        for service in self._services:
            self._health.set(service, serving=False)
