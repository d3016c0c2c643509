"""Receives OTLP over gRPC: takes what is offered, answers at once, and never holds a sender up.

Spans and log lines go to the trace store, metrics into memory (the newest value of each), and all
of it to another endpoint where one is set. What can't be taken is counted, by reason.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import Any, Final

from grpc import aio
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span, Status

from sexton_console.otlp.forward import Forwarder
from sexton_console.otlp.metrics import Metrics
from sexton_console.traces.decode import service_of
from sexton_console.traces.model import FAILED, LOGS, SLOW, SPANS, USUAL, Chunk
from sexton_console.traces.service_logs import Said, ServiceLogs
from sexton_console.traces.store import TraceStore
from sexton_runtime import semconv
from sexton_runtime.binding import check_listen

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
MAX_ITEM_BYTES: Final = 256 * 1024
"""Of one span, or one log line."""
MAX_RESOURCE_BYTES: Final = 64 * 1024
"""Of what a sender says about itself."""
GRACE_S: Final = 1.0

_SLOW_FACTOR: Final = 4.0
"""A root span is slow where it takes this many times what spans of its name usually take, ..."""
_SLOW_NS: Final = 250_000_000
"""... and at least this long."""
_NAMES: Final = 10_000
"""Of spans whose usual duration is known."""
_ERROR: Final = Status.STATUS_CODE_ERROR
_LONGEST_NAME: Final = 200
"""Characters of a name by which something is found."""
_FOUND_BY: Final = frozenset({"run", "session", semconv.RUN, semconv.SESSION})
"""Fields of a log line: as our services write them, and as spans name them."""
_LATEST: Final = 2**63 - 1
"""The latest time that SQLite can hold."""


@dataclass(slots=True)
class Received:
    """What came, in spans and lines."""

    spans: int = 0
    lines: int = 0
    points: int = 0
    refused: int = 0
    """Without a usable trace or span id, or too large."""


class Receiver:
    """A part of the console's lifecycle: listens from start to stop."""

    def __init__(
        self,
        listen: str,
        store: TraceStore,
        logs: ServiceLogs,
        *,
        forward: str = "",
        anybody: bool = False,
    ) -> None:
        """Raises `ConfigError` where it may not listen there; `anybody` may then send."""
        check_listen(listen, "console.otlp_listen", secured=False, insecure=anybody)
        self.received = Received()
        self.metrics = Metrics()
        self.forwarder = Forwarder(forward) if forward else None
        self.port = 0
        self._listen = listen
        self._store = store
        self._logs = logs
        self._usual = _Usual()
        self._server: aio.Server | None = None

    @property
    def address(self) -> str:
        """Gives `host:port` as bound; the port is known once started."""
        return f"{self._listen.rpartition(':')[0]}:{self.port}"

    async def start(self) -> None:
        """Binds and listens. Raises `OSError` where the address is taken."""
        server = aio.server(
            options=(
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
                ("grpc.keepalive_permit_without_calls", 1),
            )
        )
        added: tuple[tuple[Any, Any], ...] = (  # generated without types
            (trace_service_pb2_grpc.add_TraceServiceServicer_to_server, _Traces),
            (logs_service_pb2_grpc.add_LogsServiceServicer_to_server, _Logs),
            (metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server, _Points),
        )
        for add, servicer in added:
            add(servicer(self), server)
        try:
            self.port = server.add_insecure_port(self._listen)
        except RuntimeError as error:
            raise OSError(f"{self._listen}: the OTLP port can't be used: {error}") from None
        if self.forwarder is not None:
            await self.forwarder.start()
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Ends. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(GRACE_S)
        if self.forwarder is not None:
            await self.forwarder.stop()

    def take_spans(self, request: trace_service_pb2.ExportTraceServiceRequest) -> int:
        """Takes spans; tells how many were not taken."""
        chunks: list[Chunk] = []
        refused = 0
        for group in request.resource_spans:
            resource = group.resource.SerializeToString()
            by_trace: defaultdict[bytes, list[Span]] = defaultdict(list)
            if len(resource) > MAX_RESOURCE_BYTES:
                large = sum(len(scope.spans) for scope in group.scope_spans)
                self.received.spans += large
                refused += large
                continue
            for scope in group.scope_spans:
                self.received.spans += len(scope.spans)
                if scope.scope.name == semconv.SCOPE_RUN and scope.spans:
                    together = self._together(resource, scope)
                    chunks += together
                    refused += 0 if together else len(scope.spans)
                    continue
                for span in scope.spans:
                    trace = span.trace_id
                    if len(trace) != 16 or len(span.span_id) != 8:
                        refused += 1
                    else:
                        by_trace[trace].append(span)
            for trace, spans in by_trace.items():
                chunk = self._chunk(trace, resource, spans)
                if len(chunk.data) > MAX_ITEM_BYTES:
                    # Only now: counting each one's bytes costs as much as all the rest.
                    fit = [span for span in spans if span.ByteSize() <= MAX_ITEM_BYTES]
                    refused += len(spans) - len(fit)
                    if not fit:
                        continue
                    chunk = self._chunk(trace, resource, fit)
                chunks.append(chunk)
        self.received.refused += refused
        return refused + self._store.offer(chunks)

    def _together(self, resource: bytes, scope: ScopeSpans) -> tuple[Chunk, ...]:
        """Takes spans of one trace as they are; gives nothing where they can't be used.

        Only the first is looked at, for it holds the others: this is the hot path.
        """
        span, data = scope.spans[0], scope.SerializeToString()
        trace = span.trace_id
        if len(trace) != 16 or len(span.span_id) != 8 or len(data) > MAX_ITEM_BYTES:
            return ()
        start, end = span.start_time_unix_nano, min(span.end_time_unix_nano, _LATEST)
        rank = USUAL
        if span.HasField("status") and span.status.code == _ERROR:
            rank = FAILED
        elif not span.parent_span_id and self._usual.is_slow(span.name, end - start):
            rank = SLOW
        return (Chunk(trace, SPANS, resource, data, len(scope.spans), min(start, end), end, rank),)

    def take_lines(self, request: logs_service_pb2.ExportLogsServiceRequest) -> int:
        """Takes log lines; tells how many were not taken.

        The output of tasks belongs to its trace. What services log of themselves, and what belongs
        to no trace, is kept apart.
        """
        chunks: list[Chunk] = []
        said: list[Said] = []
        refused = 0
        for group in request.resource_logs:
            resource = group.resource.SerializeToString()
            if len(resource) > MAX_RESOURCE_BYTES:
                large = sum(len(scope.log_records) for scope in group.scope_logs)
                self.received.lines += large
                refused += large
                continue
            service = service_of(resource)
            by_trace: defaultdict[bytes, list[LogRecord]] = defaultdict(list)
            for scope in group.scope_logs:
                own = scope.scope.name == semconv.SCOPE_LOG
                for record in scope.log_records:
                    self.received.lines += 1
                    if len(record.trace_id) not in (0, 16) or record.ByteSize() > MAX_ITEM_BYTES:
                        refused += 1
                    elif own or not record.trace_id:
                        said.append(said_by(service, record))
                    else:
                        by_trace[record.trace_id].append(record)
            for trace, records in by_trace.items():
                times = [r.time_unix_nano or r.observed_time_unix_nano for r in records]
                data = ScopeLogs(log_records=records).SerializeToString()
                chunks.append(
                    Chunk(trace, LOGS, resource, data, len(records), min(times), max(times), USUAL)
                )
        self.received.refused += refused
        return refused + self._store.offer(chunks) + self._logs.offer(said)

    def _chunk(self, trace: bytes, resource: bytes, spans: list[Span]) -> Chunk:
        rank, first, last = USUAL, _LATEST, 0
        for span in spans:
            start, end = span.start_time_unix_nano, span.end_time_unix_nano
            first = min(first, start)
            last = max(last, end)
            if span.HasField("status") and span.status.code == _ERROR:
                rank = FAILED
            elif rank < SLOW and not span.parent_span_id:
                rank = SLOW if self._usual.is_slow(span.name, end - start) else rank
        data = ScopeSpans(spans=spans).SerializeToString()
        return Chunk(trace, SPANS, resource, data, len(spans), first, min(last, _LATEST), rank)


