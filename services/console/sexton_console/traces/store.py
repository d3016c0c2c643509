"""Keeps spans and logs in SQLite: one file, one thread, bounds by bytes, by age and by trace.

What came in is kept as it came, grouped by trace; it is decoded only when somebody looks. Where
room is needed the oldest usual traces go first, then the slow ones, then the failed ones. A trace
is one unit: it is there as far as it came in, or gone as a whole.

Nobody waits for the disk: what comes faster than it is written is dropped and counted.
"""

from __future__ import annotations

import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

import structlog

from sexton_console.traces.decode import log_lines, spans_in
from sexton_console.traces.file import ages_from, open_file, or_nothing
from sexton_console.traces.keeper import Keeper
from sexton_console.traces.model import LOGS, SPANS, Chunk, LogLine, Span

MAX_TRACE_BYTES: Final = 16 * 1024 * 1024
MAX_TRACE_ITEMS: Final = 20_000
"""Spans and lines of one trace; further ones are dropped."""
_TRACES_KNOWN: Final = 50_000
"""Of which it is known how much of them came in: those that were heard of last."""
MAX_WAITING_BYTES: Final = 32 * 1024 * 1024
"""Taken in and not written yet."""
_OVERHEAD_BYTES: Final = 120
"""Of a chunk in the file, beside its data."""
_ROOM: Final = 0.95
"""Eviction ends at this part of the bound, so that it need not begin again at once."""
_EVICTED_AT_ONCE: Final = 500
_RESOURCES_KNOWN: Final = 1_000
"""Senders whose number in the file is remembered."""
_MANY: Final = 1_000
"""Spans of a trace that is not decoded again for each of its parts."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS resources (
  id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS chunks (
  id INTEGER PRIMARY KEY, trace BLOB NOT NULL, kind INTEGER NOT NULL,
  resource INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS chunks_by_trace ON chunks (trace);
CREATE TABLE IF NOT EXISTS traces (
  trace BLOB PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL,
  bytes INTEGER NOT NULL, items INTEGER NOT NULL, rank INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS traces_to_evict ON traces (rank, last);
"""
_FORMAT: Final = 1

_COUNT: Final = """
INSERT INTO traces (trace, first, last, bytes, items, rank) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (trace) DO UPDATE SET
  first = min(first, excluded.first), last = max(last, excluded.last),
  bytes = bytes + excluded.bytes, items = items + excluded.items, rank = max(rank, excluded.rank)
"""
_INSERT: Final = "INSERT INTO chunks (trace, kind, resource, data) VALUES (?, ?, ?, ?)"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much is kept, and how long."""

    max_bytes: int
    keep_s: float
    keep_failed_s: float
    """Of traces that are failed or slow."""


@dataclass(slots=True)
class Counters:
    """What became of what came in, in spans and lines."""

    stored: int = 0
    dropped_busy: int = 0
    """The disk was slower than what came."""
    dropped_large: int = 0
    """Their trace had reached its bound."""
    dropped_failed: int = 0
    """They could not be written."""
    evicted_traces: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What is kept."""

    traces: int
    used_bytes: int
    max_bytes: int
    oldest_ns: int | None


class TraceStore(Keeper["_File"]):
    """A part of the console's lifecycle. Its methods are for the loop; SQLite has a thread."""

    def __init__(
        self, path: Path, bounds: Bounds, *, wall_ns: Callable[[], int] = time.time_ns
    ) -> None:
        super().__init__("traces", max_waiting_bytes=MAX_WAITING_BYTES)
        self.counters = Counters()
        self._path = path
        self._bounds = bounds
        self._wall_ns = wall_ns
        self._decoded: tuple[bytes, int, int, list[Span]] | None = None
        """The last large trace, with its newest chunk and their number: it is shown in parts."""

    def offer(self, chunks: Sequence[Chunk]) -> int:
        """Takes chunks to be written soon; tells how many spans and lines were dropped instead."""
        count = sum(chunk.items for chunk in chunks)
        size = sum(len(chunk.data) for chunk in chunks)
        size += sum(map(len, {chunk.resource for chunk in chunks}))
        if not self._has_room(size):
            self.counters.dropped_busy += count
            return count
        if chunks:
            now = self._wall_ns()
            self._write_soon(size, lambda file: file.write(chunks, now), _written)
        return 0

    async def spans(self, trace: bytes) -> list[Span]:
        """Gives the spans of a trace by their start."""
        rows = await or_nothing(self._read(lambda file: file.chunks(trace, SPANS)), [])
        newest = rows[-1][0] if rows else 0
        known = self._decoded
        if known is not None and known[:3] == (trace, newest, len(rows)):
            return known[3]
        found = [span for _, resource, data in rows for span in spans_in(trace, resource, data)]
        found.sort(key=lambda span: (span.start, -span.end))
        if len(found) > _MANY:
            self._decoded = (trace, newest, len(rows), found)
        return found

    async def lines(self, trace: bytes, *, after: int = 0, limit: int = 10_000) -> list[LogLine]:
        """Gives the log lines of a trace in the order in which they came, at most so many.

        `after` is the `cursor` of the last line that is known.
        """
        rows = await or_nothing(self._read(lambda file: file.chunks(trace, LOGS, after >> 20)), [])
        found = [
            line
            for number, resource, data in rows
            for line in log_lines(resource, data, number)
            if line.cursor > after
        ]
        return found[:limit]

    async def usage(self) -> Usage:
        """Tells how much is kept."""
        nothing = Usage(traces=0, used_bytes=0, max_bytes=self._bounds.max_bytes, oldest_ns=None)
        return await or_nothing(self._read(lambda file: file.usage()), nothing)

    async def sweep_once(self) -> int:
        """Removes what is too old; tells how many traces went."""
        now = self._wall_ns()
        return await self._read(lambda file: file.sweep(now))

    def _open(self) -> _File:
        return _File(open_file(self._path, _SCHEMA, _FORMAT), self._bounds, self.counters)


