"""What only a real network shows: silent peers, several replicas, exported telemetry."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from grpc import aio
from opentelemetry import context, trace
from opentelemetry.proto.collector.metrics.v1 import (
    metrics_service_pb2,
    metrics_service_pb2_grpc,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from sexton import errors
from sexton.internal.v1 import store_pb2 as pb
from sexton.internal.v1 import store_pb2_grpc
from sexton_runtime.randomness import SeededRandomness
from sexton_runtime.rpc.grpc_transport import LEADER, GrpcSettings, GrpcTransport
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_runtime.rpc.server import RpcServer, Service
from sexton_runtime.secrets import Role
from sexton_runtime.telemetry import (
    Telemetry,
    TelemetryConfig,
    open_telemetry,
    parse_traceparent,
)

pytestmark = pytest.mark.slow

SERVICE = "sexton.internal.v1.StoreService"
IMPATIENT = GrpcSettings(keepalive_time_ms=1_000, keepalive_timeout_ms=500)
SILENT_STREAM = """
import asyncio
from grpc import aio
from sexton.internal.v1 import store_pb2 as pb, store_pb2_grpc
from sexton_runtime.rpc.grpc_transport import GrpcTransport

class Silent(store_pb2_grpc.StoreServiceServicer):
    async def Watch(self, request, context):
        yield pb.WatchResponse()
        await asyncio.Event().wait()

async def main():
    transport = GrpcTransport()
    server = transport.server()
    store_pb2_grpc.add_StoreServiceServicer_to_server(Silent(), server)
    print(transport.bind(server, "127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()

asyncio.run(main())
"""


class Named(store_pb2_grpc.StoreServiceServicer):
    """Answers with its number."""

    def __init__(self, number: int) -> None:
        self.number = number

    async def Get(self, request: pb.GetRequest, context: Any) -> pb.GetResponse:
        return pb.GetResponse(revision=self.number)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def serve(stack: AsyncExitStack, number: int, telemetry: Telemetry | None = None):
    register = partial(store_pb2_grpc.add_StoreServiceServicer_to_server, Named(number))
    server = RpcServer(
        transport=GrpcTransport(),
        listen="127.0.0.1:0",
        services=(Service(SERVICE, frozenset({Role.MESH}), register),),
        secrets={Role.MESH: "m" * 32},
        randomness=SeededRandomness(number),
        telemetry=telemetry or Telemetry(),
        grace_s=0.0,
    )
    await server.start()
    stack.push_async_callback(server.stop)
    return server


def stub_of(stack: AsyncExitStack, target: str, settings: GrpcSettings | None = None) -> Any:
    channel = PolicyChannel(GrpcTransport(settings).channel(target), secret="m" * 32)
    stack.push_async_callback(channel.close)
    return store_pb2_grpc.StoreServiceStub(channel)


async def test_calls_go_to_the_replica_that_leads_and_follow_it(stack) -> None:
    servers = [await serve(stack, number) for number in (1, 2, 3)]
    stub = stub_of(stack, ",".join(server.address for server in servers))

    async def ask() -> int:
        answer = await stub.Get(pb.GetRequest(), wait_for_ready=True)
        return int(answer.revision)

    for leading in (1, 3, 2):
        for number, server in enumerate(servers, 1):
            server.health.set(LEADER, serving=number == leading)
        async with asyncio.timeout(10):
            while await ask() != leading:
                pass
        assert [await ask() for _ in range(10)] == [leading] * 10


async def test_a_suspended_peer_is_noticed_on_a_stream_that_is_silent_anyway(stack) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SILENT_STREAM,
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    stream = stub_of(stack, f"127.0.0.1:{port}", IMPATIENT).Watch(pb.WatchRequest())
    await stream.read()

    process.send_signal(signal.SIGSTOP)
    async with asyncio.timeout(15):
        with pytest.raises(errors.OutcomeUnknown):
            await stream.read()

    process.kill()
    await process.communicate()


async def test_a_listener_that_never_speaks_is_given_up(stack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        stub = stub_of(stack, f"127.0.0.1:{silent.getsockname()[1]}")

        async with asyncio.timeout(8):
            with pytest.raises(errors.Unavailable):
                await stub.Get(pb.GetRequest(), timeout=10)


class Collector(
    trace_service_pb2_grpc.TraceServiceServicer, metrics_service_pb2_grpc.MetricsServiceServicer
):
    """Receives what is exported."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.metrics: set[str] = set()
        self.services: set[str] = set()

    async def Export(self, request: Any, context: Any) -> Any:
        if isinstance(request, metrics_service_pb2.ExportMetricsServiceRequest):
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    self.metrics |= {metric.name for metric in scope.metrics}
            return metrics_service_pb2.ExportMetricsServiceResponse()
        for resource in request.resource_spans:
            self.services |= {
                attribute.value.string_value
                for attribute in resource.resource.attributes
                if attribute.key == "service.name"
            }
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return trace_service_pb2.ExportTraceServiceResponse()


async def test_spans_and_metrics_reach_the_endpoint_before_the_process_ends(stack) -> None:
    collector, receiver = Collector(), aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, receiver)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(collector, receiver)
    port = receiver.add_insecure_port("127.0.0.1:0")
    await receiver.start()
    stack.push_async_callback(receiver.stop, 0)
    config = TelemetryConfig(endpoint=f"http://127.0.0.1:{port}", export_interval_s=60)
    telemetry = open_telemetry(config, service="sexton-test", version="1", instance="i")
    server = await serve(stack, 1, telemetry)
    parent = parse_traceparent(f"00-{'a' * 32}-{'b' * 16}-01")
    assert parent is not None

    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(parent)))
    await stub_of(stack, server.address).Get(pb.GetRequest())
    context.detach(token)
    await telemetry.stop()

    assert [span.name for span in collector.spans] == [f"{SERVICE}/Get"]
    assert collector.spans[0].parent_span_id.hex() == "b" * 16
    assert collector.services == {"sexton-test"}
    assert "sexton.rpc.server.calls" in collector.metrics
