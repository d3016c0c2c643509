"""Traces and metrics: silent unless configured, wired once, propagated."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sexton.errors import Unavailable
from sexton.internal.v1 import store_pb2 as pb
from sexton.internal.v1 import store_pb2_grpc
from sexton_runtime.config import ConfigError
from sexton_runtime.semconv import STORE_EVENTS, STORE_USED
from sexton_runtime.telemetry import (
    Points,
    Telemetry,
    TelemetryConfig,
    open_telemetry,
    parse_traceparent,
)

TRACE, SPAN = "a" * 32, "b" * 16
METHOD = "/sexton.internal.v1.StoreService/Get"


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as response:
        return bytes(response.read())


def apart(work: Callable[[], Any]) -> Any:
    """Runs in a context of its own, as each call of a server does."""
    return contextvars.copy_context().run(work)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'x' * 32}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-001",
    ],
)
def test_what_is_no_trace_context_is_none(text: str) -> None:
    assert parse_traceparent(text) is None


def test_a_trace_context_is_read() -> None:
    parsed = parse_traceparent(f"00-{TRACE}-{SPAN}-01")

    assert parsed is not None
    assert (parsed.trace_id, parsed.span_id) == (int(TRACE, 16), int(SPAN, 16))
    assert parsed.trace_flags.sampled
    assert parsed.is_remote


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def telemetry(exporter: InMemorySpanExporter) -> Telemetry:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Telemetry(provider.get_tracer("test"))


def call(telemetry: Telemetry, traceparent: str, error: Exception | None = None) -> None:
    with telemetry.server_span(METHOD, traceparent):
        if error:
            raise error


def test_a_recorded_trace_gets_a_span_per_call(telemetry, exporter) -> None:
    apart(lambda: call(telemetry, f"00-{TRACE}-{SPAN}-01"))
    with pytest.raises(ValueError, match=r"why"):
        apart(lambda: call(telemetry, f"00-{TRACE}-{SPAN}-01", ValueError("why")))

    good, bad = exporter.get_finished_spans()
    assert good.name == "sexton.internal.v1.StoreService/Get"
    assert (good.context.trace_id, good.parent.span_id) == (int(TRACE, 16), int(SPAN, 16))
    assert good.attributes == {
        "rpc.system": "grpc",
        "rpc.service": "sexton.internal.v1.StoreService",
        "rpc.method": "Get",
    }
    assert (good.status.is_ok, bad.status.is_ok) == (True, False)


@pytest.mark.parametrize("traceparent", ["", f"00-{TRACE}-{SPAN}-00"])
def test_a_trace_that_is_not_recorded_gets_no_span(telemetry, exporter, traceparent) -> None:
    apart(lambda: call(telemetry, traceparent))

    assert exporter.get_finished_spans() == ()


async def test_a_trace_goes_on_through_channel_and_gate(house, telemetry, exporter) -> None:
    class Servicer(store_pb2_grpc.StoreServiceServicer):
        async def Get(self, request: Any, context: Any) -> pb.GetResponse:
            inside.append(trace.get_current_span().get_span_context())
            return pb.GetResponse()

    inside: list[trace.SpanContext] = []
    server = await house.serve(Servicer(), telemetry=telemetry)
    stub: Any = store_pb2_grpc.StoreServiceStub(house.channel(server))
    parent = parse_traceparent(f"00-{TRACE}-{SPAN}-01")
    assert parent is not None

    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(parent)))
    await stub.Get(pb.GetRequest())
    context.detach(token)
    await stub.Get(pb.GetRequest())

    (span,) = exporter.get_finished_spans()
    assert span.parent.span_id == int(SPAN, 16)
    assert inside[0] == span.context
    assert not inside[1].is_valid


async def test_without_configuration_nothing_is_wired() -> None:
    silent = open_telemetry(TelemetryConfig(), service="s", version="1", instance="i")

    assert silent.metrics_port == 0
    silent.gauge(STORE_USED, lambda: [(1.0, {})])
    await silent.stop()
    await silent.stop()


@pytest.mark.slow
async def test_prometheus_reads_what_is_observed_at_that_moment() -> None:
    config = TelemetryConfig(metrics_listen="127.0.0.1:0")
    telemetry = open_telemetry(config, service="s", version="1", instance="i")
    telemetry.gauge(STORE_USED, lambda: [(4096.0, {"kind": "records"})])

    url = f"http://127.0.0.1:{telemetry.metrics_port}/metrics"
    text = (await asyncio.to_thread(fetch, url)).decode()
    await telemetry.stop()

    assert 'sexton_store_used_bytes{kind="records"' in text
    assert " 4096.0" in text


@pytest.mark.slow
async def test_what_is_measured_is_read_where_it_lives_and_shows_nothing_if_it_cannot_tell(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Exporters look from their own threads; an engine or a clock is its loop's alone."""
    config = TelemetryConfig(metrics_listen="127.0.0.1:0")
    telemetry = open_telemetry(config, service="s", version="1", instance="i")
    threads: list[int] = []

    def read() -> Points:
        threads.append(threading.get_ident())
        return [(1.0, {})]

    def starting() -> Points:
        raise Unavailable("the store is starting")

    telemetry.gauge(STORE_USED, read)
    telemetry.counter(STORE_EVENTS, starting)
    url = f"http://127.0.0.1:{telemetry.metrics_port}/metrics"
    text = (await asyncio.to_thread(fetch, url)).decode()
    await telemetry.stop()

    assert set(threads) == {threading.get_ident()}
    assert "sexton_store_used_bytes" in text
    assert "sexton_store_events" not in text
    assert caplog.text == ""


def test_an_address_that_is_none_is_refused() -> None:
    config = TelemetryConfig(metrics_listen="9464")

    with pytest.raises(ConfigError, match=r"telemetry.metrics_listen: '9464' is no address"):
        open_telemetry(config, service="s", version="1", instance="i")
