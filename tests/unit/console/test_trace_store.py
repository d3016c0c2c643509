"""What the trace store keeps, and what goes first."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from sexton_console.traces import store as stores
from sexton_console.traces.model import FAILED, LOGS, SLOW, SPANS, USUAL, Chunk
from sexton_console.traces.service_logs import ServiceLogs
from sexton_console.traces.store import Bounds, TraceStore
from sexton_runtime import otlp

DAY_NS = 86_400 * 10**9
NOW = 1_800_000_000 * 10**9
SENDER = otlp.resource({"service.name": "shop"})
BOUNDS = Bounds(max_bytes=10**9, keep_s=86_400, keep_failed_s=10 * 86_400)


def trace(number: int) -> bytes:
    return number.to_bytes(16, "big")


def spans(number: int, *names: str, rank: int = USUAL, at: int = NOW, size: int = 0) -> Chunk:
    made = [
        Span(
            trace_id=trace(number), span_id=bytes([n + 1]) * 8, name=name + "x" * size,
            start_time_unix_nano=at + n, end_time_unix_nano=at + n + 5,
        )
        for n, name in enumerate(names)
    ]  # fmt: skip
    data = ScopeSpans(spans=made).SerializeToString()
    return Chunk(trace(number), SPANS, SENDER, data, len(made), at, at, rank)


def lines(number: int, *bodies: str) -> Chunk:
    records = [LogRecord.FromString(otlp.line(trace(number), b"1" * 8, NOW, body.encode(), ()))
               for body in bodies]  # fmt: skip
    data = ScopeLogs(log_records=records).SerializeToString()
    return Chunk(trace(number), LOGS, SENDER, data, len(records), NOW, NOW, USUAL)


async def opened(folder: Path, bounds: Bounds = BOUNDS) -> TraceStore:
    store = TraceStore(folder / "traces.sqlite", bounds, wall_ns=lambda: NOW)
    await store.start()
    return store


async def kept(store: TraceStore, *numbers: int) -> list[int]:
    await store.flush()
    return [number for number in numbers if await store.spans(trace(number))]


async def test_what_came_in_is_there_after_a_restart(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    assert store.offer([spans(1, "b", "a"), lines(1, "one", "two")]) == 0
    store.offer([lines(1, "three")])
    await store.stop()
    store = await opened(tmp_path)
    try:
        found = await store.spans(trace(1))
        assert [(span.name, span.service, span.took_s) for span in found] == [
            ("b", "shop", 5e-9),
            ("a", "shop", 5e-9),
        ]
        told = await store.lines(trace(1))
        assert [line.body for line in told] == ["one", "two", "three"]
        later = await store.lines(trace(1), after=told[0].cursor)
        assert [line.body for line in later] == ["two", "three"]
        assert await store.lines(trace(1), after=told[2].cursor) == []
        assert (await store.usage()).traces == 1
        assert (tmp_path / "traces.sqlite").stat().st_mode & 0o777 == 0o600
    finally:
        await store.stop()


async def test_room_is_made_by_the_oldest_usual_traces_then_slow_then_failed(
    tmp_path: Path,
) -> None:
    size = len(spans(1, "a", size=1_000).data) + 120
    room = 4 * size + len(SENDER)
    store = await opened(tmp_path, Bounds(max_bytes=room, keep_s=1e9, keep_failed_s=1e9))
    try:
        store.offer([spans(1, "a", size=1_000, rank=FAILED, at=NOW)])
        store.offer([spans(2, "a", size=1_000, rank=SLOW, at=NOW + 1)])
        store.offer([spans(3, "a", size=1_000, at=NOW + 3), spans(4, "a", size=1_000, at=NOW + 2)])
        assert await kept(store, 1, 2, 3, 4) == [1, 2, 3, 4]
        store.offer([spans(5, "a", size=1_000, at=NOW + 4)])
        assert await kept(store, 1, 2, 3, 4, 5) == [1, 2, 5]
        store.offer([spans(6, "a", size=1_000, rank=FAILED, at=NOW + 5)])
        store.offer([spans(7, "a", size=1_000, rank=FAILED, at=NOW + 6)])
        assert await kept(store, 1, 2, 5, 6, 7) == [1, 6, 7]
        assert store.counters.evicted_traces == 4
        assert (await store.usage()).used_bytes <= room
    finally:
        await store.stop()


async def test_usual_traces_go_by_their_age_and_failed_ones_stay_longer(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    try:
        store.offer([
            spans(1, "a", at=NOW - 2 * DAY_NS),
            spans(2, "a", at=NOW - 2 * DAY_NS, rank=FAILED),
            spans(3, "a", at=NOW - 20 * DAY_NS, rank=SLOW),
            spans(4, "a", at=NOW),
        ])  # fmt: skip
        await store.flush()
        assert await store.sweep_once() == 2
        assert await kept(store, 1, 2, 3, 4) == [2, 4]
        assert await store.sweep_once() == 0
    finally:
        await store.stop()


async def test_a_trace_becomes_failed_with_a_later_part_of_it(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    try:
        store.offer([spans(1, "a", at=NOW - 2 * DAY_NS)])
        store.offer([spans(1, "b", at=NOW - 2 * DAY_NS, rank=FAILED)])
        await store.flush()
        assert await store.sweep_once() == 0
        assert len(await store.spans(trace(1))) == 2
    finally:
        await store.stop()


async def test_one_trace_can_not_take_all_the_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "MAX_TRACE_ITEMS", 5)
    store = await opened(tmp_path)
    try:
        store.offer([spans(1, "a", "b", "c", "d"), spans(1, "e", "f"), spans(2, "a")])
        store.offer([spans(1, "g")])
        await store.flush()
        assert [span.name for span in await store.spans(trace(1))] == ["a", "g", "b", "c", "d"]
        assert await kept(store, 2) == [2]
        assert (store.counters.dropped_large, store.counters.stored) == (2, 6)
    finally:
        await store.stop()


async def test_what_comes_faster_than_it_is_written_is_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "MAX_WAITING_BYTES", 1_000)
    store = await opened(tmp_path)
    try:
        assert store.offer([spans(1, "a", "b", size=2_000)]) == 2
        assert store.counters.dropped_busy == 2
        assert store.offer([spans(2, "a")]) == 0
        assert await kept(store, 1, 2) == [2]
    finally:
        await store.stop()


async def test_before_it_is_open_everything_is_dropped_and_nothing_waits(tmp_path: Path) -> None:
    store = TraceStore(tmp_path / "traces.sqlite", BOUNDS)
    assert store.offer([spans(1, "a")]) == 1
    await store.stop()


@pytest.mark.parametrize("content", [b"no database at all" * 100, b""])
async def test_a_file_that_can_not_be_read_is_put_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "traces.sqlite").write_bytes(content)
    store = await opened(tmp_path)
    try:
        store.offer([spans(1, "a")])
        assert await kept(store, 1) == [1]
        aside = tmp_path / "traces.unreadable"
        assert (aside.read_bytes() if aside.exists() else b"") == content
    finally:
        await store.stop()


def test_a_file_that_only_can_not_be_used_now_stays_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "traces.sqlite").mkdir()
    with pytest.raises(OSError, match="can't be used now"):
        asyncio.run(opened(tmp_path))
    assert [each.name for each in tmp_path.iterdir()] == ["traces.sqlite"]


async def test_what_can_not_be_read_any_more_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    logs = ServiceLogs(tmp_path / "logs.sqlite", max_bytes=10**6, keep_s=1e9)
    await logs.start()
    for name, table in (("traces", "chunks"), ("traces", "traces"), ("logs", "lines")):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as other:
            other.execute(f"DROP TABLE {table}")
    try:
        assert (await store.spans(trace(1)), await store.lines(trace(1))) == ([], [])
        assert (await store.usage()).traces == 0
        assert (await logs.newest(), await logs.services()) == ([], [])
    finally:
        await logs.stop()
        await store.stop()
