"""Tells which runs a change adds and takes away, before it is made."""

from __future__ import annotations

import asyncio
from typing import Final

from sexton.v1 import scheduler_pb2 as api
from sexton_core.instants import DAY, Duration, Instant
from sexton_core.policy import Definition
from sexton_core.schedule import Schedule
from sexton_core.schedules import Difference, JobSchedule, differences
from sexton_core.schedules.difference import MAX_COUNTED
from sexton_records.times import timestamp

AHEAD: Final[Duration] = 30 * DAY
_WORK_S: Final = 3.0
"""For one file; after that, little is counted of each further job."""
_LITTLE: Final = 50

_Pair = tuple[Schedule | None, Schedule | None]


class Comparer:
    """Compares definitions, those with equal schedules once. For one request."""

    def __init__(self, now: Instant) -> None:
        self._now = now
        self._known: dict[tuple[int, int], tuple[_Pair, Difference]] = {}
        loop = asyncio.get_running_loop()
        self._time = loop.time
        self._deadline = loop.time() + _WORK_S

    async def compare(
        self, applied: api.AppliedJob, before: Definition | None, after: Definition | None
    ) -> None:
        """Says in an answer what a change does in the next 30 days."""
        pair = _nominal(before), _nominal(after)
        if pair[0] is pair[1]:
            return
        key = id(pair[0]), id(pair[1])
        if key not in self._known:
            limit = MAX_COUNTED if self._time() < self._deadline else _LITTLE
            found = Difference()
            for so_far in differences(*pair, self._now, self._now + AHEAD, limit=limit):
                found = so_far
                await asyncio.sleep(0)
            self._known[key] = pair, found  # with the pair, so that its ids stay its own
        found = self._known[key][1]
        applied.gained, applied.lost = found.gained, found.lost
        applied.gained_times.extend(map(timestamp, found.gained_times))
        applied.lost_times.extend(map(timestamp, found.lost_times))


def _nominal(definition: Definition | None) -> Schedule | None:
    """Returns the schedule that jobs with equal ones share."""
    schedule = None if definition is None else definition.schedule
    return schedule.nominal if isinstance(schedule, JobSchedule) else schedule
