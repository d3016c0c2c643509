"""From what came over OTLP to spans and log lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from sexton_console.traces.model import Event, LogLine, Span
from sexton_runtime import semconv

_KINDS: Final = {
    number: name.removeprefix("SPAN_KIND_").lower()
    for name, number in trace_pb2.Span.SpanKind.items()
}
_DEPTH: Final = 4
"""Of lists and maps in attributes; deeper ones are shown as `...`."""
_LINES_PER_CHUNK: Final = 1 << 20
"""A line's cursor is its chunk's number times this, plus its place there from 1."""


def spans_in(trace: bytes, resource: bytes, data: bytes) -> Iterator[Span]:
    """Gives the spans of a serialised `ScopeSpans`, as far as they are of this trace."""
    service = service_of(resource)
    for span in trace_pb2.ScopeSpans.FromString(data).spans:
        if span.trace_id != trace:
            continue
        yield Span(
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            name=span.name,
            kind=_KINDS.get(span.kind, "internal"),
            start=span.start_time_unix_nano,
            end=max(span.end_time_unix_nano, span.start_time_unix_nano),
            service=service,
            failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
            message=span.status.message,
            attributes=attributes_of(span.attributes),
            events=tuple(
                Event(each.time_unix_nano, each.name, attributes_of(each.attributes))
                for each in span.events
            ),
        )


def log_lines(resource: bytes, data: bytes, chunk: int) -> Iterator[LogLine]:
    """Gives the lines of a serialised `ScopeLogs`, which is the chunk of this number."""
    service = service_of(resource)
    for place, record in enumerate(ScopeLogs.FromString(data).log_records, 1):
        yield log_line(service, record, chunk * _LINES_PER_CHUNK + place)


def log_line(service: str, record: LogRecord, cursor: int) -> LogLine:
    """Gives a line; `cursor`: where it stands among the others."""
    body = value_of(record.body) if record.body.WhichOneof("value") else ""
    return LogLine(
        cursor=cursor,
        at=record.time_unix_nano or record.observed_time_unix_nano,
        span_id=record.span_id.hex(),
        severity=record.severity_text or severity_word(record.severity_number),
        body=body if isinstance(body, str) else str(body),
        service=service,
        attributes=attributes_of(record.attributes),
    )


def severity_word(number: int) -> str:
    """Gives a severity as a word: OpenTelemetry has four numbers for each."""
    words = ("", "trace", "debug", "info", "warning", "error", "fatal")
    return words[min(len(words) - 1, (number + 3) // 4)] if number > 0 else ""


@lru_cache(maxsize=1_000)
def service_of(resource: bytes) -> str:
    """Gives the service's name of a serialised `Resource`; empty where it has none."""
    for each in Resource.FromString(resource).attributes:
        if each.key == semconv.SERVICE_NAME:
            return each.value.string_value
    return ""


def attributes_of(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    """Gives attributes as values that JSON knows."""
    return {pair.key: value_of(pair.value) for pair in pairs}


def value_of(value: AnyValue, depth: int = _DEPTH) -> Any:
    """Gives a value that JSON knows."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        items = value.array_value.values
        return [value_of(item, depth - 1) for item in items] if depth else "..."
    if kind == "kvlist_value":
        pairs = value.kvlist_value.values
        return {pair.key: value_of(pair.value, depth - 1) for pair in pairs} if depth else "..."
    if kind == "bytes_value":
        return value.bytes_value.hex()
    if kind == "double_value" and not math.isfinite(value.double_value):
        return str(value.double_value)
    return getattr(value, kind)
