"""The work of `sexton simulate`."""

from dataclasses import dataclass
from typing import Any, Final

from sexton_cli.errors import UsageError
from sexton_cli.jobfile import JobFile
from sexton_cli.offline.simulation import (
    Outage,
    SimulatedJob,
    SimulatedRun,
    Simulation,
    simulate,
)
from sexton_cli.offline.values import job_of, read_duration, read_instant, read_job_file
from sexton_cli.output import Format, print_data, print_line, print_table
from sexton_core.instants import Duration, format_instant
from sexton_core.policy import DecisionRange
from sexton_core.words import Decision
from sexton_core.zones import tzdata_version

_SETTLED: Final = tuple(decision for decision in Decision if decision is not Decision.BUFFERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The command line, as text."""

    file: str
    begin: str
    end: str
    outages: tuple[str, ...]
    run_times: tuple[str, ...]
    limit: int


def run(question: Question, output: Format) -> None:
    """Simulates and prints.

    Raises:
        CliError: the question can't be answered; its kind says why.

    """
    begin = read_instant(question.begin, "--from")
    end = read_instant(question.end, "--to")
    if end < begin:
        raise UsageError(
            f"--to: {question.end!r} can't be used; expected a time after --from, {question.begin}"
        )
    outages = [_read_outage(text) for text in question.outages]
    file = read_job_file(question.file)
    run_times = dict(_read_run_time(text, file) for text in question.run_times)
    found = simulate(file.jobs, begin, end, outages=outages, run_times=run_times)
    if not print_data(_as_json(found, question.limit), output):
        _print(found, question.limit)


def _read_outage(text: str) -> Outage:
    first, dots, last = text.partition("..")
    if not dots:
        raise UsageError(f"--outage: {text!r} can't be used; expected A..B, two times")
    begin, end = read_instant(first, "--outage"), read_instant(last, "--outage")
    if end <= begin:
        raise UsageError(f"--outage: {text!r} can't be used; expected an end after its beginning")
    return Outage(begin=begin, end=end)


def _read_run_time(text: str, file: JobFile) -> tuple[str, Duration]:
    name, equals, duration = text.partition("=")
    if not equals:
        raise UsageError(f"--run-time: {text!r} can't be used; expected JOB=DURATION, as a=30s")
    return job_of(file, name, "--run-time").full_name, read_duration(duration, "--run-time")


def _print(found: Simulation, limit: int) -> None:
    headers = ("JOB", *(decision.value.upper() for decision in _SETTLED), "WAITING")
    print_table(
        headers,
        [
            (job.name, *(_counted(job, decision) for decision in _SETTLED), job.waiting)
            for job in found.jobs
        ],
    )
    for job in found.jobs:
        if job.refused is not None:
            print_line(f"{job.name}: {job.refused}")
        if job.stopped_at is not None:
            print_line(f"{job.name}: stopped at {format_instant(job.stopped_at)}, too many times")
    runs = [_run_row(job.name, run) for job in found.jobs for run in job.runs]
    _print_some("runs", ("JOB", "NOMINAL", "STARTED", "ENDED", "WHY"), runs, limit)
    ranges = [_range_row(job.name, each) for job in found.jobs for each in job.ranges]
    columns = ("JOB", "DECISION", "FIRST", "LAST", "TIMES", "WHY")
    _print_some("what did not run", columns, ranges, limit)
    peaks = [(format_instant(minute), started) for minute, started in found.peaks]
    _print_some("fullest minutes", ("MINUTE", "RUNS"), peaks, len(peaks))
    print_line()
    print_line(f"time zone data: {tzdata_version()}")


def _counted(job: SimulatedJob, decision: Decision) -> str:
    """Returns the number, with a plus where a range was too long to be counted."""
    some = any(not each.counted_all for each in job.ranges if each.decision is decision)
    return f"{job.count(decision)}{'+' if some else ''}"


def _run_row(name: str, run: SimulatedRun) -> tuple[str, ...]:
    return (
        name,
        format_instant(run.nominal),
        format_instant(run.started),
        format_instant(run.ended),
        f"{run.reason}, stopped" if run.stopped else run.reason.value,
    )


def _range_row(name: str, each: DecisionRange) -> tuple[str, ...]:
    return (
        name,
        each.decision.value,
        format_instant(each.first),
        format_instant(each.last),
        f"{each.times}" if each.counted_all else f"{each.times}+",
        each.reason.value + (f" by {each.blocked_by}" if each.blocked_by else ""),
    )


def _print_some(
    title: str, headers: tuple[str, ...], rows: list[tuple[Any, ...]], limit: int
) -> None:
    if not rows:
        return
    print_line()
    cut = f" (the first {limit:,} of {len(rows):,})" if len(rows) > limit else ""
    print_line(f"{title}{cut}:")
    print_table(headers, rows[:limit])


def _as_json(found: Simulation, limit: int) -> dict[str, Any]:
    return {
        "tzdata": tzdata_version(),
        "jobs": [_job_as_json(job, limit) for job in found.jobs],
        "peaks": [
            {"minute": format_instant(minute), "runs": started} for minute, started in found.peaks
        ],
    }


def _job_as_json(job: SimulatedJob, limit: int) -> dict[str, Any]:
    return {
        "job": job.name,
        "refused": job.refused,
        "stopped_at": None if job.stopped_at is None else format_instant(job.stopped_at),
        "counts": {decision.value: job.count(decision) for decision in _SETTLED},
        "waiting": job.waiting,
        "runs": [
            {
                "run": run.run_id,
                "nominal": format_instant(run.nominal),
                "started": format_instant(run.started),
                "ended": format_instant(run.ended),
                "reason": run.reason.value,
                "stopped": run.stopped,
            }
            for run in job.runs[:limit]
        ],
        "not_run": [
            {
                "decision": each.decision.value,
                "reason": each.reason.value,
                "first": format_instant(each.first),
                "last": format_instant(each.last),
                "times": each.times,
                "counted_all": each.counted_all,
                "blocked_by": each.blocked_by,
            }
            for each in job.ranges[:limit]
        ],
    }
