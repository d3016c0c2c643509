"""From a job's definition to the job file that says the same: what `load` reads back unchanged."""

from collections.abc import Mapping, Sequence
from datetime import datetime, time, timedelta
from typing import Any

from sexton.jobs import (
    EnvValue,
    FromWorker,
    HttpTask,
    JobSpec,
    PythonTask,
    Retry,
    ShellTask,
    Task,
)
from sexton.schedules import (
    At,
    Calendar,
    CalendarInterval,
    Cron,
    Every,
    RRule,
    Schedule,
)
from sexton_core.instants import MICROSECOND, format_duration, format_instant, from_datetime

_PLAIN = ("queue", "priority", "overlap", "max_buffered", "max_live")
_DURATIONS = ("timeout", "deadline", "start_within")


def file_of(namespace: str, jobs: Mapping[str, JobSpec]) -> dict[str, Any]:
    """Returns the values of a job file with these jobs; what is a default is left out."""
    calendars = _Calendars()
    written = [{"name": name} | fields_of(spec, calendars) for name, spec in jobs.items()]
    file: dict[str, Any] = {"namespace": namespace}
    if calendars.written:
        file["calendars"] = list(calendars.written.values())
    return file | {"jobs": written}


class _Calendars:
    """The calendars of a file: definitions hold them by value, a file by name."""

    def __init__(self) -> None:
        self.written: dict[str, dict[str, Any]] = {}

    def name(self, calendar: Calendar) -> str:
        """Returns the name by which a schedule refers to the calendar, declaring it."""
        fields = _calendar(calendar)
        name, number = calendar.name, 1
        while self.written.get(name, fields | {"name": name}) != fields | {"name": name}:
            number += 1
            name = f"{calendar.name}-{number}"
        self.written[name] = fields | {"name": name}
        return name


def fields_of(spec: JobSpec, calendars: _Calendars | None = None) -> dict[str, Any]:
    """Returns a definition as a job of a file, without its name."""
    known = calendars or _Calendars()
    default = JobSpec(task=spec.task)
    fields: dict[str, Any] = {}
    if spec.description:
        fields["description"] = spec.description
    if spec.labels:
        fields["labels"] = dict(sorted(spec.labels.items()))
    schedules = [_schedule(each, known) for each in spec.schedules]
    if schedules:
        fields |= {"schedule": schedules[0]} if len(schedules) == 1 else {"schedules": schedules}
    fields["task"] = _task(spec.task)
    for name in _PLAIN:
        if getattr(spec, name) != getattr(default, name):
            fields[name] = _text(getattr(spec, name))
    fields |= _part("catch_up", spec.catch_up, default.catch_up)
    fields |= _part("retry", spec.retry, _usual_retry(spec))
    for name in _DURATIONS:
        if getattr(spec, name) != getattr(default, name):
            fields[name] = _text(getattr(spec, name))
    for name in ("delivery", "exclusive"):
        if getattr(spec, name) != getattr(default, name):
            fields[name] = _text(getattr(spec, name))
    return fields | _part("retention", spec.retention, default.retention)


def _usual_retry(spec: JobSpec) -> Retry:
    """Returns what is meant where nothing is said; the mesh writes the number of attempts out."""
    if spec.retry.max_attempts is None:
        return Retry()
    return Retry(max_attempts=1 if spec.delivery.value == "at_most_once" else 3)


def _part(name: str, part: Any, default: Any) -> dict[str, Any]:
    """Returns what a group of fields says beyond the defaults, under its name."""
    names = type(part).__dataclass_fields__
    given = {
        field: _text(getattr(part, field))
        for field in names
        if getattr(part, field) != getattr(default, field)
    }
    return {name: given} if given else {}


def _schedule(schedule: Schedule, calendars: _Calendars) -> dict[str, Any]:
    fields = _timing(schedule)
    if schedule.timezone:
        fields["timezone"] = schedule.timezone
    if schedule.dst.value != "vixie":
        fields["dst"] = schedule.dst.value
    if schedule.exclude:
        fields["exclude"] = [calendars.name(each) for each in schedule.exclude]
    for name in ("start", "end", "max_runs"):
        if getattr(schedule, name) is not None:
            fields[name] = _text(getattr(schedule, name))
    if schedule.jitter:
        fields["jitter"] = _text(schedule.jitter)
    return fields


def _timing(schedule: Schedule) -> dict[str, Any]:
    if isinstance(schedule, Cron):
        fields: dict[str, Any] = {"cron": schedule.expression}
        return fields if schedule.days is None else fields | {"days": schedule.days.value}
    if isinstance(schedule, Every):
        fields = {"every": _text(schedule.period)}
        if schedule.offset:
            fields["offset"] = _text(schedule.offset)
        return fields if schedule.anchor is None else fields | {"anchor": _text(schedule.anchor)}
    if isinstance(schedule, CalendarInterval):
        fields = {schedule.unit.value: schedule.count, "at": _text(schedule.at)}
        if schedule.anchor is not None:
            fields["anchor"] = schedule.anchor.isoformat()
        if schedule.short_month is not None:
            fields["short_month"] = schedule.short_month.value
        return {"calendar_interval": fields}
    if isinstance(schedule, At):
        return {"at": [_text(each) for each in schedule.times]}
    assert isinstance(schedule, RRule), "there are five kinds"
    return {"rrule": schedule.text}


def _calendar(calendar: Calendar) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": calendar.name}
    days: dict[str, Sequence[Any]] = {
        "dates": [day.isoformat() for day in calendar.dates],
        "ranges": [f"{first.isoformat()}..{last.isoformat()}" for first, last in calendar.ranges],
        "weekdays": list(calendar.weekdays),
        "crons": list(calendar.crons),
    }
    return fields | {name: values for name, values in days.items() if values}


def _task(task: Task) -> dict[str, Any]:
    if isinstance(task, PythonTask):
        fields: dict[str, Any] = {"python": task.name}
        return fields | {"args": dict(task.args)} if task.args else fields
    if isinstance(task, ShellTask):
        fields = {"shell": task.command}
        if task.env:
            fields["env"] = _values(task.env)
        return fields | {"cwd": task.cwd} if task.cwd else fields
    assert isinstance(task, HttpTask), "there are three kinds"
    fields = {"method": task.method, "url": task.url}
    if task.headers:
        fields["headers"] = _values(task.headers)
    if task.body:
        fields["body"] = task.body
    if task.expect:
        fields["expect"] = list(task.expect)
    return {"http": fields}


def _values(values: Mapping[str, EnvValue]) -> dict[str, Any]:
    return {
        name: {"from_worker": value.name} if isinstance(value, FromWorker) else value
        for name, value in sorted(values.items())
    }


def _text(value: Any) -> Any:
    """Returns a value as a job file has it."""
    if isinstance(value, timedelta):
        return format_duration(value // timedelta(microseconds=1) * MICROSECOND)
    if isinstance(value, datetime):
        return value.isoformat() if value.tzinfo is None else format_instant(from_datetime(value))
    if isinstance(value, time):
        return value.isoformat("seconds" if value.second else "minutes")
    return getattr(value, "value", value)
