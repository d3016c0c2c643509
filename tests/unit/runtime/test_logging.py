"""Log lines: JSON or readable, each once, with trace ids."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from opentelemetry import context, trace

from sexton_runtime.logging import LogConfig, configure_logging
from sexton_runtime.telemetry import Telemetry


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def lines(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_is_a_sentence_with_its_fields(out: io.StringIO) -> None:
    configure_logging(LogConfig(format="json"), service="store", stream=out)

    structlog.get_logger("any").info("The store has started.", action="start", revision=7)

    (line,) = lines(out)
    assert line.pop("timestamp")
    assert line == {
        "message": "The store has started.",
        "action": "start",
        "revision": 7,
        "level": "info",
        "service": "store",
    }


def test_configured_twice_each_line_is_written_once_and_others_lines_too(out) -> None:
    configure_logging(LogConfig(format="json"), service="store", stream=io.StringIO())
    configure_logging(LogConfig(format="json"), service="store", stream=out)

    structlog.get_logger("ours").warning("One.")
    logging.getLogger("theirs").warning("Two %s.", "words", extra={"id": 3})

    assert [(line["message"], line.get("id")) for line in lines(out)] == [
        ("One.", None),
        ("Two words.", 3),
    ]


def test_levels_below_the_configured_one_are_left_out(out: io.StringIO) -> None:
    configure_logging(LogConfig(format="json", level="error"), service="store", stream=out)

    structlog.get_logger("any").warning("No.")
    logging.getLogger("theirs").info("No.")

    assert lines(out) == []


def test_an_error_comes_with_its_traceback_in_one_line(out: io.StringIO) -> None:
    configure_logging(LogConfig(format="json"), service="store", stream=out)

    try:
        int("why")
    except ValueError:
        structlog.get_logger("any").exception("It failed.")

    (line,) = lines(out)
    assert "ValueError: invalid literal" in str(line["exception"])


def test_lines_of_a_call_carry_its_caller_s_trace(out: io.StringIO) -> None:
    configure_logging(LogConfig(format="json"), service="store", stream=out)
    token = context.attach(trace.set_span_in_context(trace.INVALID_SPAN))

    with Telemetry().server_span("/a.B/C", "00-" + "a" * 32 + "-" + "b" * 16 + "-01"):
        structlog.get_logger("any").info("Inside.")

    context.detach(token)
    assert (lines(out)[0]["trace_id"], lines(out)[0]["span_id"]) == ("a" * 32, "b" * 16)


def test_a_terminal_gets_readable_lines(out: io.StringIO) -> None:
    configure_logging(LogConfig(format="pretty"), service="store", stream=out)

    structlog.get_logger("any").info("The store has started.", action="start")

    assert "The store has started." in out.getvalue()
    assert "action=start" in out.getvalue()
