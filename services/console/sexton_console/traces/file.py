"""Files of the console's own: SQLite, opened, or put aside where they can't be read."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable
from pathlib import Path
from typing import Final, TypeVar

import structlog

Result = TypeVar("Result")

_HINDRANCES: Final = frozenset({
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM,
})  # fmt: skip
"""Errors that tell nothing against what is in a file."""
_PRIMARY: Final = 0xFF
"""The part of an error's code that names its kind."""
_AHEAD_NS: Final = 3_600 * 10**9
"""So far the clock of a sender may go before this machine's."""

_log = structlog.get_logger(__name__)


def open_file(path: Path, schema: str, version: int) -> sqlite3.Connection:
    """Opens a file with this schema; one that can't be read is put aside: better without a past.

    `schema` is run at each opening; `version` is that of the format, of which older consoles read
    none that is newer than theirs.

    Raises:
        OSError: it may be well, and can't be used now: it is locked, or the disk is full.

    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return _connect(path, schema, version)
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        if code & _PRIMARY in _HINDRANCES:
            raise OSError(f"{path} can't be used now: {error}") from error
        aside = path.with_suffix(".unreadable")
        _log.error(
            "What was received before can't be read; it is put aside.",
            action="open_traces",
            reason=str(error),
            path=str(aside),
        )
        path.replace(aside)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        return _connect(path, schema, version)


async def or_nothing(reading: Awaitable[Result], nothing: Result) -> Result:
    """Gives what is read of a file; nothing where it can't be read any more: pages do without."""
    try:
        return await reading
    except sqlite3.Error as error:
        _log.error("What was received can't be read.", action="read_traces", reason=str(error))
        return nothing


def ages_from(at: int, now: int) -> int:
    """Gives the time by which something becomes old: its own, or that of its arrival.

    What names no time, or a future, would go at once, never, or not into the file at all.
    """
    return at if 0 < at <= now + _AHEAD_NS else now


def _connect(path: Path, schema: str, newest: int) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level="IMMEDIATE", check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # A power loss may take the last moments; nothing is ever half there.
        connection.execute("PRAGMA synchronous = NORMAL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, newest):
            raise sqlite3.DatabaseError(f"format {version} is newer than this console's")
        connection.executescript(schema)
        connection.execute(f"PRAGMA user_version = {newest}")
        connection.commit()
    except sqlite3.Error:
        connection.close()
        raise
    path.chmod(0o600)
    return connection
