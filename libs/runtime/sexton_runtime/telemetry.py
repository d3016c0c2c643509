"""Traces and metrics, wired once per process and handed on; nothing is global.

Without an endpoint nothing is recorded and next to nothing is spent: the caller's trace context is
still taken up, so that log lines carry its ids and calls made meanwhile pass it on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags
from pydantic import Field

from sexton.errors import SextonError
from sexton_runtime import semconv
from sexton_runtime.binding import parse_address
from sexton_runtime.exporting import Exporter
from sexton_runtime.semconv import Instrument

Points = Iterable[tuple[float, Mapping[str, str]]]
"""What an instrument shows at one moment: values with their attributes."""

_READ_TIMEOUT_S = 2.0
"""A loop that is too busy to tell its numbers for so long shows none this time."""
_EXPORT_TIMEOUT_S = 2
"""One export is given up after this: also the last one, for which a stopping process waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """Where telemetry goes."""

    endpoint: Annotated[
        str, Field(description="OTLP/gRPC endpoint for traces, metrics, logs, http://host:port")
    ] = ""
    metrics_listen: Annotated[
        str, Field(description="host:port of the Prometheus endpoint; port 0 is any")
    ] = ""
    export_interval_s: Annotated[
        float, Field(ge=1, le=3600, description="seconds between two exports of metrics")
    ] = 15.0


class Telemetry:
    """A process's tracer and meter. `Telemetry()` is the silent one.

    Exporters look from threads of their own. What is read belongs to the event loop that has
    registered it, so it is read there; where that can't tell (`SextonError`), nothing is shown.
    """

    def __init__(
        self,
        tracer: trace.Tracer | None = None,
        meter: metrics.Meter | None = None,
        exporter: Exporter | None = None,
    ) -> None:
        self.metrics_port = 0
        self.exporter = exporter
        """Sends what is written in bulk; None: nothing is."""
        self._tracer = tracer
        self._meter = meter or metrics.NoOpMeter("sexton")
        self._closers: list[Callable[[], object]] = []

    def counter(self, instrument: Instrument, read: Callable[[], Points]) -> None:
        """Shows a number that only rises, read whenever somebody looks."""
        self._meter.create_observable_counter(
            instrument.name, [_callback(read)], instrument.unit, instrument.description
        )

    def gauge(self, instrument: Instrument, read: Callable[[], Points]) -> None:
        """Shows a number that rises and falls, read whenever somebody looks."""
        self._meter.create_observable_gauge(
            instrument.name, [_callback(read)], instrument.unit, instrument.description
        )

    @contextmanager
    def server_span(self, method: str, traceparent: str) -> Iterator[None]:
        """Runs a call inside its caller's trace, as a span where that trace is recorded.

        The context is attached and not detached again: each call has a task, and so a context, of
        its own, and a stream's block may be left from another one.
        """
        parent = parse_traceparent(traceparent)
        if parent is None:
            yield
            return
        context = trace.set_span_in_context(NonRecordingSpan(parent))
        if self._tracer is None or not parent.trace_flags.sampled:
            otel_context.attach(context)
            yield
            return
        service, _, name = method[1:].partition("/")
        attributes = {
            semconv.RPC_SYSTEM: "grpc",
            semconv.RPC_SERVICE: service,
            semconv.RPC_METHOD: name,
        }
        span = self._tracer.start_span(method[1:], context, SpanKind.SERVER, attributes)
        otel_context.attach(trace.set_span_in_context(span))
        try:
            yield
        except Exception as error:
            span.set_status(trace.StatusCode.ERROR, str(error))
            raise
        finally:
            span.end()

    async def start(self) -> None:
        """Begins to send what is written in bulk; all else runs since `open_telemetry`."""
        if self.exporter is not None:
            await self.exporter.start()

    async def stop(self) -> None:
        """Sends what is left, for a few seconds at most, and ends. Idempotent."""
        closers, self._closers = self._closers, []
        if self.exporter is not None:
            await self.exporter.stop()
        await asyncio.gather(*(asyncio.to_thread(close) for close in closers))

    def on_stop(self, close: Callable[[], object]) -> None:
        """Has something closed, in a thread, when telemetry stops."""
        self._closers.append(close)


