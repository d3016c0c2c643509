"""The loop: what is due, do it, when next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from sexton_core.instants import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from sexton_core.schedule import between
from sexton_core.schedules import CronTiming, ScheduleSpec, build
from sexton_demos.telling import MIDNIGHT, Numbers, Page, Told, clock, plural
from sexton_sim.loop import SimLoop
from sexton_sim.process import Process

JOBS = {"bell": "0 * * * *", "backup": "30 2 * * *", "report": "0 6 * * *"}
WORK_NS = 5 * MINUTE
"""The sexton climbs the tower, rings, and climbs down again."""
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

    def lost(self, job: str, until: Instant = MIDNIGHT + DAY) -> list[Instant]:
        """Gives the nominal times of a day that no run answered before the next one came."""
        schedule = SCHEDULES[job]
        lost = []
        for nominal in between(schedule, MIDNIGHT, until, 100):
            following = schedule.next_after(nominal)
            assert following is not None
            if not any(run.job == job and nominal <= run.at < following for run in self.runs):
                lost.append(nominal)
        return lost


# The ideas ------------------------------------------------------------------------------------


async def work_then_sleep(tower: Tower, process: Process) -> None:
    """What everybody writes first."""
    while True:
        await asyncio.sleep(HOUR / SECOND)
        tower.runs.append(Run("bell", process.clock.wall_ns()))
        await asyncio.sleep(WORK_NS / SECOND)


async def what_is_due(tower: Tower, process: Process) -> None:
    """The loop: what is due, do it, when next."""
    now = process.clock.wall_ns()
    due = {job: schedule.next_after(now) for job, schedule in SCHEDULES.items()}
    while True:
        now = process.clock.wall_ns()
        tower.ticks += 1
        for job, schedule in SCHEDULES.items():
            tower.looked += 1
            nominal = due[job]
            if nominal is not None and nominal <= now:
                tower.runs.append(Run(job, now))
                due[job] = schedule.next_after(nominal)  # from the plan, not from the clock
        soonest = min(nominal for nominal in due.values() if nominal is not None)
        await asyncio.sleep(max(0, soonest - process.clock.wall_ns()) / SECOND)


# The story ------------------------------------------------------------------------------------


def tell() -> Told:
    """Tells the stage."""
    page = Page()
    page.say(
        "A bell is to ring at every full hour; ringing takes five minutes.",
        "",
        'The first thing that everybody writes: "sleep for an hour, then ring".',
    )
    drifting = Tower()
    drifting.begin(work_then_sleep)
    drifting.until((DAY, lambda: None))
    rung = [run.at for run in drifting.runs]
    lost = drifting.lost("bell")
    page.say(f"  it rang at   {'  '.join(clock(at)[:5] for at in rung[:11])}  ...")
    page.say(
        f"  {plural(len(lost), 'hour')} of 24 had no bell: each round is an hour and five minutes."
    )
    page.say("")

    page.say(
        "The loop asks the plan instead: what is due, do it, when next. Now with three jobs.",
    )
    steady = Tower()
    steady.begin(what_is_due)
    steady.until((DAY + SECOND, lambda: None))
    for run in steady.runs[:4]:
        page.at(run.at, run.job)
    kept = steady.lost("bell")
    page.say("  ...")
    page.conclude(
        f"{plural(len(steady.runs), 'run')} in a day, {len(kept)} hours without a bell. It woke up"
        f" {steady.ticks} times and slept in between: the next time follows from the last nominal"
        " time, never from when the work was done."
    )
    page.say("", "THE WALL: everything it knows is in its head. A machine restarts.")
    dark, light = 4 * HOUR + 10 * MINUTE, 6 * HOUR + 5 * MINUTE
    forgetful = Tower()
    process = forgetful.begin(what_is_due)
    forgetful.until(
        (dark, process.crash),
        (light, lambda: forgetful.begin(what_is_due)),
        (DAY + SECOND, lambda: None),
    )
    page.at(MIDNIGHT + dark, "the power fails")
    forgotten = sorted((at, job) for job in JOBS for at in forgetful.lost(job))
    for at, job in forgotten:
        page.at(at, f"{job} is due, and nobody is there")
    page.at(MIDNIGHT + light, "it is back. What is due? Nothing: the next bell is at 07:00")
    page.say(f"  {plural(len(forgotten), 'run')} lost, and nothing in the world knows of them.")
    return page.told(
        before=Numbers(lost=len(lost)),
        after=Numbers(looked=steady.looked / steady.ticks, doubled=0, lost=len(kept)),
        wall=Numbers(lost=len(forgotten)),
    )
