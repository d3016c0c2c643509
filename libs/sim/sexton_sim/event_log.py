"""The event log of a simulation: its hash is the same for every run of a seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from sexton_sim.loop import SimLoop
from sexton_sim.network import Event

Trace = Callable[[str], None]
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


class EventLog:
    """Hashes everything that happens: frames, faults, history lines, each with its moment.

    The moment is virtual time and the number of callbacks run so far, so that two runs which only
    differ in the order of callbacks differ in their hash too.
    """

    def __init__(self, loop: SimLoop, trace: Trace | None = None) -> None:
        self.events = 0
        self._loop = loop
        self._trace = trace
        self._hash = hashlib.blake2b(digest_size=16)

    def network(self, event: Event) -> None:
        """Takes a frame."""
        what, source, target, label, size, checksum = event
        self._add(f"{source}>{target} {what} {label} {size} {checksum:08x}")

    def line(self, entry: dict[str, Any]) -> None:
        """Takes a line of the history."""
        self._add(_ENCODE(entry))

    def hexdigest(self) -> str:
        """Gives the hash so far."""
        return self._hash.hexdigest()

    def _add(self, event: str) -> None:
        self.events += 1
        line = f"{self._loop.now_ns} {self._loop.steps} {event}\n"
        self._hash.update(line.encode())
        if self._trace is not None:
            self._trace(line.rstrip())
