"""A machine in a tower, three jobs, and what was done of them in a day: the first world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from sexton_core.instants import DAY, SECOND, Duration, Instant
from sexton_core.schedule import between
from sexton_core.schedules import CronTiming, ScheduleSpec, build
from sexton_demos.telling import MIDNIGHT
from sexton_sim.loop import SimLoop
from sexton_sim.process import Process

JOBS = {"bell": "0 * * * *", "backup": "30 2 * * *", "report": "0 6 * * *"}
SCHEDULES = {name: build(ScheduleSpec(timing=CronTiming(expression=cron), timezone="UTC"))
             for name, cron in JOBS.items()}  # fmt: skip


class Run(NamedTuple):
    """Something was done."""

    job: str
    at: Instant


class Tower:
    """A machine with a clock, and what was done there."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.runs: list[Run] = []
        self.ticks = 0
        self.looked = 0

    def begin(self, idea: Callable[[Tower, Process], Coroutine[Any, Any, None]]) -> Process:
        """Starts a process that follows an idea."""
        process = self.loop.process("sexton")
        process.spawn(idea(self, process))
        return process

    def until(self, *steps: tuple[Duration, Callable[[], object]]) -> None:
        """Lets time pass; at each step something is done to the process."""

        async def pass_time() -> None:
            for after_ns, act in steps:
                await asyncio.sleep(after_ns / SECOND - self.loop.now_ns / SECOND)
                act()

        self.loop.run(pass_time())

    def answers(self, job: str) -> dict[Instant, int]:
        """Counts the runs that answered each nominal time of a day before the next one came."""
        schedule = SCHEDULES[job]
        answers = {}
        for nominal in between(schedule, MIDNIGHT, MIDNIGHT + DAY, 100):
            following = schedule.next_after(nominal)
            assert following is not None
            runs = [run for run in self.runs if run.job == job and nominal <= run.at < following]
            answers[nominal] = len(runs)
        return answers

    def lost(self, *jobs: str) -> list[tuple[Instant, str]]:
        """Gives the nominal times that no run answered."""
        return sorted((at, job) for job in jobs for at, n in self.answers(job).items() if n == 0)

    def doubled(self, *jobs: str) -> int:
        """Counts the runs beyond one for each nominal time."""
        return sum(max(0, n - 1) for job in jobs for n in self.answers(job).values())
