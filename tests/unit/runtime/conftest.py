"""A server behind the gate, and the channel to it, over gRPC and over the simulated network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from sexton.internal.v1 import store_pb2_grpc
from sexton_runtime.randomness import SeededRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_runtime.rpc.server import RpcServer, Service
from sexton_runtime.secrets import AnySecret, Role
from sexton_runtime.telemetry import Telemetry
from sexton_runtime.transport import Transport
from sexton_sim.network import Network
from sexton_sim.transport import SimTransport

MESH = "m" * 32
SERVICE = "sexton.internal.v1.StoreService"


@pytest.fixture(params=["grpc", "simulated"])
def transport(request: pytest.FixtureRequest) -> Transport:
    return GrpcTransport() if request.param == "grpc" else SimTransport(Network())


class House:
    """Starts servers of scripted servicers and opens channels to them."""

    def __init__(self, transport: Transport, stack: AsyncExitStack) -> None:
        self.transport = transport
        self._stack = stack

    async def serve(self, servicer: Any, **options: Any) -> RpcServer:
        register = partial(store_pb2_grpc.add_StoreServiceServicer_to_server, servicer)
        arguments: dict[str, Any] = {
            "transport": self.transport,
            "listen": "127.0.0.1:0",
            "services": (Service(SERVICE, frozenset({Role.MESH}), register),),
            "secrets": {Role.MESH: MESH},
            "randomness": SeededRandomness(1),
            "telemetry": Telemetry(),
            "grace_s": 0.0,
        }
        server = RpcServer(**(arguments | options))
        await server.start()
        self._stack.push_async_callback(server.stop)
        return server

    def channel(self, server: RpcServer, secret: AnySecret = MESH) -> PolicyChannel:
        channel = PolicyChannel(self.transport.channel(server.address), secret=secret)
        self._stack.push_async_callback(channel.close)
        return channel


@pytest.fixture
async def house(transport: Transport) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        yield House(transport, stack)
