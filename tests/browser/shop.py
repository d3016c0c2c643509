"""Tasks of a small shop, traced by their author with the OpenTelemetry SDK: for the pictures."""

from __future__ import annotations

import random
import time

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import sexton

provider = TracerProvider(resource=Resource({"service.name": "shop"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=500))
tracer = provider.get_tracer("shop")


@sexton.task("send-invoices")
def send_invoices(seconds: float = 1.0) -> dict[str, int]:
    """Reads orders, draws invoices and sends them."""
    sent = 0
    with tracer.start_as_current_span("read orders") as span:
        span.set_attribute("orders", 6)
        print("6 orders of yesterday")
        time.sleep(0.15 * seconds)
    for number in range(1, 4):
        with tracer.start_as_current_span("draw invoice", attributes={"order": number}):
            time.sleep(0.12 * seconds)
        with tracer.start_as_current_span("send mail"):
            with tracer.start_as_current_span("connect smtp"):
                time.sleep(0.04 * seconds)
            time.sleep(0.1 * seconds)
        sent += 2
        print(f"invoice {number} sent")
    return {"sent": sent}


@sexton.task("sync-stock")
def sync_stock() -> None:
    """Asks the warehouse, which does not always answer."""
    with tracer.start_as_current_span("ask the warehouse") as span:
        time.sleep(random.uniform(0.05, 0.4))
        if random.random() < 0.35:
            span.set_status(trace.StatusCode.ERROR, "503 from the warehouse")
            raise ConnectionError(f"503 from the warehouse, request {random.randrange(10_000)}")
