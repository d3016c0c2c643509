"""How fast next times are found, and how fast an outage of ten years is decided."""

import gc
import resource
import sys
from statistics import median
from time import perf_counter
from typing import Final

from sexton_core.instants import DAY, SECOND, Instant, parse_instant
from sexton_core.policy import CatchUp, Definition, Job, create, decide
from sexton_core.schedules import (
    CronTiming,
    EveryTiming,
    JobIdentity,
    JobSchedule,
    ScheduleCache,
    ScheduleSpec,
)
from sexton_core.words import CatchUpPolicy

_NOW: Final[Instant] = parse_instant("2026-11-29T03:00:00Z")
_ZONES: Final = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney")
_STEPS: Final = 3
"""How often each job asks for its next time, one after the other."""


_CATCH_UPS: Final = 21


def measure(jobs: int, schedules: int) -> dict[str, float | int]:
    """Measures `jobs` jobs that share `schedules` distinct schedules.

    Returns:
        What was measured, by name, with the unit last.

    """
    specs = [_spec(index) for index in range(schedules)]
    before = _resident_bytes()
    gc.collect()
    began = perf_counter()
    cache = ScheduleCache(capacity=max(schedules, 1))
    built: list[JobSchedule] = [
        cache.build(
            specs[index % schedules],
            JobIdentity(namespace="default", name=f"j{index}", uid=str(index)),
        )
        for index in range(jobs)
    ]
    loading = perf_counter() - began
    grown = _resident_bytes() - before
    # Jobs stand at different times, as they do in a mesh.
    cursors = [_NOW + index % 3_600 * SECOND for index in range(jobs)]
    began = perf_counter()
    for _ in range(_STEPS):
        cursors = [
            due if (due := schedule.next_after(t)) is not None else t
            for schedule, t in zip(built, cursors, strict=True)
        ]
    asking = perf_counter() - began
    return {
        "jobs": jobs,
        "distinct_schedules": len(set(specs)),
        "load_s": round(loading, 3),
        "bytes_per_job": round(grown / jobs),
        "next_times": jobs * _STEPS,
        "next_times_s": round(asking, 3),
        "next_times_per_s": round(jobs * _STEPS / asking),
        "distinct_next_us": round(_distinct_us(specs), 2),
        "catch_up_ten_years_ms": round(_catch_up_ms(), 3),
    }


def _spec(index: int) -> ScheduleSpec:
    """Returns one of a mix: daily, hourly, every few minutes, weekly, elapsed; in five zones.

    No two of the first 86,400 are equal.
    """
    second, minute, hour = index // 1_440 % 60, index % 60, index // 60 % 24
    zone = _ZONES[index % len(_ZONES)]
    kinds = (
        CronTiming(expression=f"{second} {minute} {hour} * * *"),
        CronTiming(expression=f"{second} {minute} {hour}-23 * * *"),
        CronTiming(expression=f"{second} {minute}/{2 + index % 13} {hour}-23 * * *"),
        CronTiming(expression=f"{second} {minute} {hour} * * {index % 7}"),
        EveryTiming(period_ns=(30 + index) * SECOND),
    )
    return ScheduleSpec(timing=kinds[index // len(_ZONES) % len(kinds)], timezone=zone)


def _distinct_us(specs: list[ScheduleSpec]) -> float:
    """Returns the time of one answer that nothing remembers, in microseconds."""
    cache = ScheduleCache(capacity=len(specs))
    job = JobIdentity(namespace="default", name="job", uid="")
    plain = [cache.build(spec, job).parts[0].unfiltered for spec in specs]
    began = perf_counter()
    asked = 0
    for schedule in plain:
        t: Instant | None = _NOW
        for _ in range(20):
            if t is None:
                break
            t = schedule.next_after(t)
            asked += 1
    return (perf_counter() - began) / asked * 1e6


def _catch_up_ms() -> float:
    """Returns the median time to decide about ten years of a job of every second, in ms."""
    spec = ScheduleSpec(timing=CronTiming(expression="* * * * * *"), timezone="Europe/Berlin")
    uid = "a" * 24
    identity = JobIdentity(namespace="default", name="seconds", uid=uid)
    schedule = ScheduleCache().build(spec, identity)
    definition = Definition(
        version=1,
        schedule=schedule.nominal,
        catch_up=CatchUp(policy=CatchUpPolicy.ALL, window_ns=60 * SECOND),
    )
    job = Job(
        namespace="default", name="seconds", uid=uid, created_at=_NOW, definitions=(definition,)
    )
    state = create(job, _NOW).state
    elapsed = []
    for _ in range(_CATCH_UPS):
        began = perf_counter()
        verdict = decide(job, state, _NOW + 3_652 * DAY)
        elapsed.append(perf_counter() - began)
        assert verdict.runs, "the newest are started"
    return median(elapsed) * 1e3


def _resident_bytes() -> int:
    """Returns the most memory that the process has had; kibibytes on Linux, bytes on macOS."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
