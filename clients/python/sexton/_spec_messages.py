"""Between a job's definition as values and as a message. Nothing is lost either way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, date, datetime, time
from typing import Final

from sexton import jobs, schedules
from sexton._values import (
    EnumWords,
    count,
    datetime_of,
    duration,
    timedelta_of,
    timestamp,
)
from sexton.errors import InvalidArgument, Unimplemented
from sexton.v1 import job_pb2 as pb

OVERLAPS: Final = EnumWords(pb.OverlapPolicy, "OVERLAP_POLICY_")
_CATCH_UPS: Final = EnumWords(pb.CatchUp.Policy, "POLICY_")
_DELIVERIES: Final = EnumWords(pb.Delivery, "DELIVERY_")
_DST: Final = EnumWords(pb.DstRule, "DST_RULE_")
_DAYS: Final = EnumWords(pb.DayRule, "DAY_RULE_")
_SHORT_MONTHS: Final = EnumWords(pb.CalendarInterval.ShortMonth, "SHORT_MONTH_")
_UNITS: Final = {
    schedules.CalendarUnit.DAYS: pb.CalendarInterval.UNIT_DAY,
    schedules.CalendarUnit.WEEKS: pb.CalendarInterval.UNIT_WEEK,
    schedules.CalendarUnit.MONTHS: pb.CalendarInterval.UNIT_MONTH,
    schedules.CalendarUnit.YEARS: pb.CalendarInterval.UNIT_YEAR,
}
_UNIT_OF: Final = {number: unit for unit, number in _UNITS.items()}


def spec_message(spec: jobs.JobSpec) -> pb.JobSpec:
    """Gives the definition's message.

    Raises:
        InvalidArgument: a value that has no message: a datetime without a zone, no JSON, a 0 where
            it would mean the default, another type. Everything else is judged by the mesh.
    """
    if not isinstance(spec, jobs.JobSpec):
        raise InvalidArgument("spec", spec, "a JobSpec")
    try:
        return _spec_message(spec)
    except UnicodeEncodeError as error:
        # Half of a surrogate pair: what comes of undecodable file names, and of cut JSON.
        raise InvalidArgument("spec", error.object, "text that UTF-8 can hold") from None
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise _misfit(spec, error) from None


def _misfit(spec: jobs.JobSpec, error: Exception) -> InvalidArgument:
    """Names the field that no message can be made of: the one that alone fails, too."""
    for field in fields(spec):
        value = getattr(spec, field.name)
        try:
            _spec_message(replace(jobs.JobSpec(task=jobs.ShellTask("")), **{field.name: value}))
        except Exception:  # noqa: BLE001 - whatever it was, it is this field
            return InvalidArgument(f"spec.{field.name}", value, f"{field.type} ({error})")
    return InvalidArgument("spec", spec, f"values of the types that JobSpec declares ({error})")


def _spec_message(spec: jobs.JobSpec) -> pb.JobSpec:
    return pb.JobSpec(
        schedules=[_schedule_message(each) for each in spec.schedules],
        task=_task_message(spec.task),
        queue=spec.queue,
        priority=spec.priority,
        overlap=OVERLAPS.message(spec.overlap),
        max_buffered=count("max_buffered", spec.max_buffered),
        max_live=count("max_live", spec.max_live),
        catch_up=pb.CatchUp(
            policy=_CATCH_UPS.message(spec.catch_up.policy),
            window=None if spec.catch_up.window is None else duration(spec.catch_up.window),
            max=count("catch_up.max", spec.catch_up.max),
            late_after=duration(spec.catch_up.late_after),
        ),
        retry=_retry_message(spec.retry),
        timeout=duration(spec.timeout),
        start_within=None if spec.start_within is None else duration(spec.start_within),
        delivery=_DELIVERIES.message(spec.delivery),
        exclusive=spec.exclusive,
        retention=pb.Retention(
            max_runs=count("retention.max_runs", spec.retention.max_runs),
            max_age=duration(spec.retention.max_age),
        ),
        labels=spec.labels,
        description=spec.description,
        deadline=None if spec.deadline is None else duration(spec.deadline),
    )


def spec_of(message: pb.JobSpec) -> jobs.JobSpec:
    """Gives a definition that the mesh sent, in which every default is written out.

    Raises:
        Unimplemented: it holds something that this version does not know.
    """
    absent = jobs.JobSpec(task=jobs.ShellTask(""))
    catch_up, retention = message.catch_up, message.retention
    return jobs.JobSpec(
        schedules=tuple(_schedule_of(each) for each in message.schedules),
        task=_task_of(message.task),
        queue=message.queue or absent.queue,
        priority=message.priority,
        overlap=OVERLAPS.word(jobs.Overlap, message.overlap, absent.overlap),
        max_buffered=message.max_buffered or absent.max_buffered,
        max_live=message.max_live or absent.max_live,
        catch_up=jobs.CatchUp(
            policy=_CATCH_UPS.word(jobs.CatchUpPolicy, catch_up.policy, jobs.CatchUpPolicy.LATEST),
            window=timedelta_of(catch_up.window) if catch_up.HasField("window") else None,
            max=catch_up.max or absent.catch_up.max,
            late_after=timedelta_of(catch_up.late_after)
            if catch_up.HasField("late_after")
            else absent.catch_up.late_after,
        ),
        retry=_retry_of(message.retry),
        timeout=timedelta_of(message.timeout) if message.HasField("timeout") else absent.timeout,
        deadline=timedelta_of(message.deadline) if message.HasField("deadline") else None,
        start_within=timedelta_of(message.start_within)
        if message.HasField("start_within")
        else None,
        delivery=_DELIVERIES.word(jobs.Delivery, message.delivery, absent.delivery),
        exclusive=message.exclusive,
        retention=jobs.Retention(
            max_runs=retention.max_runs or absent.retention.max_runs,
            max_age=timedelta_of(retention.max_age)
            if retention.HasField("max_age")
            else absent.retention.max_age,
        ),
        labels=dict(message.labels),
        description=message.description,
    )


def _retry_message(retry: jobs.Retry) -> pb.Retry:
    if not retry.multiplier >= 1:
        raise InvalidArgument("retry.multiplier", retry.multiplier, "a number from 1 on")
    attempts = retry.max_attempts
    return pb.Retry(
        max_attempts=0 if attempts is None else count("retry.max_attempts", attempts),
        max_deliveries=count("retry.max_deliveries", retry.max_deliveries),
        initial_backoff=duration(retry.initial_backoff),
        multiplier=retry.multiplier,
        max_backoff=duration(retry.max_backoff),
        jitter=retry.jitter,
    )


def _retry_of(message: pb.Retry) -> jobs.Retry:
    absent = jobs.Retry()
    return jobs.Retry(
        max_attempts=message.max_attempts or None,
        max_deliveries=message.max_deliveries or absent.max_deliveries,
        initial_backoff=timedelta_of(message.initial_backoff)
        if message.HasField("initial_backoff")
        else absent.initial_backoff,
        multiplier=message.multiplier or absent.multiplier,
        max_backoff=timedelta_of(message.max_backoff)
        if message.HasField("max_backoff")
        else absent.max_backoff,
        jitter=message.jitter if message.HasField("jitter") else absent.jitter,
    )


def _task_message(task: jobs.Task) -> pb.Task:
    if isinstance(task, jobs.PythonTask):
        try:
            # In one order, so that equal arguments are the same definition.
            args = json.dumps(
                dict(task.args), sort_keys=True, separators=(",", ":"), allow_nan=False
            )
        except RecursionError:
            raise InvalidArgument("task.args", "their nesting", "JSON that is less deep") from None
        except (TypeError, ValueError) as error:
            raise InvalidArgument("task.args", task.args, f"JSON ({error})") from None
        return pb.Task(python=pb.PythonTask(task=task.name, args_json="" if args == "{}" else args))
    if isinstance(task, jobs.ShellTask):
        return pb.Task(
            shell=pb.ShellTask(command=task.command, env=_env_message(task.env), cwd=task.cwd)
        )
    return pb.Task(
        http=pb.HttpTask(
            method=task.method,
            url=task.url,
            headers=_env_message(task.headers),
            body=task.body,
            expect=task.expect,
        )
    )


def _task_of(message: pb.Task) -> jobs.Task:
    kind = message.WhichOneof("kind")
    if kind == "python":
        args = message.python.args_json
        return jobs.PythonTask(message.python.task, json.loads(args) if args else {})
    if kind == "shell":
        shell = message.shell
        return jobs.ShellTask(shell.command, env=_env_of(shell.env), cwd=shell.cwd)
    if kind == "http":
        http = message.http
        return jobs.HttpTask(
            http.url,
            method=http.method or "POST",
            headers=_env_of(http.headers),
            body=http.body,
            expect=tuple(http.expect),
        )
    raise Unimplemented("the task is of a kind that this version of the SDK does not know")


def _env_message(values: Mapping[str, jobs.EnvValue]) -> dict[str, pb.EnvValue]:
    return {
        name: pb.EnvValue(from_worker=value.name)
        if isinstance(value, jobs.FromWorker)
        else pb.EnvValue(value=value)
        for name, value in values.items()
    }


def _env_of(messages: Mapping[str, pb.EnvValue]) -> dict[str, jobs.EnvValue]:
    return {
        name: jobs.FromWorker(message.from_worker)
        if message.WhichOneof("source") == "from_worker"
        else message.value
        for name, message in sorted(messages.items())
    }


def _schedule_message(schedule: schedules.Schedule) -> pb.Schedule:
    expected = "one of Cron, Every, CalendarInterval, At and RRule"
    if not isinstance(schedule, schedules.Schedule):
        raise InvalidArgument("schedules", schedule, expected)
    message = pb.Schedule(
        time_zone=schedule.timezone,
        dst=_DST.message(schedule.dst),
        start_time=None if schedule.start is None else timestamp("start", schedule.start),
        end_time=None if schedule.end is None else timestamp("end", schedule.end),
        max_runs=0 if schedule.max_runs is None else count("max_runs", schedule.max_runs),
        jitter=duration(schedule.jitter) if schedule.jitter else None,
        exclude=[_calendar_message(each) for each in schedule.exclude],
    )
    if isinstance(schedule, schedules.Cron):
        message.cron = schedule.expression
        if schedule.days is not None:
            message.days = _DAYS.message(schedule.days)
    elif isinstance(schedule, schedules.Every):
        message.every.CopyFrom(
            pb.Every(
                period=duration(schedule.period),
                anchor_time=None
                if schedule.anchor is None
                else timestamp("anchor", schedule.anchor),
                offset=duration(schedule.offset) if schedule.offset else None,
            )
        )
    elif isinstance(schedule, schedules.CalendarInterval):
        message.calendar_interval.CopyFrom(_interval_message(schedule))
    elif isinstance(schedule, schedules.At):
        message.at.times.extend(_moment_message(each) for each in schedule.times)
    elif isinstance(schedule, schedules.RRule):
        message.rrule = schedule.text
    else:
        raise InvalidArgument("schedules", schedule, expected)
    return message


def _schedule_of(message: pb.Schedule) -> schedules.Schedule:
    shared = {
        "timezone": message.time_zone,
        "dst": _DST.word(schedules.DstRule, message.dst, schedules.DstRule.VIXIE),
        "exclude": tuple(_calendar_of(each) for each in message.exclude),
        "start": datetime_of(message.start_time) if message.HasField("start_time") else None,
        "end": datetime_of(message.end_time) if message.HasField("end_time") else None,
        "max_runs": message.max_runs or None,
        "jitter": timedelta_of(message.jitter),
    }
    # The five kinds share these fields by inheritance, which a dict of keywords can't show.
    kind = message.WhichOneof("kind")
    if kind == "cron":
        days = _DAYS.word(schedules.DayRule, message.days) if message.days else None
        return schedules.Cron(message.cron, days=days, **shared)  # type: ignore[arg-type]
    if kind == "every":
        every = message.every
        return schedules.Every(
            timedelta_of(every.period),
            offset=timedelta_of(every.offset),
            anchor=datetime_of(every.anchor_time) if every.HasField("anchor_time") else None,
            **shared,  # type: ignore[arg-type]
        )
    if kind == "calendar_interval":
        interval = message.calendar_interval
        return schedules.CalendarInterval(
            interval.count,
            _unit_of(interval.unit),
            at=time.fromisoformat(interval.time_of_day),
            anchor=date.fromisoformat(interval.anchor_date) if interval.anchor_date else None,
            short_month=_SHORT_MONTHS.word(schedules.ShortMonth, interval.short_month)
            if interval.short_month
            else None,
            **shared,  # type: ignore[arg-type]
        )
    if kind == "at":
        times = tuple(datetime.fromisoformat(each) for each in message.at.times)
        return schedules.At(times, **shared)  # type: ignore[arg-type]
    if kind == "rrule":
        return schedules.RRule(message.rrule, **shared)  # type: ignore[arg-type]
    raise Unimplemented("the schedule is of a kind that this version of the SDK does not know")


def _interval_message(schedule: schedules.CalendarInterval) -> pb.CalendarInterval:
    message = pb.CalendarInterval(
        count=schedule.count,
        unit=_UNITS[schedule.unit],
        anchor_date="" if schedule.anchor is None else schedule.anchor.isoformat(),
        time_of_day=schedule.at.isoformat(),
    )
    if schedule.short_month is not None:
        message.short_month = _SHORT_MONTHS.message(schedule.short_month)
    return message


def _unit_of(number: pb.CalendarInterval.Unit.ValueType) -> schedules.CalendarUnit:
    if number not in _UNIT_OF:
        raise Unimplemented(f"unit {number} is unknown to this version of the SDK; update it")
    return _UNIT_OF[number]


def _moment_message(moment: datetime) -> str:
    return moment.isoformat() if moment.tzinfo is None else moment.astimezone(UTC).isoformat()


def _calendar_message(calendar: schedules.Calendar) -> pb.Calendar:
    return pb.Calendar(
        name=calendar.name,
        dates=[day.isoformat() for day in calendar.dates],
        ranges=[f"{first.isoformat()}..{last.isoformat()}" for first, last in calendar.ranges],
        weekdays=calendar.weekdays,
        crons=calendar.crons,
    )


def _calendar_of(message: pb.Calendar) -> schedules.Calendar:
    ranges = (each.partition("..") for each in message.ranges)
    return schedules.Calendar(
        name=message.name,
        dates=tuple(date.fromisoformat(each) for each in message.dates),
        ranges=tuple((date.fromisoformat(a), date.fromisoformat(b)) for a, _, b in ranges),
        weekdays=tuple(message.weekdays),
        crons=tuple(message.crons),
    )