class _Usual:
    """How long root spans of a name usually take."""

    def __init__(self) -> None:
        self._means: OrderedDict[str, float] = OrderedDict()

    def is_slow(self, name: str, took: int) -> bool:
        """Tells whether a root span took much longer than usual; takes note of it."""
        name = name[:_LONGEST_NAME]
        mean = self._means.get(name)
        self._means[name] = float(took) if mean is None else mean + (took - mean) / 16
        self._means.move_to_end(name)
        if len(self._means) > _NAMES:
            self._means.popitem(last=False)
        return mean is not None and took > _SLOW_NS and took > _SLOW_FACTOR * mean


def said_by(service: str, record: LogRecord) -> Said:
    """Gives a line with what it is found by."""
    found = {
        each.key: each.value.string_value for each in record.attributes if each.key in _FOUND_BY
    }
    run = found.get("run") or found.get(semconv.RUN, "")
    at = min(record.time_unix_nano or record.observed_time_unix_nano, _LATEST)
    return Said(
        at=at,
        service=service[:_LONGEST_NAME],
        severity=record.severity_number,
        run=run.rpartition("/")[2][:_LONGEST_NAME],
        session=(found.get("session") or found.get(semconv.SESSION, ""))[:_LONGEST_NAME],
        trace=record.trace_id,
        data=record.SerializeToString(),
    )


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def Export(  # noqa: N802 - the name on the wire
        self, request: trace_service_pb2.ExportTraceServiceRequest, _context: Any
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        dropped = self._receiver.take_spans(request)
        _forward(self._receiver, "traces", request)
        answer = trace_service_pb2.ExportTraceServiceResponse()
        if dropped:
            answer.partial_success.rejected_spans = dropped
        return answer


class _Logs(logs_service_pb2_grpc.LogsServiceServicer):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def Export(  # noqa: N802 - the name on the wire
        self, request: logs_service_pb2.ExportLogsServiceRequest, _context: Any
    ) -> logs_service_pb2.ExportLogsServiceResponse:
        dropped = self._receiver.take_lines(request)
        _forward(self._receiver, "logs", request)
        answer = logs_service_pb2.ExportLogsServiceResponse()
        if dropped:
            answer.partial_success.rejected_log_records = dropped
        return answer


class _Points(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def Export(  # noqa: N802 - the name on the wire
        self, request: metrics_service_pb2.ExportMetricsServiceRequest, _context: Any
    ) -> metrics_service_pb2.ExportMetricsServiceResponse:
        self._receiver.received.points += self._receiver.metrics.take(request)
        _forward(self._receiver, "metrics", request)
        return metrics_service_pb2.ExportMetricsServiceResponse()


def _forward(receiver: Receiver, kind: str, request: Any) -> None:
    if receiver.forwarder is not None:
        receiver.forwarder.offer(kind, request)
