"""What a takeover went through, as a trace of its own: from the free lease to the first act.

takeover ROLE     free -> acting; its ids are made of who took over and of the token, so that
                  whoever sees a leader finds the trace of how it came to lead
  wait            the lease is known to be free -> it is granted
  read            granted -> everything is known that must be before the first act
  first act       acting -> the first run is decided, or assigned; as late as there is one

The part of a standby begins when it sees that the former lease is gone. Times are the wall clock's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sexton_runtime import otlp, semconv
from sexton_runtime.clock import Clock
from sexton_runtime.exporting import Sink
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.telemetry import Telemetry

_OF_WAIT, _OF_READ, _OF_ACT = 1, 2, 3
"""What the ids of these spans differ by from the takeover's."""


class _Part(NamedTuple):
    trace: otlp.Trace
    change: int
    """0: it is the takeover itself."""
    name: str
    start: int
    end: int
    attributes: bytes


class Takeovers:
    """Tells of the takeovers of a process, where somebody wants to know."""

    def __init__(self, telemetry: Telemetry, clock: Clock, role: str) -> None:
        """`role`: `coordinator` or `queue`."""
        self._clock = clock
        self._role = role
        exporter = telemetry.exporter
        self._sink: Sink[_Part] | None = (
            None if exporter is None else exporter.sink("spans", _encode)
        )

    def begin(self, lease: HeldLease, shard: int, member: str) -> Takeover:
        """Takes note that a lease was granted; `member`: the id under which this one is listed."""
        return Takeover(self._sink, self._clock, lease, f"{self._role}/{shard:03}", member)


class Takeover:
    """One takeover, step by step. Each step counts once."""

    def __init__(
        self,
        sink: Sink[_Part] | None,
        clock: Clock,
        lease: HeldLease,
        name: str,
        member: str,
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._name = name
        self._trace = otlp.takeover_trace(member, lease.token)
        self._granted = clock.wall_ns()
        self._free = min(lease.free_ns or self._granted, self._granted)
        self._acting = 0
        self._token = lease.token
        self._member = member

    def acting(self) -> None:
        """Takes note that everything is known, and work begins."""
        if self._acting:
            return
        self._acting = self._clock.wall_ns()
        attributes = b"".join(
            (
                otlp.whole(semconv.TOKEN, self._token),
                otlp.text(semconv.LEASE, self._name),
                otlp.text(semconv.SERVICE_INSTANCE_ID, self._member),
            )
        )
        self._tell(0, f"takeover {self._name}", self._free, self._acting, attributes)
        self._tell(_OF_WAIT, "wait for the lease", self._free, self._granted)
        self._tell(_OF_READ, "read what stands in the store", self._granted, self._acting)

    def acted(self, what: str) -> None:
        """Takes note of the first act under the lease, in words."""
        if self._sink is None or not self._acting:
            return
        self._tell(_OF_ACT, what, self._acting, self._clock.wall_ns())
        self._sink = None

    def _tell(self, change: int, name: str, start: int, end: int, attributes: bytes = b"") -> None:
        if self._sink is not None:
            self._sink.add(_Part(self._trace, change, name, start, end, attributes))


def _encode(part: _Part) -> Sequence[bytes]:
    trace_id, root, _ = part.trace
    own = otlp.derived_span(root, part.change) if part.change else root
    parent = root if part.change else b""
    return (
        otlp.span(
            trace_id, own, parent, part.name.encode(), otlp.INTERNAL, part.start, part.end,
            part.attributes,
        ),
    )  # fmt: skip
