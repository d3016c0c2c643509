"""Health, reflection, binding and the orderly end of a server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from sexton import errors
from sexton.internal.v1 import store_pb2_grpc
from sexton_runtime.config import ConfigError
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.server import Readiness

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Idle(store_pb2_grpc.StoreServiceServicer):
    """Serves nothing."""


@pytest.fixture
async def server(house):
    return await house.serve(Idle())


@pytest.fixture
async def health(house, server) -> Any:
    return health_pb2_grpc.HealthStub(house.channel(server, secret=""))


def asked(service: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


async def test_health_is_told_per_service_and_to_everybody(server, health) -> None:
    readiness = Readiness(server.health, ("leader",))
    await readiness.start()
    assert (await health.Check(asked(""))).status == SERVING
    assert (await health.Check(asked("leader"))).status == SERVING

    server.health.set("leader", serving=False)
    assert (await health.Check(asked("leader"))).status == NOT_SERVING
    assert (await health.Check(asked(""))).status == SERVING

    await readiness.stop()
    assert (await health.Check(asked(""))).status == NOT_SERVING
    with pytest.raises(errors.NotFound, match=r"there is no health service 'other'"):
        await health.Check(asked("other"))


async def test_a_watch_of_health_follows_and_ends_with_the_server(server, health) -> None:
    seen = []

    async def follow() -> None:
        async for answer in health.Watch(asked("leader")):
            seen.append(answer.status)
            heard.set()

    heard = asyncio.Event()
    following = asyncio.create_task(follow())
    for act in (
        lambda: None,
        lambda: server.health.set("leader", serving=True),
        lambda: server.health.set("leader", serving=False),
    ):
        heard.clear()
        act()
        await asyncio.wait_for(heard.wait(), 5)
    server.health.close()
    server.health.set("leader", serving=True)
    await asyncio.wait_for(following, 5)

    assert seen == [UNKNOWN, SERVING, NOT_SERVING]


async def test_reflection_needs_a_secret_and_lists_the_services(house, server) -> None:
    request = reflection_pb2.ServerReflectionRequest(list_services="")

    async def listed(secret: str) -> list[str]:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(house.channel(server, secret))  # type: ignore[no-untyped-call]
        stream = stub.ServerReflectionInfo(_one(request))
        async for answer in stream:
            return [service.name for service in answer.list_services_response.service]
        return []

    assert await listed("m" * 32) == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "sexton.internal.v1.StoreService",
    ]
    with pytest.raises(errors.Unauthenticated):
        await listed("")


async def test_a_second_server_on_the_port_is_refused(house, server) -> None:
    with pytest.raises(OSError, match=r"in use|can't listen on"):
        await house.serve(Idle(), listen=server.address)


async def test_nobody_listens_beyond_the_machine_without_secrets(house) -> None:
    with pytest.raises(ConfigError, match=r"there are no secrets"):
        await house.serve(Idle(), listen="0.0.0.0:0", secrets={})


async def test_a_stopped_server_refuses_and_stops_again_without_effect(house, server) -> None:
    health: Any = health_pb2_grpc.HealthStub(house.channel(server))
    await server.stop()
    await server.stop()

    with pytest.raises(errors.Unavailable):
        await health.Check(asked(""))


@pytest.mark.parametrize("target", ["store:1,queue:2", "10.0.0.1:1,[::1]:2"])
def test_several_addresses_are_ip_addresses_of_one_kind(target: str) -> None:
    with pytest.raises(ValueError, match=r"several addresses|mixes"):
        GrpcTransport().channel(target)


async def _one(request: Any) -> Any:
    yield request
