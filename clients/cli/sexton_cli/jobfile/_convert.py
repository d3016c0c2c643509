"""From the models of a job file to the core's specifications and policies."""

from datetime import datetime
from typing import Any

from sexton_cli.jobfile import models
from sexton_core.policy import CatchUp, Retention
from sexton_core.runs.policy import RunPolicy
from sexton_core.runs.retry import Retry
from sexton_core.schedules import (
    AnySpec,
    AtTiming,
    CalendarSpec,
    CalendarTiming,
    CalendarUnit,
    CronTiming,
    EveryTiming,
    RRuleTiming,
    ScheduleSpec,
    UnionSpec,
)
from sexton_core.schedules.spec import Timing
from sexton_core.words import Delivery


def spec_of(job: models.Job, calendars: dict[str, models.Calendar]) -> AnySpec | None:
    """Returns the job's schedules as one specification, None where it has none."""
    if job.schedule is not None:
        return _schedule(job.schedule, calendars)
    if not job.schedules:
        return None
    parts = tuple(_schedule(each, calendars) for each in job.schedules)
    return parts[0] if len(parts) == 1 else UnionSpec(parts=parts)


def _schedule(schedule: models.Schedule, calendars: dict[str, models.Calendar]) -> ScheduleSpec:
    return ScheduleSpec(
        timing=_timing(schedule),
        timezone=schedule.timezone,
        dst=schedule.dst,
        exclude=tuple(calendar_of(calendars[name]) for name in schedule.exclude),
        start=schedule.start,
        end=schedule.end,
        max_runs=schedule.max_runs,
        jitter_ns=schedule.jitter or 0,
    )


def _timing(schedule: models.Schedule) -> Timing:
    if schedule.cron is not None:
        return CronTiming(expression=schedule.cron, days=schedule.days)
    if schedule.every is not None:
        return EveryTiming(
            period_ns=schedule.every, offset_ns=schedule.offset or 0, anchor=schedule.anchor
        )
    if schedule.calendar_interval is not None:
        return _calendar_interval(schedule.calendar_interval)
    if schedule.at is not None:
        return AtTiming(
            instants=tuple(each for each in schedule.at if not isinstance(each, datetime)),
            walls=tuple(each for each in schedule.at if isinstance(each, datetime)),
        )
    assert schedule.rrule is not None, "the model has exactly one kind"
    return RRuleTiming(text=schedule.rrule)


def _calendar_interval(interval: models.CalendarInterval) -> CalendarTiming:
    (unit,) = (unit for unit in CalendarUnit if getattr(interval, unit.value) is not None)
    return CalendarTiming(
        count=getattr(interval, unit.value),
        unit=unit,
        at=interval.at,
        anchor=interval.anchor,
        short_month=interval.short_month,
    )


def calendar_of(calendar: models.Calendar) -> CalendarSpec:
    """Returns the core's specification of a calendar."""
    return CalendarSpec(
        name=calendar.name,
        dates=tuple(calendar.dates),
        ranges=tuple(calendar.ranges),
        weekdays=tuple(calendar.weekdays),
        crons=tuple(calendar.crons),
    )


def catch_up_of(job: models.Job) -> CatchUp:
    """Returns the core's catch-up rules; what the file does not give has the core's default."""
    part = job.catch_up
    return CatchUp(
        **_given(
            policy=part.policy,
            window_ns=part.window,
            max_starts=part.max,
            late_after_ns=part.late_after,
        )
    )


def run_policy_of(job: models.Job) -> RunPolicy:
    """Returns the core's rules for single runs."""
    part = job.retry
    retry = None
    if part is not None:
        attempts = part.max_attempts
        if attempts is None and job.delivery is Delivery.AT_MOST_ONCE:
            attempts = 1
        retry = Retry(
            **_given(
                max_attempts=attempts,
                initial_backoff_ns=part.initial_backoff,
                multiplier=part.multiplier,
                max_backoff_ns=part.max_backoff,
                jitter=part.jitter,
            )
        )
    return RunPolicy(
        **_given(
            queue=job.queue,
            priority=job.priority,
            delivery=job.delivery,
            exclusive=job.exclusive,
            retry=retry,
            max_deliveries=None if part is None else part.max_deliveries,
            timeout_ns=job.timeout,
            deadline_ns=job.deadline,
            start_within_ns=job.start_within,
        )
    )


def retention_of(job: models.Job) -> Retention:
    """Returns the core's rules for history."""
    return Retention(**_given(max_age_ns=job.retention.max_age, max_runs=job.retention.max_runs))


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
