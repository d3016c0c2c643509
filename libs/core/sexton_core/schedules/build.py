"""From a specification to a schedule that can be asked."""

from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Final, TypeAlias

from sexton_core.cron import CronSchedule, EveryMacro, build_cron, may_hash, parse
from sexton_core.dst import resolve
from sexton_core.errors import NeverFiresError, ScheduleError
from sexton_core.instants import MIN_INSTANT, SECOND, Instant, format_duration
from sexton_core.schedule import Schedule
from sexton_core.schedules.at import AtSchedule
from sexton_core.schedules.bounds import Bounded, Limited, check_bounds
from sexton_core.schedules.calendar_interval import CalendarIntervalWalls, explain_interval
from sexton_core.schedules.calendars import (
    CronExclusion,
    DayExclusion,
    Excluding,
    Exclusion,
    Span,
    check_calendar,
)
from sexton_core.schedules.every import EverySchedule
from sexton_core.schedules.jitter import MAX_JITTER, delay_of
from sexton_core.schedules.memo import Memo
from sexton_core.schedules.rrule import RRuleSchedule
from sexton_core.schedules.spec import (
    AnySpec,
    AtTiming,
    CalendarSpec,
    CalendarTiming,
    CronTiming,
    EveryTiming,
    JobIdentity,
    RRuleTiming,
    ScheduleSpec,
)
from sexton_core.schedules.union import Union
from sexton_core.schedules.walls import WallSchedule
from sexton_core.words import DayRule
from sexton_core.zones import Zone, get_zone

MAX_CACHED: Final = 16_384
"""Schedules that a cache keeps, the most recently asked for."""

_Built: TypeAlias = tuple[tuple["Part", ...], Schedule, Schedule | None]


@dataclass(frozen=True, slots=True)
class Part:
    """One schedule of a job, taken apart for those who explain and warn."""

    spec: ScheduleSpec
    timing: Schedule
    """What the timing asks for, before bounds and calendars."""
    zone: Zone
    schedule: Schedule
    """With bounds, calendars and `max_runs`."""
    unfiltered: Schedule
    """The same with calendars disregarded."""
    exclusions: tuple[Exclusion, ...]


class JobSchedule:
    """The schedule of one job: its nominal times, and when the run of each is due.

    Implements `Schedule`. Get it from `build`, or, where many jobs share few specifications, from
    a `ScheduleCache`.

    nominal: the same as a plain schedule, which equal jobs share.
    unfiltered: what would be asked for without calendars; None where there are none.
    jitter_ns: of all parts.
    """

    __slots__ = ("jitter_ns", "job", "nominal", "parts", "spec", "unfiltered")

    def __init__(
        self,
        spec: AnySpec,
        parts: tuple[Part, ...],
        nominal: Schedule,
        unfiltered: Schedule | None,
        job: JobIdentity | None,
    ) -> None:
        self.spec: Final = spec
        self.parts: Final = parts
        self.nominal: Final = nominal
        self.unfiltered: Final = unfiltered
        self.job: Final = job
        self.jitter_ns: Final = parts[0].spec.jitter_ns

    def next_after(self, t: Instant) -> Instant | None:
        """Returns the first nominal time later than `t`."""
        return self.nominal.next_after(t)

    def previous_before(self, t: Instant) -> Instant | None:
        """Returns the last nominal time earlier than `t`."""
        return self.nominal.previous_before(t)

    def explain(self) -> str:
        """Returns the schedule in English."""
        text = self.nominal.explain()
        if self.jitter_ns:
            text += f", up to {format_duration(self.jitter_ns)} later by jitter"
        return text

    def due_at(self, nominal: Instant) -> Instant:
        """Returns when the run of a nominal time is due: the time itself, or later by jitter.

        Never at or after the next nominal time.
        """
        if not self.jitter_ns:
            return nominal
        uid = self.job.uid if self.job is not None else ""
        return nominal + delay_of(uid, nominal, self.jitter_ns, self.next_after(nominal))

    def excluded_at(self, t: Instant) -> Span | None:
        """Returns the calendar that takes `t` away, None where none does or nobody asks for `t`."""
        if self.nominal.next_after(t - 1) == t:
            return None
        asked = (part for part in self.parts if part.unfiltered.next_after(t - 1) == t)
        spans = (exclusion.span(t) for part in asked for exclusion in part.exclusions)
        return next((span for span in spans if span is not None), None)


