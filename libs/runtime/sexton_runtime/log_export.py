"""Sends a process's own log lines where its spans go, besides writing them to stderr.

Adding costs an append; what waits is bounded, and what can't be sent in time is dropped and
counted, as with spans (`exporting.py`).
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from opentelemetry import trace

from sexton_runtime import otlp, semconv
from sexton_runtime.exporting import Exporter, Sink
from sexton_runtime.telemetry import Telemetry

MAX_TEXT: Final = 2_000
"""Characters of a sentence, or of one field."""
MAX_STACK: Final = 8_000
"""Characters of a stack, of which the end is kept."""
MAX_FIELDS: Final = 24

_SEVERITIES: Final = (
    (logging.CRITICAL, 21), (logging.ERROR, 17), (logging.WARNING, 13), (logging.INFO, 9),
)  # fmt: skip
"""OpenTelemetry's numbers, by the least level that has them; below these it is 5, debug."""
_NO_FIELDS: Final = frozenset(
    {"event", "level", "timestamp", "service", "trace_id", "span_id", "exc_info"}
)
"""What is told elsewhere in a line, or by who sends it."""
_ABOUT_TELEMETRY: Final = ("opentelemetry.", "grpc.")
"""Loggers that speak of the sending itself: each failure would make a line that can't be sent."""


class _Said(NamedTuple):
    at: int
    level: int
    logger: str
    text: str
    fields: Mapping[str, Any]
    trace_id: str
    span_id: str
    stack: str


class LogExport(logging.Handler):
    """Takes every line that is written, from any thread."""

    def __init__(self, exporter: Exporter) -> None:
        super().__init__()
        self._sink: Sink[_Said] = exporter.sink("lines", _encode, semconv.SCOPE_LOG)

    def emit(self, record: logging.LogRecord) -> None:
        """Takes a line."""
        if record.name.startswith(_ABOUT_TELEMETRY):
            return
        try:
            self._sink.add(_said(record))
        except Exception:  # noqa: BLE001 - a line that can't be read must not hurt its writer
            self.handleError(record)


def export_logs(telemetry: Telemetry, *, unless: Callable[[], bool] | None = None) -> None:
    """Has what this process logs from now on sent too, until telemetry stops.

    `unless` tells, in the context of whoever logs, which lines are not the process's own.
    """
    if telemetry.exporter is None:
        return
    handler = LogExport(telemetry.exporter)
    if unless is not None:
        handler.addFilter(lambda _: not unless())
    root = logging.getLogger()
    root.addHandler(handler)
    telemetry.on_stop(lambda: root.removeHandler(handler))


def _said(record: logging.LogRecord) -> _Said:
    """Reads a line, of structlog or of anybody else, without changing it."""
    fields: Mapping[str, Any] = record.msg if isinstance(record.msg, dict) else {}
    text = str(fields.get("event", "")) if fields else record.getMessage()
    trace_id, span_id = str(fields.get("trace_id", "")), str(fields.get("span_id", ""))
    if not fields:
        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            trace_id, span_id = f"{context.trace_id:032x}", f"{context.span_id:016x}"
    return _Said(
        at=round(record.created * 1e9),
        level=record.levelno,
        logger=record.name,
        text=text,
        fields=fields,
        trace_id=trace_id,
        span_id=span_id,
        stack=_stack(fields.get("exc_info") or record.exc_info),
    )


def _stack(error: Any) -> str:
    """Writes a stack down at once: what it refers to would live as long as the line waits."""
    if error is True:
        error = sys.exc_info()
    if isinstance(error, BaseException):
        error = (type(error), error, error.__traceback__)
    if not isinstance(error, tuple) or error[0] is None:
        return ""
    return "".join(traceback.format_exception(*error))[-MAX_STACK:]


def _encode(said: _Said) -> Sequence[bytes]:
    attributes = [otlp.text(semconv.LOGGER, said.logger)]
    fields = [item for item in said.fields.items() if item[0] not in _NO_FIELDS]
    for name, value in fields[:MAX_FIELDS]:
        if isinstance(value, bool):
            attributes.append(otlp.truth(name, value=value))
        elif isinstance(value, int) and -(2**63) <= value < 2**63:
            attributes.append(otlp.whole(name, value))
        else:
            attributes.append(otlp.text(name, str(value)[:MAX_TEXT]))
    if said.stack:
        attributes.append(otlp.text(semconv.STACK, said.stack))
    severity = next((number for level, number in _SEVERITIES if said.level >= level), 5)
    return (
        otlp.line(
            bytes.fromhex(said.trace_id),
            bytes.fromhex(said.span_id),
            said.at,
            said.text[:MAX_TEXT].encode("utf-8", "replace"),
            attributes,
            severity=severity,
        ),
    )
