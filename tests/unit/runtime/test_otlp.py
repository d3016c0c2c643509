"""What is written by hand is what the generated code reads."""

from __future__ import annotations

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from sexton_runtime import otlp
from sexton_runtime.exporting import is_sampled

TRACE, OWN, PARENT = bytes(range(16)), b"\x01" * 8, b"\x02" * 8
LONG = "ä" * 300


def pair(key: str, **value: object) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(**value))  # type: ignore[arg-type]


def test_a_span_is_read_back_with_every_field() -> None:
    attributes = (
        otlp.text("k", LONG)
        + otlp.whole("n", 2**53)
        + otlp.whole("m", -1)
        + otlp.truth("t", value=True)
    )
    data = otlp.span(
        TRACE, OWN, PARENT, LONG.encode(), otlp.CONSUMER, 5, 2**62, attributes, "went wrong"
    )
    assert Span.FromString(data) == Span(
        trace_id=TRACE,
        span_id=OWN,
        parent_span_id=PARENT,
        name=LONG,
        kind=Span.SPAN_KIND_CONSUMER,
        start_time_unix_nano=5,
        end_time_unix_nano=2**62,
        attributes=[
            pair("k", string_value=LONG),
            pair("n", int_value=2**53),
            pair("m", int_value=-1),
            pair("t", bool_value=True),
        ],
        status=Status(message="went wrong", code=Status.STATUS_CODE_ERROR),
    )


def test_a_span_without_parent_and_fault_ends_no_earlier_than_it_begins() -> None:
    span = Span.FromString(otlp.span(TRACE, OWN, b"", b"n", otlp.INTERNAL, 9, 3, b""))
    assert (span.parent_span_id, span.end_time_unix_nano, span.HasField("status")) == (
        b"",
        9,
        False,
    )


def test_a_request_holds_its_sender_and_all_items() -> None:
    spans = [otlp.span(TRACE, bytes([n]) * 8, b"", b"n", 1, n, n, b"") for n in range(1, 200)]
    sender = otlp.resource({"service.name": "a", "service.version": "b"})
    request = ExportTraceServiceRequest.FromString(
        otlp.request(sender, [otlp.scope(spans, b"here")])
    )
    (group,) = request.resource_spans
    assert group.resource == Resource(
        attributes=[
            pair("service.name", string_value="a"),
            pair("service.version", string_value="b"),
        ]
    )
    assert group.scope_spans[0].scope.name == "here"
    assert [span.start_time_unix_nano for span in group.scope_spans[0].spans] == [*range(1, 200)]


def test_a_log_line_is_read_back_with_its_place_in_the_trace() -> None:
    data = otlp.line(TRACE, OWN, 7, LONG.encode(), [otlp.text("a", "b"), otlp.whole("n", 3)])
    request = ExportLogsServiceRequest.FromString(otlp.request(b"", [otlp.scope([data])]))
    (record,) = request.resource_logs[0].scope_logs[0].log_records
    assert (record.trace_id, record.span_id) == (TRACE, OWN)
    assert (record.time_unix_nano, record.observed_time_unix_nano) == (7, 7)
    assert record.body.string_value == LONG
    assert list(record.attributes) == [pair("a", string_value="b"), pair("n", int_value=3)]


def test_queue_and_worker_find_the_same_spans_without_speaking_of_them() -> None:
    given = f"00-{'ab' * 16}-{'cd' * 8}-01"
    trace = otlp.trace_of(given)
    assert trace == otlp.Trace(b"\xab" * 16, b"\xcd" * 8, sampled=True)
    process = otlp.trace_of(otlp.process_traceparent(given, 2))
    assert process is not None
    assert otlp.process_span(process.span_id) == otlp.attempt_span(trace, 2)
    assert otlp.attempt_span(trace, 1) != otlp.attempt_span(trace, 2)


@pytest.mark.parametrize("text", ["", "00-zz", f"00-{'g' * 32}-{'a' * 16}-01", "x" * 55])
def test_what_is_no_trace_context_is_left_alone(text: str) -> None:
    assert otlp.trace_of(text) is None
    assert otlp.process_traceparent(text, 1) == text


def test_a_run_that_is_not_sampled_keeps_its_trace_context() -> None:
    given = f"00-{'ab' * 16}-{'cd' * 8}-00"
    assert otlp.process_traceparent(given, 1) == given


def test_about_the_part_that_was_asked_for_is_sampled_and_always_the_same() -> None:
    runs = [f"t20261129T030000Z-{number:08x}" for number in range(2_000)]
    chosen = [run for run in runs if is_sampled(run, 0.25)]
    assert 420 < len(chosen) < 580
    assert chosen == [run for run in runs if is_sampled(run, 0.25)]
    assert not any(is_sampled(run, 0.0) for run in runs)
    assert all(is_sampled(run, 1.0) for run in runs)