def build(spec: AnySpec, job: JobIdentity | None = None) -> JobSchedule:
    """Builds the schedule of a job; without a job, `H` is refused and jitter is a stranger's.

    Raises:
        ScheduleError: a field has a value that can't be used.
        NeverFiresError: no instant at all satisfies it.
    """
    parts = tuple(_build_part(part, job) for part in _parts_of(spec))
    return JobSchedule(spec, parts, *_join(parts), job)


class ScheduleCache:
    """Shares schedules, and what they have answered, among the jobs that have equal ones."""

    def __init__(self, capacity: int = MAX_CACHED) -> None:
        """Starts empty; `capacity` is a number of distinct schedules."""
        assert capacity >= 1, "a cache holds something"
        self._capacity: Final = capacity
        self._shared: OrderedDict[object, _Built] = OrderedDict()

    def build(self, spec: AnySpec, job: JobIdentity) -> JobSchedule:
        """Builds the schedule of a job, from what an equal specification has built before.

        Raises:
            ScheduleError: as `build`.
        """
        key: object = spec
        found = self._shared.get(key)
        if found is None and depends_on_job(spec):
            key = (spec, job)
            found = self._shared.get(key)
        if found is None:
            parts = tuple(_remembering(_build_part(part, job)) for part in _parts_of(spec))
            nominal, unfiltered = _join(parts)
            if len(parts) > 1:
                nominal = Memo(nominal)
            found = self._shared[key] = (parts, nominal, unfiltered)
            if len(self._shared) > self._capacity:
                self._shared.popitem(last=False)
        else:
            self._shared.move_to_end(key)
        return JobSchedule(spec, *found, job)


def _parts_of(spec: AnySpec) -> tuple[ScheduleSpec, ...]:
    if isinstance(spec, ScheduleSpec):
        return (spec,)
    if len({part.jitter_ns for part in spec.parts}) > 1:
        raise ScheduleError(
            "jitter",
            " and ".join(format_duration(part.jitter_ns) for part in spec.parts),
            "the same jitter in all schedules of a job",
        )
    return spec.parts


def _join(parts: tuple[Part, ...]) -> tuple[Schedule, Schedule | None]:
    """Returns what the parts ask for together, and the same without calendars if there are any."""
    if len(parts) == 1:
        part = parts[0]
        return part.schedule, part.unfiltered if part.exclusions else None
    nominal = Union(part.schedule for part in parts)
    if not any(part.exclusions for part in parts):
        return nominal, None
    return nominal, Union(part.unfiltered for part in parts)


def _remembering(part: Part) -> Part:
    return replace(part, schedule=Memo(part.schedule))


def depends_on_job(spec: AnySpec) -> bool:
    """Tells whether jobs with this very specification may have different nominal times."""
    for part in _parts_of(spec):
        if part.max_runs is not None and part.start is None:
            return True
        expressions = [cron for calendar in part.exclude for cron in calendar.crons]
        if isinstance(part.timing, CronTiming):
            expressions.append(part.timing.expression)
        if any(may_hash(expression) for expression in expressions):
            return True
    return False


def _build_part(spec: ScheduleSpec, job: JobIdentity | None) -> Part:
    if not 0 <= spec.jitter_ns <= MAX_JITTER:
        raise ScheduleError(
            "jitter",
            format_duration(spec.jitter_ns),
            f"a duration from 0s to {format_duration(MAX_JITTER)}",
        )
    check_bounds(spec.start, spec.end)
    timing, zone = _build_timing(spec, job)
    unfiltered: Schedule = timing
    if spec.start is not None or spec.end is not None:
        unfiltered = Bounded(timing, start=spec.start, end=spec.end)
    exclusions = tuple(e for c in spec.exclude for e in _exclusions(c, spec, zone, job))
    schedule = unfiltered
    if exclusions:
        schedule = Excluding(unfiltered, exclusions, (c.name for c in spec.exclude))
    if spec.max_runs is not None:
        since = spec.start if spec.start is not None else (job.since if job else MIN_INSTANT)
        counted = schedule
        schedule = Limited(counted, counted, max_runs=spec.max_runs, since=since)
        unfiltered = Limited(unfiltered, counted, max_runs=spec.max_runs, since=since)
    if schedule.next_after(MIN_INSTANT - 1) is None:
        raise NeverFiresError("schedule", schedule.explain(), "one that fires at least once")
    return Part(spec, timing, zone, schedule, unfiltered, exclusions)