def open_telemetry(
    config: TelemetryConfig, *, service: str, version: str, instance: str
) -> Telemetry:
    """Wires exporters as configured; with nothing configured gives the silent telemetry.

    Raises `OSError` where the Prometheus address is taken, `ConfigError` where it is none.
    """
    if not config.endpoint and not config.metrics_listen:
        return Telemetry()
    # The SDK costs 200 ms of start-up that a process without telemetry need not spend.
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    sender = {
        semconv.SERVICE_NAME: service,
        semconv.SERVICE_VERSION: version,
        semconv.SERVICE_INSTANCE_ID: instance,
    }
    resource = Resource.create(dict(sender))
    readers: list[Any] = []
    closers: list[Callable[[], object]] = []
    tracer, port, exporter = None, 0, None
    if config.metrics_listen:
        reader, port, close = _prometheus(config.metrics_listen)
        readers.append(reader)
        closers.append(close)
    if config.endpoint:
        tracer_provider, reader = _otlp(config, resource)
        readers.append(reader)
        closers.append(tracer_provider.shutdown)
        tracer = tracer_provider.get_tracer("sexton", version)
        exporter = Exporter(config.endpoint, sender)
    meter_provider = MeterProvider(readers, resource, shutdown_on_exit=False)
    closers.append(meter_provider.shutdown)
    telemetry = Telemetry(tracer, meter_provider.get_meter("sexton", version), exporter)
    if exporter is not None:
        telemetry.counter(semconv.SPANS_DROPPED, _dropped_by(exporter))
    telemetry.metrics_port = port
    for closer in closers:
        telemetry.on_stop(closer)
    return telemetry


def _dropped_by(exporter: Exporter) -> Callable[[], Points]:
    def read() -> Points:
        return [(float(count), {semconv.KIND: kind}) for kind, count in exporter.dropped().items()]

    return read


def parse_traceparent(text: str) -> SpanContext | None:
    """Reads a W3C trace context; None where it is absent or not one."""
    parts = text.split("-")
    if len(parts) < 4 or [len(part) for part in parts[:4]] != [2, 32, 16, 2] or parts[0] == "ff":
        return None
    try:
        trace_id, span_id, flags = (int(part, 16) for part in parts[1:4])
    except ValueError:
        return None
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid else None


def join_trace(traceparent: str) -> None:
    """Has what runs in this context belong to a trace, where that one is recorded.

    Spans that user code makes with the OpenTelemetry SDK become its children. Where none is set up
    there is nobody to tell, and nothing is spent.
    """
    if not traceparent.endswith("1"):
        return
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        parent = parse_traceparent(traceparent)
        if parent is not None:
            otel_context.attach(trace.set_span_in_context(NonRecordingSpan(parent)))


def _callback(read: Callable[[], Points]) -> Callable[[Any], Iterable[metrics.Observation]]:
    loop = _running_loop()

    def observe(_options: Any) -> Iterable[metrics.Observation]:
        try:
            points = list(read()) if loop in (None, _running_loop()) else _read_on(loop, read)
        except (SextonError, TimeoutError):
            return []
        return [metrics.Observation(value, dict(attributes)) for value, attributes in points]

    return observe


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _read_on(loop: asyncio.AbstractEventLoop, read: Callable[[], Points]) -> Points:
    """Reads on the loop, from another thread. Raises `TimeoutError` where the loop has no time."""

    async def work() -> Points:
        return list(read())

    reading = asyncio.run_coroutine_threadsafe(work(), loop)
    try:
        return reading.result(_READ_TIMEOUT_S)
    except TimeoutError:
        reading.cancel()
        raise


def _prometheus(listen: str) -> tuple[Any, int, Callable[[], object]]:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415

    host, port = parse_address(listen, "telemetry.metrics_listen")
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry)
    server, thread = start_http_server(port, host, registry)

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return reader, server.server_port, close


def _otlp(config: TelemetryConfig, resource: Any) -> tuple[Any, Any]:
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (  # noqa: PLC0415
        OTLPMetricExporter,
    )
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    target: Any = {
        "endpoint": config.endpoint,
        "insecure": not config.endpoint.startswith("https:"),
        "timeout": _EXPORT_TIMEOUT_S,
    }
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(**target)))
    return provider, PeriodicExportingMetricReader(
        OTLPMetricExporter(**target),
        export_interval_millis=config.export_interval_s * 1_000,
    )
