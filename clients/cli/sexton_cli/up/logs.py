"""The log files of supervised processes: bounded, followed, and their last line made readable.

A process writes its file itself, so that a supervisor that is slow or suspended never holds it up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_BYTES = 8 * 1024 * 1024
"""A log that has grown beyond this becomes the older one, which is replaced: 16 MiB per process."""
_TAIL_BYTES = 16 * 1024
_LONGEST_LINE = 500
_KNOWN = ("message", "level", "timestamp", "service", "exception", "action")


class LogFile:
    """One process's log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_to = path.stat().st_size if path.exists() else 0
        self._opened_at = self._read_to

    def open(self) -> int:
        """Gives a descriptor with which a process appends. Raises `OSError`."""
        log = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._opened_at = os.fstat(log).st_size
        return log

    def said_since_open(self, start: str) -> bool:
        """Tells whether a line that starts so was written by the process that was opened for last.

        Of one that has written so much that its log was moved meanwhile, it is taken for granted.
        """
        if not self._path.exists():
            return False
        with self._path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self._opened_at:
                return True
            file.seek(self._opened_at)
            return any(line.startswith(start.encode()) for line in file)

    def rotate(self, max_bytes: int = MAX_BYTES) -> bool:
        """Moves what is written into the older file once it is too much; tells whether it was.

        The writer keeps its descriptor, so its file is copied and emptied; what it writes between
        the two is lost, which is a line or two once in many megabytes. Raises `OSError`; nothing is
        moved then.
        """
        if not self._path.exists() or self._path.stat().st_size <= max_bytes:
            return False
        older = self._path.with_name(f"{self._path.name}.1")
        draft = self._path.with_name(f".{self._path.name}.draft")
        try:
            with self._path.open("rb") as source, draft.open("wb") as target:
                os.chmod(target.fileno(), 0o600)
                # No more than the bound, also where a process has written without one.
                source.seek(-max_bytes, os.SEEK_END)
                target.write(source.read(max_bytes))
            draft.replace(older)
        finally:
            draft.unlink(missing_ok=True)
        os.truncate(self._path, 0)
        self._read_to = 0
        return True

    def new_lines(self) -> Iterator[str]:
        """Gives the whole lines that were written since the last call, as written."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self._read_to:
                self._read_to = 0
            file.seek(self._read_to)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read_to += len(line)
                yield line.decode(errors="replace").rstrip()

    def last_line(self) -> str:
        """Gives the last thing that was said, readable; empty where nothing was."""
        if not self._path.exists():
            return ""
        with self._path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        said = (readable(line) for line in reversed(lines) if line.strip())
        return next(said, "")


def readable(line: str) -> str:
    """Gives a line of a service's JSON log as a sentence with its fields; others as they are."""
    try:
        found = json.loads(line)
    except ValueError:
        return _short(line.strip())
    if not isinstance(found, dict) or "message" not in found:
        return _short(line.strip())
    level = str(found.get("level", "info"))
    parts = [] if level == "info" else [f"{level}:"]
    parts.append(str(found["message"]))
    parts += [f"{name}={_value(found[name])}" for name in found if name not in _KNOWN]
    if found.get("exception"):
        parts.append(f"({str(found['exception']).strip().splitlines()[-1]})")
    return _short(" ".join(parts))


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_LINE else text[: _LONGEST_LINE - 3] + "..."
