"""In which order all of `active/` is read, again and again, so that what was missed is found.

A round reads every short lane whole, and of a long one (whose page has nothing else in it) the
first page; what is behind that is gone on with after the round, a page of each in turn, over
several rounds where it takes that long. So a run is found soon unless what keeps it waiting is its
own lane, where everything before it has to leave first.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sexton_runtime.kv.types import prefix_end

_LANE_PARTS: Final = 4
"""Of a handle's key, parted by slashes, so many name its lane (`sexton_records.keys`)."""


class Stretch(NamedTuple):
    """Keys to be read: a page from `start` on, before `end`."""

    start: bytes
    end: bytes


class Rounds:
    """What is to be read next. Each `next` that gives something is followed by one `took`."""

    def __init__(self, prefix: bytes) -> None:
        self._end = prefix_end(prefix)
        self._prefix = prefix
        self._start = b""
        """Where the round goes on; empty: it has ended."""
        self._long: dict[bytes, bytes] = {}
        """Where the reading of long lanes goes on, the next one first."""
        self._lane = b""
        """The long lane that is being read; empty: the round goes on."""
        self._owed = 0
        """Pages of long lanes that are read before the next round, however late it is."""

    def begin(self) -> None:
        """Begins the next round."""
        self._start = self._prefix
        self._owed = 0

    def next(self, *, due: bool) -> Stretch | None:
        """Gives what to read; None: the next round is to be begun, once it is due."""
        self._lane = b""
        if self._start:
            return Stretch(self._start, self._end)
        if not self._long or (due and not self._owed):
            return None
        self._lane = next(iter(self._long))
        return Stretch(self._long.pop(self._lane), prefix_end(self._lane))

    def took(self, first: bytes, last: bytes) -> None:
        """Takes the first and the last key of a page; `last` is empty where it was the last page.

        At least every other page goes on with long lanes, however many lanes there are.
        """
        after = last + b"\0" if last else b""
        if self._lane:
            self._owed = max(self._owed - 1, 0)
            if after:
                self._long[self._lane] = after
            return
        self._owed += 1
        lane = _lane_of(first)
        if last.startswith(lane):
            self._long.setdefault(lane, after)
            after = prefix_end(lane)
        self._start = after

    def failed(self, stretch: Stretch) -> None:
        """Notes that a page could not be read: it is read again."""
        if self._lane:
            self._long[self._lane] = stretch.start


def _lane_of(key: bytes) -> bytes:
    return b"/".join(key.split(b"/", _LANE_PARTS)[:_LANE_PARTS]) + b"/"
