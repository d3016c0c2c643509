"""The next times of a schedule with what is special about each: what will be, before it is."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sexton_core.cron import CronSchedule, day_rule_in_words
from sexton_core.errors import ScheduleError
from sexton_core.instants import MAX_INSTANT, SECOND, Duration, Instant
from sexton_core.schedule import ScheduleWarning, between
from sexton_core.schedules.build import JobSchedule, Part
from sexton_core.schedules.warnings import wall_sets, warnings_of
from sexton_core.zones import tzdata_version

MAX_ROWS: Final = 10_000

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - wall time, which has no offset


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRow:
    """One nominal time, or a stretch of them that calendars take away."""

    nominal: Instant
    due: Instant
    """With jitter. Without a job it is an example: jitter depends on the job's uid."""
    local: datetime
    """The nominal time on the clock of the schedule that asks for it."""
    zone: str
    notes: tuple[str, ...] = ()
    excluded_by: str | None = None
    """The calendar, where nothing runs."""
    excluded_until: Instant | None = None
    """The last excluded time of the stretch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What is known about a schedule after an instant."""

    explanation: str
    rows: tuple[PreviewRow, ...]
    rules: tuple[str, ...]
    """How day of month and day of week were joined, where both are given."""
    warnings: tuple[ScheduleWarning, ...]
    tzdata: str
    """The release of the time zone data that all of it was computed from."""


def preview(
    schedule: JobSchedule,
    after: Instant,
    count: int,
    *,
    run_time_ns: Duration | None = None,
) -> Preview:
    """Returns the next `count` nominal times after an instant, and the excluded ones between.

    Raises:
        ScheduleError: the count is not between 0 and `MAX_ROWS`.
    """
    if not 0 <= count <= MAX_ROWS:
        raise ScheduleError("count", count, f"a number from 0 to {MAX_ROWS:,}")
    rows: list[PreviewRow] = []
    t = after
    for nominal in between(schedule, after, MAX_INSTANT, count):
        rows.extend(_excluded(schedule, t, nominal))
        rows.append(_row(schedule, nominal))
        t = nominal
    rules = [
        day_rule_in_words(part.timing)
        for part in schedule.parts
        if isinstance(part.timing, CronSchedule) and part.timing.spec.both_days
    ]
    return Preview(
        explanation=schedule.explain(),
        rows=tuple(rows),
        rules=tuple(rules),
        warnings=tuple(warnings_of(schedule, after, run_time_ns=run_time_ns)),
        tzdata=tzdata_version(),
    )


def _row(schedule: JobSchedule, nominal: Instant) -> PreviewRow:
    part = next(p for p in schedule.parts if p.schedule.next_after(nominal - 1) == nominal)
    return PreviewRow(
        nominal=nominal,
        due=schedule.due_at(nominal),
        local=part.zone.local(nominal),
        zone=part.zone.key,
        notes=tuple(_notes(part, nominal)),
    )


def _excluded(schedule: JobSchedule, a: Instant, b: Instant) -> list[PreviewRow]:
    if schedule.unfiltered is None:
        return []
    first = schedule.unfiltered.next_after(a)
    if first is None or first >= b:
        return []
    last = schedule.unfiltered.previous_before(b)
    span = schedule.excluded_at(first)
    part = next(p for p in schedule.parts if p.unfiltered.next_after(first - 1) == first)
    return [
        PreviewRow(
            nominal=first,
            due=first,
            local=part.zone.local(first),
            zone=part.zone.key,
            excluded_by=span.calendar if span else "a calendar",
            excluded_until=last,
        )
    ]


def _notes(part: Part, nominal: Instant) -> list[str]:
    """Returns what the clock does at the nominal time of a schedule of wall times."""
    sets = wall_sets(part)
    second = nominal // SECOND
    wall = part.zone.wall(second)
    if any(walls.at_or_after(wall) == wall for walls in sets):
        showing = part.zone.seconds_showing(wall)
        if len(showing) < 2:
            return []
        which = "first" if second == showing[0] else "second"
        return [f"the clock shows this time twice: {which} pass"]
    segment = part.zone.segment(second)
    if not segment.gap or second >= segment.start + segment.gap:
        return []
    # On the clock of before the jump: the time itself under `shift`, the gap's first one else.
    skipped = [
        found
        for walls in sets
        if (found := walls.at_or_after(second + segment.before)) is not None
        and found < segment.start + segment.offset
    ]
    if not skipped:
        return []
    return [f"the clock skips {_EPOCH + timedelta(seconds=min(skipped)):%H:%M:%S}"]
