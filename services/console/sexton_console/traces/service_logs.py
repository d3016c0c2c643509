"""Keeps what services log of themselves: one file, one thread, bounds by bytes and by age.

Lines are found by when they came, by who wrote them, by how grave they are, and by the run, the
session or the trace that they speak of. Nobody waits for the disk, as with traces.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from sexton_console.traces.decode import log_line
from sexton_console.traces.file import ages_from, open_file, or_nothing
from sexton_console.traces.keeper import Keeper
from sexton_console.traces.model import LogLine

WARNING: Final = 13
"""The severity from which on a line is about something that is not as it should be."""
MAX_WAITING_BYTES: Final = 8 * 1024 * 1024
_OVERHEAD_BYTES: Final = 150
"""Of a line in the file, beside its data."""
_REMOVED_AT_ONCE: Final = 2_000
_ROOM: Final = 0.95

_FORMAT: Final = 1
_SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS lines (
  id INTEGER PRIMARY KEY, at INTEGER NOT NULL, service TEXT NOT NULL, severity INTEGER NOT NULL,
  run TEXT NOT NULL, session TEXT NOT NULL, trace BLOB NOT NULL, data BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS lines_of_service ON lines (service, id);
CREATE INDEX IF NOT EXISTS lines_of_run ON lines (run) WHERE run != '';
CREATE INDEX IF NOT EXISTS lines_of_session ON lines (session, at) WHERE session != '';
CREATE INDEX IF NOT EXISTS lines_of_trace ON lines (trace) WHERE trace != x'';
CREATE INDEX IF NOT EXISTS lines_that_warn ON lines (id) WHERE severity >= {WARNING};
"""
_COLUMNS: Final = "id, service, data"

_log = structlog.get_logger(__name__)


class Said(NamedTuple):
    """A line as it came."""

    at: int
    service: str
    severity: int
    run: str
    session: str
    trace: bytes
    data: bytes
    """A serialised `LogRecord`."""


class About(NamedTuple):
    """What lines may speak of: a run, its trace, and the sessions that had it, for a time."""

    run: str
    trace: bytes
    sessions: tuple[str, ...]
    start: int
    end: int


