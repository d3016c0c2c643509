"""The OTLP receiver over real gRPC: our own bytes, the OpenTelemetry SDK, and what is no good."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self

import pytest
from grpc import aio
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import StatusCode

from sexton_console.otlp.receiver import Receiver
from sexton_console.traces.service_logs import ServiceLogs
from sexton_console.traces.store import Bounds, TraceStore
from sexton_runtime import otlp, semconv
from sexton_runtime.config import ConfigError
from sexton_runtime.exporting import Exporter

BOUNDS = Bounds(max_bytes=10**8, keep_s=1e9, keep_failed_s=1e9)
TRACE = b"\x01" * 16


class Opened:
    def __init__(self, folder: Path, **options) -> None:
        self.store = TraceStore(folder / "traces.sqlite", BOUNDS)
        self.logs = ServiceLogs(folder / "logs.sqlite", max_bytes=10**7, keep_s=1e9)
        self.receiver = Receiver("127.0.0.1:0", self.store, self.logs, **options)

    async def __aenter__(self) -> Self:
        await self.store.start()
        await self.logs.start()
        await self.receiver.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.receiver.stop()
        await self.logs.stop()
        await self.store.stop()

    @property
    def endpoint(self) -> str:
        return f"http://{self.receiver.address}"


def span(number: int, **fields) -> bytes:
    given = {"name": b"n", "kind": 1, "start": 1, "end": 2, "attributes": b""} | fields
    return otlp.span(TRACE, bytes([number]) * 8, b"", *given.values())


async def test_what_services_write_in_bulk_arrives(tmp_path: Path) -> None:
    async with Opened(tmp_path) as opened:
        exporter = Exporter(opened.endpoint, {semconv.SERVICE_NAME: "queue"})
        spans = exporter.sink("spans", lambda number: [span(number)])
        lines = exporter.sink("lines", lambda text: [otlp.line(TRACE, b"\1" * 8, 5, text, ())])
        for number in range(1, 200):
            spans.add(number)
        lines.add(b"hello")
        await exporter.start()
        await exporter.stop()
        await opened.store.flush()
        found = await opened.store.spans(TRACE)
        assert len(found) == 199
        assert {each.service for each in found} == {"queue"}
        assert [line.body for line in await opened.store.lines(TRACE)] == ["hello"]
        assert exporter.dropped() == {"spans": 0, "lines": 0}
        assert (opened.receiver.received.spans, opened.receiver.received.lines) == (199, 1)


async def test_spans_that_come_together_are_of_the_trace_of_the_first(tmp_path: Path) -> None:
    async with Opened(tmp_path) as opened:
        other = otlp.span(b"\x09" * 16, b"\x03" * 8, b"", b"foreign", 1, 1, 2, b"")
        good = [span(1, error="went wrong"), span(2), other]
        bad = [Span(trace_id=b"short", span_id=b"\x03" * 8).SerializeToString()]
        exporter = Exporter(opened.endpoint, {})
        sink = exporter.sink("spans", lambda spans: spans, semconv.SCOPE_RUN)
        for each in (good, bad, []):
            sink.add(each)
        await exporter.start()
        await exporter.stop()
        await opened.store.flush()
        assert [each.name for each in await opened.store.spans(TRACE)] == ["n", "n"]
        assert await opened.store.spans(b"\x09" * 16) == []
        assert (opened.receiver.received.spans, opened.receiver.received.refused) == (4, 1)


async def test_user_code_with_the_opentelemetry_sdk_needs_nothing_but_the_endpoint(
    tmp_path: Path,
) -> None:
    def work(endpoint: str) -> int:
        provider = TracerProvider(
            resource=Resource({"service.name": "shop"}), shutdown_on_exit=False
        )
        provider.add_span_processor(
            SimpleSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=True))
        )
        with provider.get_tracer("t").start_as_current_span("ask the shop") as made:
            made.set_attribute("items", [1, 2])
            made.add_event("asked", {"url": "http://shop"})
            made.set_status(StatusCode.ERROR, "no answer")
        provider.shutdown()
        return made.get_span_context().trace_id

    async with Opened(tmp_path) as opened:
        trace = await asyncio.to_thread(work, opened.endpoint)
        await opened.store.flush()
        (found,) = await opened.store.spans(trace.to_bytes(16))
    assert (found.name, found.service, found.failed) == ("ask the shop", "shop", True)
    assert found.message == "no answer"
    assert found.attributes == {"items": [1, 2]}
    assert [(event.name, event.attributes) for event in found.events] == [
        ("asked", {"url": "http://shop"})
    ]


async def test_spans_without_usable_ids_are_refused_and_the_others_kept(tmp_path: Path) -> None:
    spans = [
        Span(trace_id=TRACE, span_id=b"\1" * 8, name="good"),
        Span(trace_id=b"short", span_id=b"\1" * 8, name="no trace"),
        Span(trace_id=TRACE, span_id=b"", name="no id"),
        Span(trace_id=TRACE, span_id=b"\2" * 8, name="times", end_time_unix_nano=2**64 - 1),
    ]
    request = pb.ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(scope_spans=[ScopeSpans(spans=spans)])]
    )
    async with Opened(tmp_path) as opened, aio.insecure_channel(opened.receiver.address) as channel:
        export = channel.unary_unary(
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            request_serializer=pb.ExportTraceServiceRequest.SerializeToString,
            response_deserializer=pb.ExportTraceServiceResponse.FromString,
        )
        answer = await export(request)
        await opened.store.flush()
        assert answer.partial_success.rejected_spans == 2
        names = [each.name for each in await opened.store.spans(TRACE)]
        assert sorted(names) == ["good", "times"]
        assert opened.receiver.received.refused == 2


async def test_everything_is_sent_on_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with Opened(tmp_path / "other") as other:  # noqa: SIM117 - the one needs the other
        async with Opened(tmp_path, forward=other.endpoint) as opened:
            exporter = Exporter(opened.endpoint, {})
            exporter.sink("spans", lambda number: [span(number)]).add(1)
            await exporter.start()
            await exporter.stop()
            assert opened.receiver.forwarder is not None
            while not opened.receiver.forwarder.sent:  # noqa: ASYNC110 - it only counts
                await asyncio.sleep(0.01)
            await other.store.flush()
            assert len(await other.store.spans(TRACE)) == 1


async def test_a_receiver_that_is_away_costs_its_senders_nothing_but_what_they_count() -> None:
    exporter = Exporter("http://127.0.0.1:9", {})
    sink = exporter.sink("spans", lambda number: [span(number % 200 + 1)])
    for number in range(20_001):
        sink.add(number)
    assert exporter.dropped() == {"spans": 1}
    await exporter.run_once()  # nobody answers: it waits to be sent again
    assert len(sink) == 0
    await exporter.stop()


def test_telemetry_is_not_taken_from_other_machines_unasked(tmp_path: Path) -> None:
    store = TraceStore(tmp_path / "traces.sqlite", BOUNDS)
    logs = ServiceLogs(tmp_path / "logs.sqlite", max_bytes=1, keep_s=1)
    with pytest.raises(ConfigError, match="otlp_listen"):
        Receiver("0.0.0.0:4317", store, logs)
    Receiver("0.0.0.0:4317", store, logs, anybody=True)
