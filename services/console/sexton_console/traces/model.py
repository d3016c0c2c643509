"""Spans and log lines as pages and programs see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Event(NamedTuple):
    """Something at one moment of a span."""

    at: int
    name: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A piece of work, as some service or user code reported it. Times are Unix nanoseconds."""

    span_id: str
    parent_id: str
    """Empty: it has none."""
    name: str
    kind: str
    start: int
    end: int
    service: str
    failed: bool
    message: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[Event, ...] = ()

    @property
    def took_s(self) -> float:
        """Gives its duration."""
        return max(0, self.end - self.start) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line that something wrote inside a trace."""

    cursor: int
    """Where it stands among the trace's lines: reading on from here gives later ones."""
    at: int
    span_id: str
    severity: str
    body: str
    service: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Chunk(NamedTuple):
    """What came in one request about one trace, as it is kept."""

    trace: bytes
    kind: int
    """`SPANS` or `LOGS`."""
    resource: bytes
    """Who sent it: a serialised `Resource`."""
    data: bytes
    """A serialised `ScopeSpans` or `ScopeLogs`."""
    items: int
    first: int
    last: int
    rank: int
    """`USUAL`, `SLOW` or `FAILED`: the higher, the longer it is kept."""


SPANS, LOGS = 0, 1
USUAL, SLOW, FAILED = 0, 1, 2
