"""Showing something again and again, until it is enough."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

EVERY_S: Final = 2.0
_HOME_AND_CLEAR: Final = "\x1b[H\x1b[2J"


def show(work: Callable[[], None], *, watch: bool) -> None:
    """Shows something once; with `watch` every two seconds, on a terminal over what was there.

    Ends by being interrupted: the command then ends as by any Ctrl-C.
    """
    while True:
        if watch and sys.stdout.isatty():
            sys.stdout.write(_HOME_AND_CLEAR)
        work()
        sys.stdout.flush()
        if not watch:
            return
        time.sleep(EVERY_S)
        if not sys.stdout.isatty():
            sys.stdout.write("\n")
