"""The ends of runs that were asked for here, as the owners of their queues tell this replica.

A leader hears of every run's end on the stream on which it has pushed the run. For a run that was
triggered at this replica the notice brings its record, so that who waits for it needs no watch of
the store. Hints, as all of that stream: what does not come is found in the store.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

MOST_EXPECTED: Final = 1_000
"""Runs whose ends are expected, or were told a moment ago; of more the oldest are forgotten."""


class RunEnd(NamedTuple):
    """A run's record as it ended, and the revision of that."""

    record: bytes
    revision: int


class Ends:
    """What is expected, by handle, and what has come."""

    def __init__(self) -> None:
        self._ends: OrderedDict[bytes, asyncio.Future[RunEnd | None]] = OrderedDict()

    def expect(self, handle: bytes) -> None:
        """Notes that an owner was told of a run, and is to tell of its end."""
        if handle not in self._ends:
            self._ends[handle] = asyncio.get_running_loop().create_future()
            if len(self._ends) > MOST_EXPECTED:
                self.give_up([next(iter(self._ends))])

    def tell(self, handle: bytes, end: RunEnd) -> None:
        """Takes a notice; it is kept for a while, for who asks after it has come."""
        expected = self._ends.get(handle)
        if expected is not None and not expected.done():
            expected.set_result(end)

    def give_up(self, handles: Iterable[bytes]) -> None:
        """Says of runs that no notice comes any more."""
        for handle in handles:
            expected = self._ends.pop(handle, None)
            if expected is not None and not expected.done():
                expected.set_result(None)

    def of(self, handle: bytes) -> asyncio.Future[RunEnd | None] | None:
        """Gives where a run's end will be; None in it: in the store only. None: not expected."""
        return self._ends.get(handle)
