"""What services log is kept within its bounds, and found by who said it and what it speaks of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from sexton_console.otlp.receiver import Receiver, said_by
from sexton_console.traces.model import LogLine
from sexton_console.traces.service_logs import About, ServiceLogs
from sexton_console.traces.store import Bounds, TraceStore
from sexton_runtime import otlp, semconv

S = 10**9
NOW = 1_000_000 * S
TRACE = b"\x07" * 16


def record(text: str, at_s: int = 0, severity: int = 9, **fields: str) -> LogRecord:
    return LogRecord(
        time_unix_nano=NOW + at_s * S,
        severity_number=severity,  # type: ignore[arg-type]
        body=AnyValue(string_value=text),
        attributes=[
            KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in fields.items()
        ],
    )


def bodies(lines: list[LogLine]) -> list[str]:
    return [line.body for line in lines]


Opens = Callable[..., ServiceLogs]


@pytest.fixture
async def logs(tmp_path: Path) -> AsyncIterator[ServiceLogs]:
    opened = ServiceLogs(
        tmp_path / "logs.sqlite", max_bytes=100_000, keep_s=100, wall_ns=lambda: NOW
    )
    await opened.start()
    yield opened
    await opened.stop()


async def test_lines_are_found_by_service_and_level_in_pages_newest_first(
    logs: ServiceLogs,
) -> None:
    logs.offer([said_by("queue", record("one")), said_by("queue", record("two", severity=13))])
    logs.offer([said_by("store", record("three", severity=17)), said_by("", record("four"))])
    assert bodies(await logs.newest()) == ["four", "three", "two", "one"]
    assert bodies(await logs.newest(service="queue")) == ["two", "one"]
    assert bodies(await logs.newest(severity=13)) == ["three", "two"]
    assert bodies(await logs.newest(service="queue", severity=17)) == []
    first = await logs.newest(limit=3)
    assert bodies(await logs.newest(before=first[-1].cursor)) == ["one"]
    assert [line.severity for line in first] == ["info", "error", "warning"]
    assert await logs.services() == ["", "queue", "store"]


async def test_a_run_finds_what_speaks_of_it_of_its_trace_and_of_its_sessions_then(
    logs: ServiceLogs,
) -> None:
    lines = [
        record("of the run", 3, run="namespaces/default/jobs/a/runs/r1"),
        record("of its session", 1, session="s1"),
        record("of its session, long before", -50, session="s1"),
        record("of another run", 2, run="r2"),
        record("of nothing"),
        record("of the run and its session", 2, run="r1", session="s1"),
    ]
    traced = record("of its trace", 0)
    traced.trace_id = TRACE
    logs.offer([said_by("queue", line) for line in (*lines, traced)])
    about = About("r1", TRACE, ("s1", "s2"), NOW - S, NOW + 10 * S)
    assert bodies(await logs.about(about)) == [
        "of its trace", "of its session", "of the run and its session", "of the run",
    ]  # fmt: skip
    assert bodies(await logs.about(About("", b"", (), 0, NOW))) == []


async def test_the_oldest_lines_go_where_there_are_too_many_or_they_are_too_old(
    tmp_path: Path, logs: ServiceLogs
) -> None:
    for number in range(60):
        logs.offer([said_by("store", record(f"{number} {'x' * 5_000}", number - 150))])
    await logs.flush()
    kept = await logs.newest(limit=1_000)
    assert 10 <= len(kept) < 20
    assert kept[0].body.startswith("59 ")
    assert logs.used_bytes <= 100_000
    assert await logs.sweep_once() == len([line for line in kept if line.at < NOW - 100 * S])
    await logs.stop()
    again = ServiceLogs(tmp_path / "logs.sqlite", max_bytes=10**6, keep_s=100)
    await again.start()
    assert again.used_bytes == logs.used_bytes
    await again.stop()


async def test_lines_that_come_too_fast_are_dropped_and_counted(
    logs: ServiceLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_max_waiting_bytes", 1_000)
    many = [said_by("store", record("x" * 100)) for _ in range(20)]
    assert logs.offer(many) == 20
    assert logs.dropped == 20
    assert logs.offer(many[:1]) == 0


async def test_services_own_lines_and_those_of_no_trace_are_kept_apart_from_traces(
    tmp_path: Path, logs: ServiceLogs
) -> None:
    store = TraceStore(
        tmp_path / "traces.sqlite", Bounds(max_bytes=10**7, keep_s=1e9, keep_failed_s=1e9)
    )
    receiver = Receiver("127.0.0.1:0", store, logs)
    await store.start()
    sender = otlp.resource({semconv.SERVICE_NAME: "sexton-queue"})
    own = otlp.line(TRACE, b"\1" * 8, NOW, b"own", (otlp.text("run", "r1"),), severity=13)
    output = otlp.line(TRACE, b"\1" * 8, NOW, b"output", ())
    alone = otlp.line(b"", b"", NOW, b"alone", ())
    groups = [otlp.scope([own], semconv.SCOPE_LOG.encode()), otlp.scope([output, alone])]
    request = ExportLogsServiceRequest.FromString(otlp.request(sender, groups))
    wrong = request.resource_logs[0].scope_logs[1].log_records.add()
    wrong.trace_id = b"short"
    assert receiver.take_lines(request) == 1
    await store.flush()
    assert bodies(await store.lines(TRACE)) == ["output"]
    assert bodies(await logs.newest()) == ["alone", "own"]
    assert (receiver.received.lines, receiver.received.refused) == (4, 1)
    await store.stop()