def _build_timing(spec: ScheduleSpec, job: JobIdentity | None) -> tuple[Schedule, Zone]:
    timing = spec.timing
    match timing:
        case CronTiming():
            cron = _build_cron(timing, spec, job)
            zone = cron.zone if isinstance(cron, CronSchedule) else _zone(spec)
            return cron, zone
        case EveryTiming():
            anchor = timing.anchor if timing.anchor is not None else spec.start or MIN_INSTANT
            every = EverySchedule(timing.period_ns, offset_ns=timing.offset_ns, anchor=anchor)
            return every, _zone(spec)
        case CalendarTiming():
            zone = _zone(spec)
            first = _anchor(timing, spec, zone)
            walls = CalendarIntervalWalls(timing, first)
            return WallSchedule(walls, zone, spec.dst, explain_interval(timing, first)), zone
        case AtTiming():
            zone = _zone(spec)
            return AtSchedule(_at_instants(timing, spec, zone)), zone
        case RRuleTiming():
            rrule = RRuleSchedule(timing, timezone=spec.timezone, rule=spec.dst, start=spec.start)
            return rrule, rrule.zone


def _build_cron(timing: CronTiming, spec: ScheduleSpec, job: JobIdentity | None) -> Schedule:
    seed = f"{job.namespace}/{job.name}" if job is not None else None
    days = timing.days or DayRule.DEBIAN
    parsed = parse(timing.expression, seed=seed, days=days)
    if isinstance(parsed, EveryMacro):
        if timing.days is not None:
            raise ScheduleError("days", timing.days.value, "none: @every has no day fields")
        return EverySchedule(parsed.period_ns, anchor=spec.start or MIN_INSTANT)
    return build_cron(timing.expression, timezone=spec.timezone, dst=spec.dst, days=days, seed=seed)


def _zone(spec: ScheduleSpec) -> Zone:
    return get_zone(spec.timezone if spec.timezone is not None else "UTC")


def _anchor(timing: CalendarTiming, spec: ScheduleSpec, zone: Zone) -> date:
    if timing.anchor is not None:
        return timing.anchor
    if spec.start is None:
        raise ScheduleError(
            "anchor",
            None,
            "the date that the interval counts from, as 2026-01-05, or a `start`",
        )
    return zone.local(spec.start).date()


def _at_instants(timing: AtTiming, spec: ScheduleSpec, zone: Zone) -> list[Instant]:
    if not timing.instants and not timing.walls:
        raise ScheduleError("at", [], "at least one time")
    instants = list(timing.instants)
    for wall in timing.walls:
        if wall.microsecond or not 1970 <= wall.year <= 2261:
            raise ScheduleError("at", wall.isoformat(), "whole seconds from 1970 to 2261")
        instants += [s * SECOND for s in resolve(zone, wall_second(wall), spec.dst)]
    return instants


def wall_second(wall: datetime) -> int:
    """Returns a naive wall time as wall seconds, the way `zones` counts them."""
    return round(wall.replace(tzinfo=UTC).timestamp())


def _exclusions(
    calendar: CalendarSpec, spec: ScheduleSpec, zone: Zone, job: JobIdentity | None
) -> list[Exclusion]:
    check_calendar(calendar)
    found: list[Exclusion] = []
    if calendar.dates or calendar.ranges or calendar.weekdays or not calendar.crons:
        found.append(DayExclusion(calendar, zone))
    for expression in calendar.crons:
        seed = f"{job.namespace}/{job.name}" if job is not None else None
        cron = build_cron(expression, timezone=zone.key, dst=spec.dst, seed=seed)
        found.append(CronExclusion(calendar.name, cron))
    return found
