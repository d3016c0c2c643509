"""Files that are looked at again while they are used, so that replacing them needs no restart."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

Held = TypeVar("Held")

LOOK_EVERY_S: Final = 1.0
"""The files are looked at this often at most."""
_log = logging.getLogger(__name__)


class WatchedFiles(Generic[Held]):
    """What some files hold, read again when they have changed. Safe to use from any thread.

    What they are replaced with and can't be used is not taken, which the log says once; what they
    held before stays in use.
    """

    def __init__(
        self,
        name: str,
        paths: Sequence[Path],
        read: Callable[[], Held],
        *,
        refusals: tuple[type[Exception], ...],
    ) -> None:
        """`name`: theirs in the log. `read` raises one of `refusals` where they can't be used."""
        self._name = name
        self._paths = tuple(paths)
        self._read = read
        self._refusals = refusals
        self._lock = threading.Lock()
        self._looked_s = time.monotonic()
        self._stamp = self._stat()
        self._held = read()

    @property
    def held(self) -> Held:
        """Gives what they hold, looked at lately: the same object until they have changed."""
        if time.monotonic() - self._looked_s < LOOK_EVERY_S:
            return self._held
        return self.look()

    def look(self) -> Held:
        """Gives what they hold, looked at now."""
        with self._lock:
            self._looked_s = time.monotonic()
            stamp = self._stat()
            if stamp != self._stamp:
                self._stamp = stamp  # a refused one too: it is read, and complained of, once
                try:
                    self._held = self._read()
                    _log.info("New %s are used: %s", self._name, self._shown())
                except self._refusals as error:
                    _log.warning("New %s can't be used, the ones before are: %s", self._name, error)
        return self._held

    def _shown(self) -> str:
        return ", ".join(map(str, self._paths))

    def _stat(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp_of(path) for path in self._paths)


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        state = path.stat()
    except OSError:
        return None  # whoever reads it says so
    return state.st_mtime_ns, state.st_ino, state.st_size