def _written(error: BaseException | None) -> None:
    if error is not None:
        _log.error("Traces could not be written.", action="write_traces", reason=str(error))


class _File:
    """The file, in its thread."""

    def __init__(self, connection: sqlite3.Connection, bounds: Bounds, counters: Counters) -> None:
        self._sql = connection
        self._bounds = bounds
        self._counters = counters
        self._resources: dict[bytes, int] = {}
        self._held: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self._used: int = connection.execute("SELECT total(bytes) FROM traces").fetchone()[0]

    def close(self) -> None:
        self._sql.close()

    def write(self, chunks: Sequence[Chunk], now: int) -> None:
        """Writes chunks that came now in one transaction, then makes room."""
        counts: list[tuple[object, ...]] = []
        rows: list[tuple[object, ...]] = []
        stored = large = size = 0
        try:
            with self._sql:
                for chunk in chunks:
                    taken = len(chunk.data) + _OVERHEAD_BYTES
                    if not self._has_room(chunk.trace, chunk.items, taken):
                        large += chunk.items
                        continue
                    trace, kind, resource, data, items, first, last, rank = chunk
                    sender, added = self._resource(resource)
                    taken += added
                    first, last = ages_from(first, now), ages_from(last, now)
                    counts.append((trace, first, last, taken, items, rank))
                    rows.append((trace, kind, sender, data))
                    stored += items
                    size += taken
                self._sql.executemany(_COUNT, counts)
                self._sql.executemany(_INSERT, rows)
        except Exception:
            self._resources.clear()  # some of them may have been undone
            self._counters.dropped_failed += sum(chunk.items for chunk in chunks)
            raise
        self._used += size
        self._counters.stored += stored
        self._counters.dropped_large += large
        if self._used > self._bounds.max_bytes:
            self._evict(int(self._bounds.max_bytes * _ROOM))

    def _has_room(self, trace: bytes, items: int, size: int) -> bool:
        """Tells whether a trace may have so much more, as far as is known of it."""
        held, kept = self._held.get(trace, (0, 0))
        if held + size > MAX_TRACE_BYTES or kept + items > MAX_TRACE_ITEMS:
            return False
        self._held[trace] = (held + size, kept + items)
        if held:
            self._held.move_to_end(trace)
        elif len(self._held) > _TRACES_KNOWN:
            self._held.popitem(last=False)
        return True

    def _resource(self, data: bytes) -> tuple[int, int]:
        """Gives a sender's number, and the bytes that it adds to the file: it may be there."""
        found = self._resources.get(data)
        if found is not None:
            return found, 0
        digest = blake2b(data, digest_size=16).digest()
        added = self._sql.execute(
            "INSERT OR IGNORE INTO resources (digest, data) VALUES (?, ?)", (digest, data)
        ).rowcount
        row = self._sql.execute("SELECT id FROM resources WHERE digest = ?", (digest,)).fetchone()
        if len(self._resources) >= _RESOURCES_KNOWN:
            self._resources.clear()
        self._resources[data] = row[0]
        return int(row[0]), len(data) if added > 0 else 0

    def chunks(self, trace: bytes, kind: int, after: int = 0) -> list[tuple[int, bytes, bytes]]:
        """Gives number, resource and data of a trace's chunks, in the order in which they came."""
        return self._sql.execute(
            "SELECT c.id, r.data, c.data FROM chunks c JOIN resources r ON r.id = c.resource "
            "WHERE c.trace = ? AND c.kind = ? AND c.id >= ? ORDER BY c.id",
            (trace, kind, after),
        ).fetchall()

    def usage(self) -> Usage:
        traces, oldest = self._sql.execute("SELECT count(*), min(first) FROM traces").fetchone()
        return Usage(
            traces=traces,
            used_bytes=self._used,
            max_bytes=self._bounds.max_bytes,
            oldest_ns=oldest,
        )

    def sweep(self, now: int) -> int:
        """Removes what is older than its bound, and resources that nothing names."""
        gone = 0
        usual = now - round(self._bounds.keep_s * 1e9)
        kept = now - round(self._bounds.keep_failed_s * 1e9)
        for condition, value in (("rank = 0", usual), ("rank > 0", kept)):
            while True:
                rows = self._sql.execute(
                    f"SELECT trace, bytes FROM traces WHERE {condition} AND last < ? LIMIT ?",  # noqa: S608 - ours
                    (value, _EVICTED_AT_ONCE),
                ).fetchall()
                if not rows:
                    break
                self._remove(rows)
                gone += len(rows)
        with self._sql:
            self._sql.execute("DELETE FROM resources WHERE id NOT IN (SELECT resource FROM chunks)")
        self._resources.clear()
        return gone

    def _evict(self, wanted: int) -> None:
        while self._used > wanted:
            rows = self._sql.execute(
                "SELECT trace, bytes FROM traces ORDER BY rank, last LIMIT ?", (_EVICTED_AT_ONCE,)
            ).fetchall()
            if not rows:
                return
            taken, size = [], 0
            for row in rows:
                if self._used - size <= wanted:
                    break
                taken.append(row)
                size += row[1]
            self._remove(taken)
            self._counters.evicted_traces += len(taken)

    def _remove(self, rows: Sequence[tuple[bytes, int]]) -> None:
        with self._sql:
            names = [(trace,) for trace, _ in rows]
            self._sql.executemany("DELETE FROM chunks WHERE trace = ?", names)
            self._sql.executemany("DELETE FROM traces WHERE trace = ?", names)
        self._used -= sum(size for _, size in rows)
