"""The loop: what is due, do it, when next."""

from __future__ import annotations

import asyncio

from sexton_core.instants import DAY, HOUR, MINUTE, SECOND
from sexton_demos.telling import MIDNIGHT, Numbers, Page, Told, clock, plural
from sexton_demos.tower import JOBS, SCHEDULES, Run, Tower
from sexton_sim.process import Process

WORK_NS = 5 * MINUTE
"""The sexton climbs the tower, rings, and climbs down again."""

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
    page.say(
        "",
        "The loop asks the plan instead: what is due, do it, when next. Now with three jobs.",
    )
    steady = Tower()
    steady.begin(what_is_due)
    steady.until((DAY + SECOND, lambda: None))
    for run in steady.runs[:4]:
        page.at(run.at, run.job)
    page.say("  ...")
    page.conclude(
        f"{plural(len(steady.runs), 'run')} in a day, {len(steady.lost('bell'))} hours without a"
        f" bell. It woke up {steady.ticks} times and slept in between: the next time follows from"
        " the last nominal time, never from when the work was done."
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
    forgotten = forgetful.lost(*JOBS)
    for at, job in forgotten:
        page.at(at, f"{job} is due, and nobody is there")
    page.at(MIDNIGHT + light, "it is back. What is due? Nothing: the next bell is at 07:00")
    page.say(f"  {plural(len(forgotten), 'run')} lost, and nothing in the world knows of them.")
    return page.told(
        before=Numbers(lost=len(lost)),
        after=Numbers(
            looked=steady.looked / steady.ticks,
            doubled=steady.doubled(*JOBS),
            lost=len(steady.lost(*JOBS)),
        ),
        wall=Numbers(lost=len(forgotten)),
    )
