"""Log lines: one sentence each, with `action` and ids as fields; JSON, or readable on a terminal.

Whatever logs through the standard library comes out of the same handler, once.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TextIO

import structlog
from opentelemetry import trace
from pydantic import Field


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """How log lines look and which are written."""

    format: Annotated[
        Literal["auto", "json", "pretty"],
        Field(description="json, pretty, or auto: pretty where stderr is a terminal"),
    ] = "auto"
    level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="least level written")
    ] = "info"


def configure_logging(config: LogConfig, *, service: str, stream: TextIO | None = None) -> None:
    """Sends every log line of the process to `stream` (stderr), replacing what was set before."""
    out = stream or sys.stderr
    pretty = config.format == "pretty" or (config.format == "auto" and out.isatty())
    common: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_trace_ids,
    ]
    rendering: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if pretty:
        rendering.append(structlog.dev.ConsoleRenderer(colors=out.isatty()))
    else:
        common.append(_service_adder(service))
        rendering += [
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(),
        ]
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=common, processors=rendering)
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(config.level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *common,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def _add_trace_ids(
    _logger: object, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        line["trace_id"] = f"{span.trace_id:032x}"
        line["span_id"] = f"{span.span_id:016x}"
    return line


def _service_adder(service: str) -> Any:
    def add(
        _logger: object, _method: str, line: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        line["service"] = service
        return line

    return add
