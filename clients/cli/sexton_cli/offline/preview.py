"""The work of `sexton preview`."""

from dataclasses import dataclass, replace
from typing import Any

from sexton_cli.errors import UsageError
from sexton_cli.jobfile import FileJob
from sexton_cli.offline.values import (
    is_file_name,
    job_of,
    now,
    read_duration,
    read_instant,
    read_job_file,
)
from sexton_cli.output import Format, print_data, print_line, print_table
from sexton_core.errors import FieldError
from sexton_core.instants import Duration, Instant, format_instant, parse_duration
from sexton_core.schedules import (
    AnySpec,
    CronTiming,
    EveryTiming,
    JobIdentity,
    Preview,
    PreviewRow,
    RRuleTiming,
    ScheduleSpec,
    UnionSpec,
    build,
    forecast,
    herd_warnings,
    preview,
)
from sexton_core.schedules.spec import Timing
from sexton_core.words import DstRule
from sexton_core.zones import tzdata_version

_HERD_HORIZON_NS = 24 * 3_600_000_000_000
"""How far ahead the load of a whole file is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The command line, as text."""

    target: str
    is_file: bool = False
    """Said to be a file, whatever it looks like."""
    tz: str | None
    after: str | None
    count: int
    dst: str | None
    job: str | None
    run_time: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What is to be printed: a preview per job, and what the jobs do together."""

    jobs: tuple[tuple[str | None, Preview | None], ...]
    herd: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def run(question: Question, output: Format) -> None:
    """Answers and prints.

    Raises:
        CliError: the question can't be answered; its kind says why.

    """
    try:
        if question.is_file or is_file_name(question.target):
            answer = _of_file(question)
        elif question.job is not None:
            raise UsageError("--job: an expression has no jobs; expected a job file")
        else:
            answer = _of_expression(question)
    except FieldError as error:
        raise _refusal(error, question) from None
    if not print_data(_as_json(answer), output):
        _print(answer)


def _refusal(error: FieldError, question: Question) -> UsageError:
    """Names the option that a value came from; else it is the expression's."""
    if error.field == "timezone" and question.tz is not None:
        return UsageError(f"--tz{str(error).removeprefix(error.field)}")
    return UsageError(str(error))


def _of_expression(question: Question) -> _Answer:
    after = _after(question)
    timing = read_timing(question.target)
    bare_rule = isinstance(timing, RRuleTiming) and "DTSTART" not in timing.text.upper()
    # A rule without a DTSTART counts from where the preview begins.
    spec = _changed(ScheduleSpec(timing=timing, start=after if bare_rule else None), question)
    return _Answer(jobs=((None, _look(spec, None, after, question)),))


def read_timing(text: str) -> Timing:
    """Reads an expression: an RRULE, `every DURATION`, or else cron.

    Raises:
        ScheduleError: the duration can't be read; the others are judged when they are built.

    """
    words = text.split()
    if text.upper().lstrip().startswith(("FREQ=", "RRULE:", "DTSTART")):
        return RRuleTiming(text=text.replace("\\n", "\n"))
    if len(words) == 2 and words[0] == "every":
        return EveryTiming(period_ns=parse_duration(words[1], field="every"))
    return CronTiming(expression=text)


def _of_file(question: Question) -> _Answer:
    after = _after(question)
    file = read_job_file(question.target)
    jobs = file.jobs
    if question.job is not None:
        jobs = (job_of(file, question.job),)
    looked = tuple((job.full_name, _look_at_job(job, after, question)) for job in jobs)
    built = [
        (job.full_name, build(_changed(job.spec, question), job.identity(after)))
        for job in jobs
        if job.spec is not None
    ]
    load = forecast(built, after, after + _HERD_HORIZON_NS)
    herd = tuple(each.message for each in herd_warnings(load))
    return _Answer(jobs=looked, herd=herd, notes=file.notes)


def _look_at_job(job: FileJob, after: Instant, question: Question) -> Preview | None:
    if job.spec is None:
        return None
    return _look(_changed(job.spec, question), job.identity(after), after, question)


def _look(spec: AnySpec, job: JobIdentity | None, after: Instant, question: Question) -> Preview:
    run_time_ns: Duration | None = None
    if question.run_time is not None:
        run_time_ns = read_duration(question.run_time, "--run-time")
    return preview(build(spec, job), after, question.count, run_time_ns=run_time_ns)


def _after(question: Question) -> Instant:
    return now() if question.after is None else read_instant(question.after, "--from")


def _changed(spec: AnySpec, question: Question) -> AnySpec:
    """Returns the specification with what the command line says instead."""
    if isinstance(spec, UnionSpec):
        return UnionSpec(parts=tuple(_changed_part(part, question) for part in spec.parts))
    return _changed_part(spec, question)


def _changed_part(spec: ScheduleSpec, question: Question) -> ScheduleSpec:
    if question.tz is not None:
        spec = replace(spec, timezone=question.tz)
    if question.dst is not None:
        try:
            spec = replace(spec, dst=DstRule(question.dst))
        except ValueError:
            known = ", ".join(DstRule)
            message = f"--dst: {question.dst!r} can't be used; expected one of {known}"
            raise UsageError(message) from None
    return spec


def _print(answer: _Answer) -> None:
    for number, (name, looked) in enumerate(answer.jobs):
        if number:
            print_line()
        title = f"{name}: " if name else ""
        if looked is None:
            print_line(f"{title}no schedule; runs by trigger and backfill only")
            continue
        print_line(title + looked.explanation)
        for rule in looked.rules:
            print_line(f"  {rule}")
        rows = [
            (
                f"  {row.local:%a %Y-%m-%d %H:%M:%S %z}",
                format_instant(row.nominal),
                "; ".join(_notes(row)),
            )
            for row in looked.rows
        ]
        if rows:
            print_table(("  LOCAL", "UTC", "NOTE"), rows)
        for warning in looked.warnings:
            if warning.message not in looked.rules:
                print_line(f"  warning: {warning.message}")
    print_line()
    for message in answer.herd:
        print_line(f"warning: {message}")
    for note in answer.notes:
        print_line(f"note: {note}")
    print_line(f"time zone data: {tzdata_version()}")


def _notes(row: PreviewRow) -> list[str]:
    notes = list(row.notes)
    if row.due != row.nominal:
        notes.append(f"due {format_instant(row.due)}")
    if row.excluded_by is not None:
        last = row.excluded_until
        until = "" if last in (None, row.nominal) else f" until {format_instant(last or 0)}"
        notes.append(f"excluded by {row.excluded_by}{until}")
    return notes


def _as_json(answer: _Answer) -> dict[str, Any]:
    jobs: list[dict[str, Any]] = []
    for name, looked in answer.jobs:
        if looked is None:
            jobs.append({"job": name, "schedule": None})
            continue
        jobs.append(
            {
                "job": name,
                "schedule": looked.explanation,
                "rules": list(looked.rules),
                "times": [_row_as_json(row) for row in looked.rows],
                "warnings": [
                    {"kind": warning.kind.value, "message": warning.message}
                    for warning in looked.warnings
                ],
            }
        )
    return {"tzdata": tzdata_version(), "jobs": jobs, "warnings": list(answer.herd)}


def _row_as_json(row: PreviewRow) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "nominal": format_instant(row.nominal),
        "local": row.local.isoformat(),
        "zone": row.zone,
    }
    if row.excluded_by is None:
        return entry | {"due": format_instant(row.due), "notes": list(row.notes)}
    last = row.nominal if row.excluded_until is None else row.excluded_until
    return entry | {"excluded_by": row.excluded_by, "until": format_instant(last)}
