"""One line on stderr that tells how long work goes on; nothing where nobody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sexton_cli.output import visible

_EVERY_S: Final = 1.0
_CLEAR: Final = "\r\x1b[2K"


def shown() -> bool:
    """Tells whether somebody looks."""
    return sys.stderr.isatty()


@contextmanager
def line() -> Iterator[Callable[[str], None]]:
    """Gives what writes the line anew; it is gone with its block."""
    looked_at = shown()

    def tell(text: str) -> None:
        if looked_at:
            sys.stderr.write(f"{_CLEAR}{visible(text)}")
            sys.stderr.flush()

    try:
        yield tell
    finally:
        if looked_at:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


def pause() -> None:
    """Waits before the next look."""
    time.sleep(_EVERY_S)
