"""How many runs are due per minute, over all jobs: the herd before it comes."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from sexton_core.cron import CronSpec, may_hash, parse
from sexton_core.instants import MINUTE, Instant, format_instant
from sexton_core.schedule import ScheduleWarning, between
from sexton_core.schedules.build import JobSchedule
from sexton_core.schedules.spec import CronTiming, Timing
from sexton_core.words import WarningKind

MAX_COUNTED: Final = 1_000_000
"""Runs that one forecast looks at; it says so when there are more."""

HERD: Final = 10
"""Jobs due in one round minute that are worth a warning."""

_NAMED: Final = 5
_ROUND_MINUTES: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A minute and the runs that are due in it."""

    minute: Instant
    runs: int
    jobs: int
    names: tuple[str, ...]
    """Some of the jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The load of a stretch of time."""

    peaks: tuple[Peak, ...]
    """The fullest minutes, fullest first; equal ones in order of time."""
    herd: Peak | None
    """The round minute in which the most jobs are due whose minutes `H` does not draw; only they
    are counted and named."""
    runs: int
    complete: bool
    """False where `MAX_COUNTED` ended the count."""


def forecast(
    jobs: Iterable[tuple[str, JobSchedule]], a: Instant, b: Instant, *, most: int = 10
) -> Forecast:
    """Counts what is due in (a, b], jitter included, and returns the `most` fullest minutes."""
    runs: dict[int, int] = {}
    names: dict[int, list[str]] = {}
    jobs_at: dict[int, int] = {}
    herd_at: dict[int, list[str]] = {}
    total = 0
    for name, schedule in jobs:
        last = None
        spread = _is_spread(schedule)
        for nominal in between(schedule, a, b, MAX_COUNTED - total):
            minute = schedule.due_at(nominal) // MINUTE
            total += 1
            runs[minute] = runs.get(minute, 0) + 1
            if minute != last:
                jobs_at[minute] = jobs_at.get(minute, 0) + 1
                if jobs_at[minute] <= _NAMED:
                    names.setdefault(minute, []).append(name)
                # What people think of first: whole, half and quarter hours.
                if not spread and minute % _ROUND_MINUTES == 0:
                    herd_at.setdefault(minute, []).append(name)
                last = minute

    def peak(minute: int) -> Peak:
        return Peak(
            minute=minute * MINUTE,
            runs=runs[minute],
            jobs=jobs_at[minute],
            names=tuple(names[minute]),
        )

    fullest = sorted(runs, key=lambda minute: (-runs[minute], minute))[:most]
    herd = min(herd_at, key=lambda minute: (-len(herd_at[minute]), minute), default=None)
    return Forecast(
        peaks=tuple(peak(minute) for minute in fullest),
        herd=None if herd is None else replace(peak(herd), **_herd(herd_at[herd])),
        runs=total,
        complete=total < MAX_COUNTED,
    )


def _herd(names: list[str]) -> dict[str, Any]:
    return {"jobs": len(names), "names": tuple(names[:_NAMED])}


def _is_spread(schedule: JobSchedule) -> bool:
    """Tells whether a job's minutes are drawn from its name already: there is nothing to advise."""
    return all(_draws_its_minute(part.spec.timing) for part in schedule.parts)


def _draws_its_minute(timing: Timing) -> bool:
    if not isinstance(timing, CronTiming) or not may_hash(timing.expression):
        return False
    spec = parse(timing.expression, seed="any job's")
    return isinstance(spec, CronSpec) and may_hash(spec.minute.text)


def herd_warnings(found: Forecast) -> list[ScheduleWarning]:
    """Returns a warning where many jobs are due in one round minute."""
    herd = found.herd
    if herd is None or herd.jobs < HERD:
        return []
    message = (
        f"{herd.jobs:,} jobs are due in the minute of {format_instant(herd.minute)} "
        f"({', '.join(herd.names)}, ...): spread them with `H` or `jitter`"
    )
    return [ScheduleWarning(WarningKind.HERD, message)]
