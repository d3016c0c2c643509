"""What an attempt writes, of which the last part is kept."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Final, TextIO, cast

from sexton_worker.contract import MAX_TAIL_BYTES, tail
from sexton_worker.strikeout import Strikeout

_FIRST_CONTINUATION: Final = 0x80
_AFTER_CONTINUATION: Final = 0xC0


class Tail:
    """The last part of what is written, however much that is. Safe to use from any thread."""

    __slots__ = ("_cut", "_follow", "_kept", "_limit", "_lock", "_strikeout")

    def __init__(
        self,
        limit: int = MAX_TAIL_BYTES,
        *,
        follow: Callable[[bytes], object] | None = None,
        secrets: Sequence[bytes] = (),
    ) -> None:
        """`follow` is given everything as it is written, and nothing at the end.

        `secrets` are struck out before anything is kept or followed.
        """
        self._limit = limit
        self._strikeout = Strikeout(secrets) if secrets else None
        self._follow = follow
        self._kept = bytearray()
        self._lock = threading.Lock()
        self._cut = False

    def write(self, data: bytes) -> None:
        """Takes some more."""
        with self._lock:
            self._keep(data if self._strikeout is None else self._strikeout.take(data))

    def text(self) -> str:
        """Gives the last part as text: at most the limit in UTF-8; what is not UTF-8 is replaced.

        Escape sequences stay in it: who shows it makes them harmless. Nothing is written after it.
        """
        if not self._kept and self._strikeout is None and self._follow is None:
            return ""
        with self._lock:
            if self._strikeout is not None:
                self._keep(self._strikeout.rest())
            if self._follow is not None:
                self._follow(b"")
            data = bytes(self._kept[-self._limit :])
            if self._cut or len(self._kept) > self._limit:
                start = 0  # not inside a character
                while start < min(3, len(data)) and (
                    _FIRST_CONTINUATION <= data[start] < _AFTER_CONTINUATION
                ):
                    start += 1
                data = data[start:]
        return tail(data.decode("utf-8", "replace"), self._limit)

    def _keep(self, data: bytes) -> None:
        if self._follow is not None and data:
            self._follow(data)
        self._kept += data[-2 * self._limit :]
        if len(self._kept) > 2 * self._limit:
            del self._kept[: -self._limit]
            self._cut = True


OUTPUT: ContextVar[Tail | None] = ContextVar("sexton_output", default=None)
"""Where code that runs in this process writes to; None: it is no attempt's."""


class AttemptLogger(logging.Logger):
    """The logger of one attempt: its lines are kept with the attempt and go nowhere else."""

    def __init__(self, kept: Tail) -> None:
        super().__init__("sexton.attempt", logging.DEBUG)
        self._kept = kept

    def handle(self, record: logging.LogRecord) -> None:
        """Keeps a line."""
        keep_record(self._kept, record)


def keep_record(kept: Tail, record: logging.LogRecord) -> None:
    """Writes a log record as a line."""
    kept.write((_FORMAT.format(record) + "\n").encode("utf-8", "replace"))


_FORMAT = logging.Formatter("%(levelname)s %(message)s")


class _Routed:
    """A standard stream that keeps what attempts write to it, and passes on everything else."""

    def __init__(self, own: TextIO) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def isatty(self) -> bool:
        return OUTPUT.get() is None and self._own.isatty()

    def write(self, text: str, /) -> int:
        kept = OUTPUT.get()
        if kept is None:
            return self._own.write(text)
        kept.write(text.encode("utf-8", "replace"))
        return len(text)

    def writelines(self, lines: Iterable[str], /) -> None:
        for line in lines:
            self.write(line)


class _FromAttempts(logging.Filter):
    """Keeps the lines that attempts log with them, out of the worker's own log."""

    def filter(self, record: logging.LogRecord) -> bool:
        kept = OUTPUT.get()
        if kept is None:
            return True
        keep_record(kept, record)
        return False


def route_output() -> None:
    """Has what attempts print and log in this process kept with them, from now on.

    Reaches everything that runs in an attempt's context: its function, what it awaits, and
    `asyncio.to_thread`. Threads that it starts itself, and what writes to the file descriptors,
    write where the worker does.
    """
    sys.stdout = cast("TextIO", _Routed(sys.stdout))
    sys.stderr = cast("TextIO", _Routed(sys.stderr))
    for handler in logging.getLogger().handlers:
        handler.addFilter(_FromAttempts())
