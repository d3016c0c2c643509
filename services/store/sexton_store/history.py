"""The history file: one line per commit, the truth that the checker compares all else with.

Lines are JSON objects. A commit's line is written *before* the step that makes the commit durable,
so a crash can leave lines of commits that never were. A ``start`` line, written with the first step
after each opening, names the revision that was durable then: lines before it with a higher revision
are intents that came to nothing, and `read_history` drops them. They are of one step only.

::

    {"start": 41, "incarnation": ..., "boot_id": ...}
    {"revision": 42, "mesh_time_ns": ..., "compares": [{"key": ..., "target": ..., "operand": ...}],
     "changes": [{"key": ..., "before": {...} or null, "after": {...} or null}], "boot_ns": ...}

Keys and values are base64. ``boot_ns`` is the machine's boot time (CLOCK_BOOTTIME) at which the
step was made ready to be written, the same for all commits of a step: nobody has seen them before,
and all of them are durable before that of the next step. It compares with whatever else was noted
during the same boot. Files are named ``history-<number>.jsonl`` and rotated by size. They are
written but not synced: they survive every crash of the process, not a power loss.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sexton_runtime.kv.types import Compare, Target
from sexton_store.disk import Record

DEFAULT_FILE_BYTES = 64 * 1024 * 1024
"""A file is ended by the first step that begins beyond this size."""

_NAME = "history-{:08d}.jsonl"
_NAMED = re.compile(r"history-(\d{8,})\.jsonl")


class Change(NamedTuple):
    """One key's change in a commit; `before` None: it was absent, `after` None: deleted."""

    key: bytes
    before: Record | None
    after: Record | None


class Commit(NamedTuple):
    """One transaction that wrote something: its revision, the compares it held, its changes."""

    revision: int
    mesh_time_ns: int
    compares: tuple[Compare, ...]
    changes: tuple[Change, ...]
    boot_ns: int | None = None
    """Boot time at which its step was made ready to be written; None: not known."""


class HistorySink(Protocol):
    """Where a disk puts the lines of the step that it is about to make durable."""

    def append(self, lines: Sequence[bytes]) -> None:
        """Writes a step's lines; raises `OSError` where they do not fit."""
        ...

    def undo(self) -> None:
        """Takes the last append back: its step was refused and nothing of it was written."""
        ...

    def close(self) -> None:
        """Ends; idempotent."""
        ...


class FileHistory:
    """A folder of history files, appended to by one store."""

    def __init__(self, folder: Path, *, file_bytes: int = DEFAULT_FILE_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._file_bytes = file_bytes
        self._number = 1 + max(_files(folder), default=0)
        self._fd = self._open()
        self._size = 0
        self._size_before = 0

    def append(self, lines: Sequence[bytes]) -> None:
        """Writes a step's lines with one system call; what does not fit leaves no trace."""
        if self._size >= self._file_bytes:
            os.close(self._fd)
            self._number += 1
            self._fd = self._open()
            self._size = 0
        self._size_before = self._size
        rest = memoryview(b"".join(lines))
        try:
            while rest:
                written = os.write(self._fd, rest)
                self._size += written
                rest = rest[written:]
        except OSError:
            self.undo()
            raise

    def undo(self) -> None:
        """Cuts the last append off again."""
        os.ftruncate(self._fd, self._size_before)
        self._size = self._size_before

    def close(self) -> None:
        """Closes the file; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> int:
        path = self._folder / _NAME.format(self._number)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        return os.open(path, flags, 0o600)  # it holds what the data does


class MemoryHistory:
    """The twin: keeps the lines in a list."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self._before = 0

    def append(self, lines: Sequence[bytes]) -> None:
        """Keeps a step's lines."""
        self._before = len(self.lines)
        self.lines.extend(lines)

    def undo(self) -> None:
        """Drops the last append."""
        del self.lines[self._before :]

    def close(self) -> None:
        """Does nothing."""


def start_line(durable_revision: int, *, incarnation: str = "", boot_id: str = "") -> bytes:
    """Gives the line that stands before the first commit after each opening of a store.

    It belongs to the first step's lines, and again to the next step's where that was refused.
    """
    return _line({"start": durable_revision, "incarnation": incarnation, "boot_id": boot_id})


def commit_line(commit: Commit) -> bytes:
    """Gives a commit's line."""
    entry: dict[str, Any] = {
        "revision": commit.revision,
        "mesh_time_ns": commit.mesh_time_ns,
        "compares": [_compare_to_json(compare) for compare in commit.compares],
        "changes": [
            {
                "key": _text(change.key),
                "before": _record_to_json(change.before),
                "after": _record_to_json(change.after),
            }
            for change in commit.changes
        ],
    }
    if commit.boot_ns is not None:
        entry["boot_ns"] = commit.boot_ns
    return _line(entry)


def read_history(folder: Path) -> Iterator[Commit]:
    """Reads the commits that became durable, in order of revision.

    Lines after the last durable revision that anyone knows of (no ``start`` came after them) are
    given too: whether their step became durable is for the store to say. A last line that was cut
    off is passed over.
    """
    paths = [path for _, path in sorted(_files(folder).items())]
    return _durable(line for path in paths for line in path.read_bytes().splitlines(keepends=True))


def read_lines(lines: Sequence[bytes]) -> Iterator[Commit]:
    """Reads the commits that became durable from lines in memory, as `read_history` does."""
    return _durable(iter(lines))


def commit_of(entry: dict[str, Any]) -> Commit:
    """Gives the commit of a parsed line."""
    return Commit(
        entry["revision"],
        entry["mesh_time_ns"],
        tuple(_compare_from_json(compare) for compare in entry["compares"]),
        tuple(
            Change(
                base64.b64decode(change["key"]),
                _record_from_json(change["before"]),
                _record_from_json(change["after"]),
            )
            for change in entry["changes"]
        ),
        entry.get("boot_ns"),
    )


def _durable(lines: Iterator[bytes]) -> Iterator[Commit]:
    pending: list[Commit] = []  # the commits since the last start: not yet known to be durable
    for line in lines:
        if not line.endswith(b"\n"):
            continue
        entry = json.loads(line)
        if "start" in entry:
            yield from (commit for commit in pending if commit.revision <= entry["start"])
            pending = []
        else:
            pending.append(commit_of(entry))
    yield from pending


def _files(folder: Path) -> dict[int, Path]:
    """Finds the history's files by number; other files are none of ours."""
    named = ((_NAMED.fullmatch(path.name), path) for path in folder.iterdir())
    return {int(match[1]): path for match, path in named if match}


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _compare_to_json(compare: Compare) -> dict[str, Any]:
    operand = compare.operand
    return {
        "key": _text(compare.key),
        "target": compare.target.name,
        "operand": _text(operand) if isinstance(operand, bytes) else operand,
    }


def _compare_from_json(entry: dict[str, Any]) -> Compare:
    target = Target[entry["target"]]
    operand = entry["operand"]
    return Compare(
        base64.b64decode(entry["key"]),
        target,
        base64.b64decode(operand) if target is Target.VALUE else operand,
    )


def _record_to_json(record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    return {
        "value": _text(record.value),
        "create_revision": record.create_revision,
        "mod_revision": record.mod_revision,
        "version": record.version,
    }


def _record_from_json(entry: dict[str, Any] | None) -> Record | None:
    if entry is None:
        return None
    return Record(
        base64.b64decode(entry["value"]),
        entry["create_revision"],
        entry["mod_revision"],
        entry["version"],
    )
