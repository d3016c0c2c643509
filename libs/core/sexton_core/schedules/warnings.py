"""What may surprise the writer of a schedule, found before it is applied."""

from itertools import islice, pairwise
from typing import Final

from sexton_core.cron import CronSchedule, cron_warnings, in_words
from sexton_core.dst import WallTimes
from sexton_core.instants import DAY, Duration, Instant, format_duration, format_instant
from sexton_core.schedule import ScheduleWarning, between
from sexton_core.schedules._rrule_text import parse_recurrence
from sexton_core.schedules.build import JobSchedule, Part, wall_second
from sexton_core.schedules.every import EverySchedule
from sexton_core.schedules.rrule import RRuleSchedule
from sexton_core.schedules.spec import AtTiming, EveryTiming, RRuleTiming
from sexton_core.schedules.walls import ListedWalls, WallSchedule
from sexton_core.words import WarningKind

HORIZON_NS: Final = 400 * DAY
"""How far ahead changes of the clock are looked for."""

_MOST_CHANGES: Final = 4
"""Changes of the clock reported per schedule."""

_LOOKED_AT: Final = 1_000
"""Nominal times whose distances are measured."""


def warnings_of(
    schedule: JobSchedule, now: Instant, *, run_time_ns: Duration | None = None
) -> list[ScheduleWarning]:
    """Returns what may surprise about a job's schedule in the 400 days after `now`.

    Args:
        schedule: of the job.
        now: from here on.
        run_time_ns: how long a run is expected to take; None: unknown.
    """
    if schedule.next_after(now) is None:
        message = f"no time is left after {format_instant(now)}: {schedule.explain()}"
        return [ScheduleWarning(WarningKind.NEVER_FIRES, message)]
    found: list[ScheduleWarning] = []
    for number, part in enumerate(schedule.parts, start=1):
        if part.schedule.next_after(now) is None:
            message = f"schedule {number} never fires again: {part.schedule.explain()}"
            found.append(ScheduleWarning(WarningKind.NEVER_FIRES, message))
        else:
            found.extend(_warnings_of_part(part, now))
    found.extend(_distances(schedule, now, run_time_ns))
    return list(dict.fromkeys(found))


def shortest_distance(schedule: JobSchedule, now: Instant) -> Duration | None:
    """Returns the shortest time between two of the next 1,000 nominal times, None below two."""
    times = list(between(schedule, now, now + HORIZON_NS, _LOOKED_AT))
    return min((b - a for a, b in pairwise(times)), default=None)


def zone_is_missing(part: Part) -> bool:
    """Tells whether a schedule has wall times or calendars and no zone to read them in."""
    timing = part.spec.timing
    if part.spec.timezone is not None:
        return False
    if isinstance(timing, EveryTiming):
        return bool(part.exclusions)
    if isinstance(timing, AtTiming):
        return bool(timing.walls or part.exclusions)
    if isinstance(timing, RRuleTiming):
        return parse_recurrence(timing.text).timezone is None
    if isinstance(part.timing, CronSchedule):
        return part.timing.spec.zone is None
    # A cron expression may be `@every`.
    return not isinstance(part.timing, EverySchedule) or bool(part.exclusions)


def wall_sets(part: Part) -> tuple[WallTimes, ...]:
    """Returns the wall times that a schedule asks for; none where it asks for instants only."""
    timing = part.spec.timing
    if isinstance(timing, AtTiming):
        return (ListedWalls(wall_second(wall) for wall in timing.walls),)
    if isinstance(part.timing, RRuleSchedule):
        return part.timing.walls
    if isinstance(part.timing, CronSchedule | WallSchedule):
        return (part.timing.walls,)
    return ()


def _warnings_of_part(part: Part, now: Instant) -> list[ScheduleWarning]:
    found: list[ScheduleWarning] = []
    if zone_is_missing(part):
        what = "wall times" if wall_sets(part) else "calendars"
        message = f"no timezone is given: {what} are read as UTC"
        found.append(ScheduleWarning(WarningKind.NO_ZONE, message))
    horizon_ns = HORIZON_NS
    if part.spec.end is not None:
        horizon_ns = max(min(horizon_ns, part.spec.end - now), 0)
    if isinstance(part.timing, CronSchedule):
        found.extend(cron_warnings(part.timing))
    timing = part.timing
    if isinstance(part.spec.timing, AtTiming) and part.spec.timing.walls:
        timing = WallSchedule(wall_sets(part)[0], part.zone, part.spec.dst, "")
    if isinstance(timing, CronSchedule | WallSchedule | RRuleSchedule):
        for met in islice(timing.disturbances(now, horizon_ns), _MOST_CHANGES):
            kind = WarningKind.CLOCK_GAP if met.skipped else WarningKind.CLOCK_FOLD
            found.append(ScheduleWarning(kind, in_words(met, part.zone, part.spec.dst)))
    return found


def _distances(
    schedule: JobSchedule, now: Instant, run_time_ns: Duration | None
) -> list[ScheduleWarning]:
    found: list[ScheduleWarning] = []
    if run_time_ns is None and not schedule.jitter_ns:
        return found
    shortest = shortest_distance(schedule, now)
    if shortest is None:
        return found
    if run_time_ns is not None and shortest < run_time_ns:
        found.append(
            ScheduleWarning(
                WarningKind.TOO_OFTEN,
                f"fires after {format_duration(shortest)} while a run takes "
                f"{format_duration(run_time_ns)}: `overlap` decides what becomes of the next one",
            )
        )
    if schedule.jitter_ns >= shortest:
        found.append(
            ScheduleWarning(
                WarningKind.JITTER_CLIPPED,
                f"jitter of {format_duration(schedule.jitter_ns)} is longer than the shortest "
                f"interval, {format_duration(shortest)}, and ends before the next nominal time",
            )
        )
    return found
