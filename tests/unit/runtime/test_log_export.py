"""What a process logs of itself is sent too, as it was said, and its writer never notices."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator

import pytest
import structlog
from opentelemetry import context, trace
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ScopeLogs

from sexton_runtime import exporting, semconv
from sexton_runtime.exporting import Exporter
from sexton_runtime.log_export import export_logs
from sexton_runtime.logging import LogConfig, configure_logging
from sexton_runtime.telemetry import Telemetry

Sent = Callable[[], list[LogRecord]]


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(exporter=Exporter("http://127.0.0.1:1", {}))


@pytest.fixture
def sent(telemetry: Telemetry) -> Iterator[Sent]:
    """Logs as a service does; gives what would be sent."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    configure_logging(LogConfig(format="json"), service="queue", stream=io.StringIO())
    exporter = telemetry.exporter
    assert exporter is not None

    def read() -> list[LogRecord]:
        groups = [
            ScopeLogs.FromString(data) for sink in exporter.sinks for data in sink.take(1_000)
        ]
        assert {group.scope.name for group in groups} <= {semconv.SCOPE_LOG}
        return [record for group in groups for record in group.log_records]

    yield read
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def fields(record: LogRecord) -> dict[str, object]:
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in record.attributes
    }


def test_a_line_is_sent_with_its_severity_its_fields_and_its_trace(
    telemetry: Telemetry, sent: Sent
) -> None:
    export_logs(telemetry)
    log = structlog.get_logger("sexton_queue.any")
    log.debug("Too small a matter.")
    span = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=True))
    token = context.attach(trace.set_span_in_context(span))
    log.warning("A session has ended.", action="end", shard=3, good=True, reason=["x"])
    logging.getLogger("asyncio").error("Somebody else's %s", "line")
    context.detach(token)
    log.info("Alone.")
    own, foreign, alone = sent()
    assert own.body.string_value == "A session has ended."
    assert (own.severity_number, foreign.severity_number, alone.severity_number) == (13, 17, 9)
    assert fields(own) == {
        "log.logger": "sexton_queue.any", "action": "end", "shard": 3, "good": True,
        "reason": "['x']",
    }  # fmt: skip
    assert foreign.body.string_value == "Somebody else's line"
    for line in (own, foreign):
        assert (line.trace_id, line.span_id) == (b"\0" * 15 + b"\1", b"\0" * 7 + b"\2")
    assert alone.trace_id == b""
    assert own.time_unix_nano > 1_700_000_000 * 10**9


def test_an_exception_is_sent_with_the_end_of_its_stack(telemetry: Telemetry, sent: Sent) -> None:
    export_logs(telemetry)
    try:
        {}["\udce4 is missing" + "x" * 9_000]
    except KeyError:
        structlog.get_logger("any").exception("It failed.", many="y" * 5_000)
        logging.getLogger("any").exception("That too.")
    for line in sent():
        assert str(fields(line)[semconv.STACK]).endswith("xx'\n")
        assert len(line.SerializeToString()) < 20_000


def test_lines_are_dropped_and_counted_where_nobody_takes_them(
    telemetry: Telemetry, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "MAX_WAITING", 2)
    export_logs(telemetry)
    for _ in range(5):
        structlog.get_logger("any").info("Again.")
    assert telemetry.exporter is not None
    assert telemetry.exporter.dropped() == {"lines": 3}
    assert len(sent()) == 2


async def test_what_is_not_the_process_own_is_left_out_and_nothing_is_sent_after_the_end(
    telemetry: Telemetry, sent: Sent
) -> None:
    foreign = True
    export_logs(telemetry, unless=lambda: foreign)
    log = structlog.get_logger("any")
    log.info("A task's.")
    foreign = False
    logging.getLogger("opentelemetry.exporter").error("I can't send.")
    assert sent() == []
    log.info("Its own.")
    assert [line.body.string_value for line in sent()] == ["Its own."]
    await telemetry.stop()
    log.info("Too late.")
    assert sent() == []
