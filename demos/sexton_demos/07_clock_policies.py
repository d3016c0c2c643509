"""Clock policies: what becomes of times that have passed, that collide, or that do not exist."""

from __future__ import annotations

from math import ceil
from typing import Final
from zoneinfo import ZoneInfo

from google.protobuf.duration_pb2 import Duration

from sexton.v1 import job_pb2 as pb
from sexton_core.instants import HOUR, MINUTE, SECOND, Instant, parse_instant, to_datetime
from sexton_core.schedule import between
from sexton_core.schedules import CronTiming, ScheduleSpec, build
from sexton_demos.telling import MIDNIGHT, Numbers, Page, Told, clock
from sexton_demos.town import Attempt, Town, every

OFF: Final[Instant] = MIDNIGHT + 2 * MINUTE + 30 * SECOND
ON: Final[Instant] = OFF + 2 * HOUR
MOST_CAUGHT_UP: Final = 10
CATCH_UPS = {
    "none": "what is past is past",
    "latest": "one run, for the newest (the default)",
    "earliest": "one run, for the oldest within an hour",
    "all": f"each of the last hour, but {MOST_CAUGHT_UP} at most",
}
OVERLAPS = {
    "skip": "the default",
    "buffer_one": "one waits",
    "buffer_all": "all wait in line",
    "cancel_other": "the newer one wins, politely",
    "terminate_other": "the newer one wins",
    "allow_all": "beside each other",
}

# What is played -------------------------------------------------------------------------------


async def power_failure(town: Town) -> None:
    """Four jobs are due every minute; the whole town is without power for two hours."""
    await town.until(OFF - MINUTE)
    for policy in CATCH_UPS:
        catch_up = pb.CatchUp(window=Duration(seconds=3600), max=MOST_CAUGHT_UP)
        catch_up.policy = pb.CatchUp.Policy.Value(f"POLICY_{policy.upper()}")
        overlap = pb.OVERLAP_POLICY_ALLOW_ALL
        await town.create(policy, schedules=every(60), catch_up=catch_up, overlap=overlap)
    await town.until(OFF)
    town.stop_all()
    await town.until(ON)
    town.start_all()
    await town.until(ON + 20 * SECOND)


async def too_long(town: Town) -> None:
    """Six jobs are due every ten seconds, and take twenty-five."""
    await town.until(MIDNIGHT + 5 * SECOND)
    for policy in OVERLAPS:
        overlap = pb.OverlapPolicy.Value(f"OVERLAP_POLICY_{policy.upper()}")
        name = policy.replace("_", "-")
        await town.create(name, lasts_s=25, schedules=every(10), overlap=overlap)
    await town.until(MIDNIGHT + MINUTE + 5 * SECOND)


async def wrong_clocks(town: Town) -> None:
    """One coordinator's clock is five minutes fast, the other's slow; the first to lead dies."""
    for name, minutes in (("coordinator-0", 5), ("coordinator-1", -5), ("worker-0", 60)):
        town.host(name).machine.jump_wall(minutes * MINUTE)
    await town.until(MIDNIGHT + 5 * SECOND)
    await town.create("bell", schedules=every(10))
    await town.until(MIDNIGHT + 29 * SECOND + SECOND // 5)
    town.kill(await town.leader())
    await town.until(MIDNIGHT + MINUTE + 5 * SECOND)


# The story ------------------------------------------------------------------------------------


def tell() -> Told:
    """Tells the stage."""
    page = Page()
    tell_downtime(page)
    tell_overlap(page)
    tell_skew(page)
    doubled, lost = tell_daylight_saving(page)
    page.say(
        "",
        "NO WALL IS LEFT IN THIS STORY, but a story proves nothing: its deaths were chosen. In",
        "`sexton-sim --seeds 100` dice choose them, and a checker judges what happened.",
    )
    return page.told(after=Numbers(doubled=doubled, lost=lost))


def tell_downtime(page: Page) -> None:
    """Tells what the policies make of two hours without power."""
    town = Town.show(power_failure)
    page.say(
        f"Everything is off from {clock(OFF)} to {clock(ON)}. Four jobs were due every minute:"
    )
    rows = []
    for policy, meaning in CATCH_UPS.items():
        runs = [it for it in town.attempts() if it.job == policy and it.began > OFF]
        missed = town.not_run(policy)
        rows.append((policy, len(runs), sum(each.times for each in missed), len(missed), meaning))
    page.table(("catch_up", "runs", "missed", "records", ""), rows)
    page.say(
        "  Each time is a run or is in a record that says why not: what is passed over is a range."
    )


def tell_overlap(page: Page) -> None:
    """Tells what the policies make of runs that last longer than their period."""
    town = Town.show(too_long, slots=20)
    page.say("", "Due every 10 s, and a run takes 25 s. After a minute, six times have come:")
    rows = []
    for policy, meaning in OVERLAPS.items():
        name = policy.replace("_", "-")
        runs = [attempt for attempt in town.attempts() if attempt.job == name]
        cut = sum(attempt.how in ("cancelled", "killed") for attempt in runs)
        skipped = sum(each.times for each in town.not_run(name))
        rows.append((policy, len(runs), at_once(runs), cut, skipped, meaning))
    page.table(("overlap", "begun", "at once", "cut short", "not run", ""), rows)


def tell_skew(page: Page) -> None:
    """Tells what wrong clocks do."""
    town = Town.show(wrong_clocks)
    after_s = [(each.began - nominal_of(each)) / SECOND for each in town.attempts()]
    page.say(
        "",
        "Two coordinators, their clocks five minutes fast and five slow; the leader is killed.",
    )
    page.conclude(
        f"{len(after_s)} bells of 6, {sum(it < 0 for it in after_s)} of them early. The latest came"
        f" less than {ceil(max(after_s))} s late, at the takeover, the others within"
        f" {sorted(after_s)[-2]:.1f} s: what is due is due by the store's time, and the store"
        " refuses what comes too early."
    )


def tell_daylight_saving(page: Page) -> tuple[int, int]:
    """Tells about the nights in which clocks change; gives what was doubled and lost."""
    page.say("", "`30 2 * * *` in Europe/Berlin, in the two nights in which the clocks change:")
    berlin = ZoneInfo("Europe/Berlin")
    backup = build(
        ScheduleSpec(timing=CronTiming(expression="30 2 * * *"), timezone="Europe/Berlin")
    )
    doubled = lost = 0
    for day, why in (("2027-03-28", "no 02:30 exists"), ("2027-10-31", "the first of two 02:30")):
        begin = parse_instant(f"{day}T00:00:00Z") - 2 * HOUR
        times = [*between(backup, begin, begin + 24 * HOUR, 10)]
        doubled, lost = doubled + max(0, len(times) - 1), lost + (not times)
        local = [to_datetime(instant).astimezone(berlin) for instant in times]
        page.say(f"  {day}  {len(times)} run: {' '.join(f'{it:%H:%M %z}' for it in local)}, {why}")
    return doubled, lost


def at_once(attempts: list[Attempt]) -> int:
    """Gives the most attempts that were at work together."""
    return max(
        sum(it.began <= other.began and (it.ended or ON) > other.began for it in attempts)
        for other in attempts
    )


def nominal_of(attempt: Attempt) -> Instant:
    """Reads the nominal time in a run's id: `t20261201T000010Z-...`."""
    stamp = attempt.run_id[1:17]
    text = f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:11]}:{stamp[11:13]}:{stamp[13:]}"
    return parse_instant(text)
