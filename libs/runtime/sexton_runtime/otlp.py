"""Spans and log lines as OTLP has them, written by hand: a few microseconds each.

The SDK's spans cost twenty. Who writes thousands per second from records that hold everything
already puts the bytes together instead; field numbers are those of opentelemetry-proto 1.x, and a
test reads them back with the generated code. Times are Unix nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = 1, 2, 3, 4, 5
"""Kinds of spans."""
INFO: Final = 9
"""The severity of a line whose writer says none."""
SAMPLED: Final = 1
"""The flag in a trace context that says that its trace is recorded."""

_MAX_VARINT: Final = 1 << 64
_TIMES: Final = Struct("<BQBQ")
"""Two fields of eight bytes, each behind its tag."""
_SHORT: Final = tuple(bytes((size,)) for size in range(0x80))
"""Lengths that take one byte."""


class Trace(NamedTuple):
    """A W3C trace context."""

    trace_id: bytes
    span_id: bytes
    sampled: bool


def trace_of(traceparent: str) -> Trace | None:
    """Reads a trace context as our own services write it; None where it is none."""
    if len(traceparent) != 55:
        return None
    try:
        trace_id = bytes.fromhex(traceparent[3:35])
        span_id = bytes.fromhex(traceparent[36:52])
        flags = int(traceparent[53:], 16)
    except ValueError:
        return None
    if len(trace_id) != 16 or len(span_id) != 8:  # fromhex passes over blanks
        return None
    return Trace(trace_id, span_id, bool(flags & SAMPLED))


def attempt_span(trace: Trace, attempt: int) -> bytes:
    """Gives the id of an attempt's span: the queue and the worker find the same one."""
    return derived_span(trace.span_id, attempt << 8)


def process_span(attempt: bytes) -> bytes:
    """Gives the id of the span in which a worker executes an attempt; of that the attempt's."""
    return derived_span(attempt, 1)


def derived_span(span_id: bytes, change: int) -> bytes:
    """Gives the id of a span that belongs to another: the same wherever it is asked for.

    Below 256 `change` tells spans of one attempt, or of the run, apart. The ids of a trace need to
    differ from each other only, and the run's is random.
    """
    return (int.from_bytes(span_id) ^ change).to_bytes(8)


def takeover_trace(member: str, token: int) -> Trace:
    """Gives the trace of how a member came to lead under a token: the same wherever it is asked."""
    made = blake2b(f"{member}/{token}".encode(), digest_size=24, person=b"sexton-takeover").digest()
    return Trace(made[:16], made[16:], sampled=True)


def process_traceparent(traceparent: str, attempt: int) -> str:
    """Gives the trace context in which an attempt is executed; as it is where not sampled."""
    if not traceparent.endswith("1"):
        return traceparent
    trace = trace_of(traceparent)
    if trace is None:
        return traceparent
    span = derived_span(trace.span_id, attempt << 8 ^ 1)  # the process's of the attempt's
    return f"{traceparent[:36]}{span.hex()}{traceparent[52:]}"


def text(key: str, value: str) -> bytes:
    """Writes an attribute."""
    data = value.encode("utf-8", "replace")
    name, size = _key(key), len(data)
    whole = len(name) + size + 3
    if whole < 0x80:  # then so are the lengths within, and each takes one byte
        return b"".join(
            (b"\x4a", _SHORT[whole], name, _SHORT[size + 2], b"\x0a", _SHORT[size], data)
        )
    return _attribute(key, b"\x0a" + _length(data) + data)


def whole(key: str, value: int) -> bytes:
    """Writes an attribute that is a whole number."""
    return _attribute(key, b"\x18" + _varint(value % _MAX_VARINT))


def truth(key: str, *, value: bool) -> bytes:
    """Writes an attribute that is true or false."""
    return _attribute(key, b"\x10\x01" if value else b"\x10\x00")


def span(  # noqa: PLR0917 - in the order of the wire, and called very often
    trace: bytes, own: bytes, parent: bytes, name: bytes, kind: int, start: int, end: int,
    attributes: bytes, error: str | None = None,
) -> bytes:  # fmt: skip
    """Writes a span. `name` is UTF-8; `attributes` is what `text` and the like gave, put together.

    `error`: why it failed; None: it did not.
    """
    parts = [b"\x0a\x10", trace, b"\x12\x08", own]
    if parent:
        parts += (b"\x22\x08", parent)
    parts += (
        b"\x2a", _length(name), name, b"\x30", bytes((kind,)),
        _TIMES.pack(0x39, start, 0x41, max(start, end)), attributes,
    )  # fmt: skip
    if error is not None:
        said = error.encode("utf-8", "replace")
        status = b"\x12" + _length(said) + said + b"\x18\x02"
        parts += (b"\x7a", _length(status), status)
    return b"".join(parts)


def line(
    trace: bytes, span_id: bytes, at: int, body: bytes, attributes: Iterable[bytes],
    *, severity: int = INFO,
) -> bytes:  # fmt: skip
    """Writes a log line; `body` is UTF-8. `attributes`: each from `text` or `whole`.

    `trace` and `span_id` may be empty: it is a line of no trace.
    """
    value = b"\x0a" + _length(body) + body
    # Attributes have another field number here than in a span.
    pairs = b"".join(b"\x32" + pair[1:] for pair in attributes)
    moment = at.to_bytes(8, "little")
    place = b"\x4a\x10" + trace + b"\x52\x08" + span_id if trace and span_id else b""
    return b"".join(
        (
            b"\x09", moment, b"\x10", bytes((severity,)), b"\x2a", _length(value), value, pairs,
            place, b"\x59", moment,
        )
    )  # fmt: skip


def resource(attributes: Mapping[str, str]) -> bytes:
    """Writes who sends."""
    return b"".join(b"\x0a" + text(key, value)[1:] for key, value in attributes.items())


def scope(items: Iterable[bytes], name: bytes = b"") -> bytes:
    """Writes a group of spans, or of log lines: the numbers of their fields are the same."""
    parts = [_scope_name(name)] if name else []
    for item in items:
        parts += (b"\x12", _length(item), item)
    return b"".join(parts)


def request(sender: bytes, scopes: Iterable[bytes]) -> bytes:
    """Writes a request to export groups of spans, or of log lines."""
    parts = [b"\x0a", _length(sender), sender]
    for each in scopes:
        parts += (b"\x12", _length(each), each)
    return b"".join((b"\x0a", _varint(sum(map(len, parts))), *parts))  # large: copied once


def _attribute(key: str, value: bytes) -> bytes:
    pair = _key(key) + _length(value) + value
    return b"\x4a" + _length(pair) + pair


@lru_cache(100)
def _scope_name(name: bytes) -> bytes:
    named = b"\x0a" + _length(name) + name
    return b"\x0a" + _length(named) + named


@lru_cache(1_000)
def _key(key: str) -> bytes:
    name = key.encode()
    return b"\x0a" + _length(name) + name + b"\x12"


def _length(data: bytes) -> bytes:
    size = len(data)
    return _SHORT[size] if size < 0x80 else _varint(size)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
