"""Many jobs, one of them due each second, and times that count how often they are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sexton_core.instants import SECOND, Instant
from sexton_core.schedule import Schedule
from sexton_core.schedules import EveryTiming, ScheduleSpec, build
from sexton_demos.telling import MIDNIGHT


class Time(int):
    """An instant that counts the questions "is it earlier?" and "is it later?"."""

    asked = 0

    def __lt__(self, other: int) -> bool:
        Time.asked += 1
        return int.__lt__(self, other)

    def __le__(self, other: int) -> bool:
        Time.asked += 1
        return int.__le__(self, other)

    def __gt__(self, other: int) -> bool:
        Time.asked += 1
        return int.__gt__(self, other)


class Crowd:
    """So many jobs; each is due again after as many seconds as there are jobs."""

    def __init__(self, size: int) -> None:
        self._schedules: dict[str, Schedule] = {
            f"job-{number:05}": build(
                ScheduleSpec(timing=EveryTiming(period_ns=size * SECOND, offset_ns=number * SECOND))
            )
            for number in range(size)
        }

    def due(self) -> dict[str, Instant]:
        """Gives when each job is due first."""
        return {job: self.after(job, MIDNIGHT) for job in self._schedules}

    def after(self, job: str, now: Instant) -> Instant:
        """Gives when a job is due next."""
        due = self._schedules[job].next_after(now)
        assert due is not None, "an interval goes on for ever"
        return Time(due)


Tick = Callable[[Instant], tuple[list[str], int]]
"""Gives the jobs that are due now, and how many jobs it has looked at to know."""


class Count(NamedTuple):
    """What a tick costs, on average."""

    looked: float
    compared: float


def count(tick: Tick, ticks: int = 100) -> Count:
    """Lets so many seconds pass."""
    looked, Time.asked = 0, 0
    for number in range(1, ticks + 1):
        done, found = tick(MIDNIGHT + number * SECOND)
        assert len(done) == 1, "one job is due each second"
        looked += found
    return Count(looked / ticks, Time.asked / ticks)


def look_at_every_job(crowd: Crowd) -> Tick:
    """The loop of the first two stages."""
    due = crowd.due()

    def tick(now: Instant) -> tuple[list[str], int]:
        done = [job for job, at in due.items() if at <= now]
        for job in done:
            due[job] = crowd.after(job, now)
        return done, len(due)

    return tick