class ServiceLogs(Keeper[sqlite3.Connection]):
    """A part of the console's lifecycle. Its methods are for the loop; SQLite has a thread."""

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int,
        keep_s: float,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        super().__init__("service-logs", max_waiting_bytes=MAX_WAITING_BYTES)
        self.stored = 0
        self.dropped = 0
        """Lines that came faster than the disk takes them, or could not be written."""
        self.used_bytes = 0
        self.max_bytes = max_bytes
        self._path = path
        self._keep_s = keep_s
        self._wall_ns = wall_ns

    def offer(self, lines: Sequence[Said]) -> int:
        """Takes lines to be written soon; tells how many were dropped instead."""
        size = sum(len(line.data) + _OVERHEAD_BYTES for line in lines)
        if not self._has_room(size):
            self.dropped += len(lines)
            return len(lines)
        if lines:
            now = self._wall_ns()
            aged = [line._replace(at=ages_from(line.at, now)) for line in lines]
            self._write_soon(
                size, lambda sql: self._write(sql, aged, size), partial(self._written, len(lines))
            )
        return 0

    async def newest(
        self, *, service: str = "", severity: int = 0, before: int = 0, limit: int = 100
    ) -> list[LogLine]:
        """Gives the newest lines, the newest first, at least so grave.

        `before` is the `cursor` of a line: only those that came earlier.
        """
        wanted, values = ["1"], list[Any]()
        if service:
            wanted.append("service = ?")
            values.append(service)
        if severity:
            wanted.append("severity >= ?")
            values.append(severity)
        if severity >= WARNING:
            wanted.append(f"severity >= {WARNING}")  # by which its index is found
        if before:
            wanted.append("id < ?")
            values.append(before)
        asked = (
            f"SELECT {_COLUMNS} FROM lines WHERE {' AND '.join(wanted)} "  # noqa: S608 - ours
            "ORDER BY id DESC LIMIT ?"
        )
        return await self._lines(asked, [*values, limit])

    async def about(self, what: About, *, limit: int = 200) -> list[LogLine]:
        """Gives lines that speak of a run, the oldest first."""
        parts = [f"SELECT {_COLUMNS}, at FROM lines WHERE run = ? AND run != ''"]  # noqa: S608
        values: list[Any] = [what.run]
        if what.trace:
            parts.append(f"SELECT {_COLUMNS}, at FROM lines WHERE trace = ? AND trace != x''")  # noqa: S608
            values.append(what.trace)
        for session in what.sessions:
            parts.append(
                f"SELECT {_COLUMNS}, at FROM lines "  # noqa: S608 - ours
                "WHERE session = ? AND session != '' AND at BETWEEN ? AND ?"
            )
            values += [session, what.start, what.end]
        asked = f"SELECT {_COLUMNS} FROM ({' UNION '.join(parts)}) ORDER BY at, id LIMIT ?"  # noqa: S608
        return await self._lines(asked, [*values, limit])

    async def services(self) -> list[str]:
        """Gives who wrote lines that are kept."""
        asked = """
        WITH RECURSIVE each(name) AS (
          SELECT min(service) FROM lines
          UNION ALL SELECT (SELECT min(service) FROM lines WHERE service > name) FROM each
          WHERE name IS NOT NULL)
        SELECT name FROM each WHERE name IS NOT NULL LIMIT 100
        """
        rows = await or_nothing(self._read(lambda sql: sql.execute(asked).fetchall()), [])
        return [name for (name,) in rows]

    async def sweep_once(self) -> int:
        """Removes what is too old; tells how many lines went."""
        oldest = self._wall_ns() - round(self._keep_s * 1e9)
        return await self._read(lambda sql: self._remove_older(sql, oldest))

    async def _lines(self, asked: str, values: Sequence[Any]) -> list[LogLine]:
        rows = await or_nothing(self._read(lambda sql: sql.execute(asked, values).fetchall()), [])
        return [log_line(service, LogRecord.FromString(data), key) for key, service, data in rows]

    def _write(self, sql: sqlite3.Connection, lines: Sequence[Said], size: int) -> None:
        with sql:
            sql.executemany(
                "INSERT INTO lines (at, service, severity, run, session, trace, data) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                lines,
            )
        self.used_bytes += size
        while self.used_bytes > self.max_bytes:
            wanted = self.used_bytes - round(self.max_bytes * _ROOM)
            if not self._remove_oldest(sql, lambda _, gone, wanted=wanted: gone < wanted):  # type: ignore[misc]
                return

    def _remove_older(self, sql: sqlite3.Connection, oldest: int) -> int:
        removed = 0
        while some := self._remove_oldest(sql, lambda at, _: at < oldest):
            removed += some
        return removed

    def _remove_oldest(self, sql: sqlite3.Connection, goes: Callable[[int, int], bool]) -> int:
        """Removes lines in the order in which they came, for as long as the next one goes."""
        rows = sql.execute(
            "SELECT id, at, length(data) FROM lines ORDER BY id LIMIT ?", (_REMOVED_AT_ONCE,)
        ).fetchall()
        last = count = size = 0
        for key, at, length in rows:
            if not goes(at, size):
                break
            last, count, size = key, count + 1, size + length + _OVERHEAD_BYTES
        if count:
            with sql:
                sql.execute("DELETE FROM lines WHERE id <= ?", (last,))
            self.used_bytes -= size
        return count

    def _written(self, lines: int, error: BaseException | None) -> None:
        if error is None:
            self.stored += lines
        else:
            self.dropped += lines
            _log.error("Lines could not be written.", action="write_logs", reason=str(error))

    def _open(self) -> sqlite3.Connection:
        sql = open_file(self._path, _SCHEMA, _FORMAT)
        size = "SELECT total(length(data)), count(*) FROM lines"
        held, lines = sql.execute(size).fetchone()
        self.used_bytes = round(held) + lines * _OVERHEAD_BYTES
        return sql
