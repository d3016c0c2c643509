"""A takeover is told of once, as a trace that whoever sees the leader finds."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from sexton_runtime import otlp
from sexton_runtime.exporting import Exporter
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.takeovers import Takeovers
from sexton_runtime.telemetry import Telemetry


class Clock:
    """A wall clock that is set."""

    now = 0

    def wall_ns(self) -> int:
        return self.now

    boot_ns = monotonic_ns = wall_ns

    def boot_id(self) -> str:
        return "boot"


def lease(free: int) -> HeldLease:
    keeper: Any = None
    held = HeldLease(keeper, "queue/000", 42, 2_000, 0)
    held.free_ns = free
    return held


def sent(exporter: Exporter) -> list[Span]:
    (sink,) = exporter.sinks
    return [span for data in sink.take(100) for span in ScopeSpans.FromString(data).spans]


def test_a_takeover_is_a_trace_from_the_free_lease_to_the_first_act() -> None:
    exporter, clock = Exporter("http://127.0.0.1:1", {}), Clock()
    takeovers = Takeovers(Telemetry(exporter=exporter), clock, "queue")
    clock.now = 120
    takeover = takeovers.begin(lease(100), 0, "member-1")
    takeover.acted("too early to be told")
    clock.now = 150
    takeover.acting()
    takeover.acting()
    clock.now = 190
    takeover.acted("first assignment")
    takeover.acted("second assignment")
    whole, *parts = sent(exporter)
    assert [(s.name, s.start_time_unix_nano, s.end_time_unix_nano) for s in (whole, *parts)] == [
        ("takeover queue/000", 100, 150),
        ("wait for the lease", 100, 120),
        ("read what stands in the store", 120, 150),
        ("first assignment", 150, 190),
    ]
    trace = otlp.takeover_trace("member-1", 42)
    assert (whole.trace_id, whole.span_id, whole.parent_span_id) == (*trace[:2], b"")
    assert {part.parent_span_id for part in parts} == {whole.span_id}
    assert {part.trace_id for part in parts} == {trace.trace_id}
    assert len({span.span_id for span in (whole, *parts)}) == 4
    assert otlp.takeover_trace("member-1", 43) != trace != otlp.takeover_trace("member-2", 42)


def test_a_process_without_an_endpoint_tells_nothing() -> None:
    takeover = Takeovers(Telemetry(), Clock(), "queue").begin(lease(0), 0, "member-1")
    takeover.acting()
    takeover.acted("first fire")
