"""What broken or hostile senders can not do: fill more than their room, stay, or break a page."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics, ScopeMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from sexton_console.otlp import forward
from sexton_console.otlp.metrics import Metrics
from sexton_console.otlp.receiver import MAX_ITEM_BYTES, MAX_RESOURCE_BYTES, Receiver
from sexton_console.traces.decode import value_of
from sexton_console.traces.service_logs import ServiceLogs
from sexton_console.traces.store import Bounds, TraceStore

DAY_NS = 86_400 * 10**9
NOW = 1_800_000_000 * 10**9
ONE, OTHER = b"\1" * 16, b"\2" * 16


class Opened:
    """Both files, and a receiver that is called without a wire."""

    def __init__(self, folder: Path) -> None:
        self.now = NOW
        bounds = Bounds(max_bytes=10**6, keep_s=86_400, keep_failed_s=86_400)
        self.traces = TraceStore(folder / "t.sqlite", bounds, wall_ns=lambda: self.now)
        self.logs = ServiceLogs(
            folder / "l.sqlite", max_bytes=10**6, keep_s=86_400, wall_ns=lambda: self.now
        )
        self.receiver = Receiver("127.0.0.1:0", self.traces, self.logs)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    made = Opened(tmp_path)
    await made.traces.start()
    await made.logs.start()
    yield made
    await made.logs.stop()
    await made.traces.stop()


def sender(name: str) -> Resource:
    return Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value=name))])


def spans(*found: Span, name: str = "shop") -> ExportTraceServiceRequest:
    scopes = [ScopeSpans(spans=found)]
    group = ResourceSpans(resource=sender(name), scope_spans=scopes)
    return ExportTraceServiceRequest(resource_spans=[group])


def span(trace: bytes, name: str, at: int = NOW, number: int = 1) -> Span:
    return Span(
        trace_id=trace, span_id=bytes([number]) * 8, name=name, start_time_unix_nano=at,
        end_time_unix_nano=at,
    )  # fmt: skip


def lines(*found: LogRecord, name: str = "shop") -> ExportLogsServiceRequest:
    scopes = [ScopeLogs(log_records=found)]
    group = ResourceLogs(resource=sender(name), scope_logs=scopes)
    return ExportLogsServiceRequest(resource_logs=[group])


def line(text: str, at: int = NOW, trace: bytes = b"") -> LogRecord:
    body = AnyValue(string_value=text)
    return LogRecord(trace_id=trace, time_unix_nano=at, body=body)


async def test_a_line_at_the_end_of_time_takes_nothing_else_with_it(opened: Opened) -> None:
    late = line("late", 2**64 - 1, ONE)
    assert opened.receiver.take_lines(lines(late, line("usual", trace=OTHER))) == 0
    assert opened.receiver.take_lines(lines(line("next", trace=OTHER))) == 0
    await opened.traces.flush()
    assert [each.body for each in await opened.traces.lines(ONE)] == ["late"]
    assert [each.body for each in await opened.traces.lines(OTHER)] == ["usual", "next"]


async def test_what_names_the_future_or_no_time_goes_by_when_it_came(opened: Opened) -> None:
    for trace, at in ((ONE, NOW + 900 * DAY_NS), (OTHER, 0)):
        opened.receiver.take_spans(spans(span(trace, "a", at)))
        opened.receiver.take_lines(lines(line("a", at)))
    opened.receiver.take_lines(lines(line("usual")))
    await opened.traces.flush()
    assert (await opened.traces.sweep_once(), await opened.logs.sweep_once()) == (0, 0)
    opened.now += 2 * DAY_NS
    assert (await opened.traces.sweep_once(), await opened.logs.sweep_once()) == (2, 3)


async def test_one_span_is_not_larger_than_it_may_be_however_few_its_attributes(
    opened: Opened,
) -> None:
    large = span(ONE, "x" * (MAX_ITEM_BYTES + 1))
    many = [span(ONE, "y" * 1_000, number=number) for number in range(2, 250)]
    assert opened.receiver.take_spans(spans(large, *many)) == 1
    await opened.traces.flush()
    assert len(await opened.traces.spans(ONE)) == 248
    assert opened.receiver.take_spans(spans(large)) == 1


async def test_what_a_sender_says_of_itself_is_bounded_and_takes_of_the_room(
    opened: Opened,
) -> None:
    huge = "h" * (MAX_RESOURCE_BYTES + 1)
    assert opened.receiver.take_spans(spans(span(ONE, "a"), name=huge)) == 1
    assert opened.receiver.take_lines(lines(line("a"), name=huge)) == 1
    assert opened.receiver.received.refused == 2
    for number in range(40):
        name = str(number) + "l" * (MAX_RESOURCE_BYTES // 2)
        trace = bytes([number]) * 16
        opened.receiver.take_spans(spans(span(trace, "a"), name=name))
        opened.receiver.take_lines(lines(line("a"), name=name))
    await opened.traces.flush()
    assert opened.traces.counters.evicted_traces > 5
    assert max(map(len, await opened.logs.services())) == 200


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_kept_from_pages_and_from_json(value: float) -> None:
    shown = value_of(AnyValue(double_value=value))
    assert json.dumps(shown, allow_nan=False) in ('"nan"', '"inf"', '"-inf"')
    metric = Metric(name="n")
    metric.gauge.data_points.add(as_double=value)
    assert take(Metrics(), metric) == 0


def test_a_number_is_not_told_apart_by_a_text_without_an_end() -> None:
    metric = Metric(name="n")
    point = metric.gauge.data_points.add(as_double=1.0)
    point.attributes.add(key="k").value.string_value = "v" * 10_000
    metric.gauge.data_points.add(as_double=2.0)
    known = Metrics()
    assert take(known, metric) == 1
    assert [value for _, _, value in known.find("n")] == [2.0]


def take(known: Metrics, metric: Metric) -> int:
    group = ResourceMetrics(scope_metrics=[ScopeMetrics(metrics=[metric])])
    return known.take(ExportMetricsServiceRequest(resource_metrics=[group]))


async def test_a_line_that_says_nothing_says_nothing(opened: Opened) -> None:
    opened.receiver.take_lines(lines(LogRecord(time_unix_nano=NOW)))
    assert [each.body for each in await opened.logs.newest()] == [""]


async def test_what_waits_to_be_sent_on_is_bounded_in_bytes_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forward, "MAX_WAITING_BYTES", 3_000)
    waiting = forward.Forwarder("http://127.0.0.1:9")
    for _ in range(4):
        waiting.offer("traces", spans(span(ONE, "x" * 1_000)))
    assert waiting.dropped == 2
