"""The work of `sexton jobs`, `sexton why`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any

from sexton import errors
from sexton.client import Client
from sexton.jobs import Explanation, Job, Triggered
from sexton.schedules import At, CalendarInterval, Cron, Every, RRule, Schedule
from sexton_cli.errors import NotFound, Refused
from sexton_cli.jobfile import file_of
from sexton_cli.jobfile.write import fields_of
from sexton_cli.online import runs, times
from sexton_cli.online.wording import short_names
from sexton_cli.output import ListFormat, print_data, print_line, print_table
from sexton_cli.yaml_text import yaml_text

_WAITS = "buffered"
"""The decision of a start that becomes a run when the runs before it have ended."""
_LOOKED_AT = 2_000
"""Jobs among which a name that does not exist is looked for."""
_LIVE_SHOWN = 5
"""Live runs that are named: there may be a thousand, and `sexton runs list` has them all."""


def show_list(jobs: Sequence[Job], output: ListFormat, limit: int | None) -> None:
    """Prints jobs, one a line, up to a limit; where there are more, a table says so."""
    found = jobs[:limit]
    if output is ListFormat.NAME:
        for job in found:
            print_line(job.full_name)
    elif not print_data([_listed(job) for job in found], output):
        rows = [
            (
                job.full_name,
                _schedules(job),
                times.local(job.next_time, times.zone_of(job.spec)),
                times.utc(job.next_time),
                _state(job),
            )
            for job in found
        ]
        print_table(("JOB", "SCHEDULE", "NEXT", "NEXT IN UTC", "STATE"), rows)
        if len(found) < len(jobs):
            print_line(runs.MORE.format(limit))


def show(job: Job, output: ListFormat) -> None:
    """Prints a job; as YAML, a job file that `apply` takes again and leaves everything as it is."""
    if output is ListFormat.NAME:
        print_line(job.full_name)
    elif output is ListFormat.YAML:
        assert job.spec is not None, "a job that is read alone is whole"
        print_line(f"# {job.full_name}, version {job.version}, {_state(job)}")
        print(yaml_text(file_of(job.namespace, {job.name: job.spec})), end="")  # noqa: T201
    elif not print_data(job_data(job), output):
        _describe(job)


def show_triggered(done: Triggered, job: str, output: ListFormat) -> None:
    """Prints what became of a start.

    Raises:
        Refused: no run was started, and none waits.
    """
    run = done.run
    data = {
        "run": None if run is None else run.full_name,
        "decision": done.decision or "fired",
        "reason": done.reason,
    }
    if run is not None and output is ListFormat.NAME:
        print_line(run.full_name)
    elif output is not ListFormat.NAME and not print_data(data, output):
        if run is not None:
            print_line(f"{run.full_name}: {run.state.value}")
            print_line(f"to follow it: sexton runs wait {run.full_name}")
        elif done.decision == _WAITS:
            print_line(f"{job}: a start waits: {done.reason}")
    if run is None and done.decision != _WAITS:
        raise Refused(f"{job}: no run was started: {done.decision}, {done.reason}")


def show_explanation(job: str, found: Explanation, zone: str, output: ListFormat) -> None:
    """Prints why a job ran, or will run, or not."""
    if print_data(_explanation_data(job, found), output):
        return
    print_line(found.summary)
    if found.nominal_time is not None:
        kind = "forecast" if found.forecast else "recorded"
        print_line(
            f"nominal time  {times.local(found.nominal_time, zone)}, "
            f"{times.utc(found.nominal_time)}"
        )
        print_line(f"decision      {found.decision or 'none yet'} ({kind})")
    if found.run is not None:
        print_line(f"run           {found.run.full_name}: {found.run.state.value}")
    for name, moment in (("before", found.previous_time), ("after", found.following_time)):
        if moment is not None:
            print_line(f"{name:12}  {times.local(moment, zone)}, {times.utc(moment)}")
    if found.gates:
        print_line()
        print_table(
            ("GATE", "PASSED", "WHAT WAS COMPARED"),
            [(gate.name, "yes" if gate.passed else "no", gate.detail) for gate in found.gates],
        )


def job_data(job: Job) -> dict[str, Any]:
    """Returns a job for programs, its definition as a job file has it."""
    return {
        "namespace": job.namespace,
        "name": job.name,
        "uid": job.uid,
        "etag": job.etag,
        "version": job.version,
        "paused": job.paused,
        "pause_reason": job.pause_reason,
        "create_time": times.utc_or_none(job.create_time),
        "update_time": times.utc_or_none(job.update_time),
        "next_time": times.utc_or_none(job.next_time),
        "cursor_time": times.utc_or_none(job.cursor_time),
        "live_runs": list(job.live_runs),
        "warnings": list(job.warnings),
        "notices": list(job.notices),
        "source": job.source,
        "definition": None if job.spec is None else fields_of(job.spec),
    }


def _listed(job: Job) -> dict[str, Any]:
    """Returns a job as lists have it: without its task, which may hold values of variables."""
    data = job_data(job)
    if data["definition"] is not None:
        data["definition"].pop("task", None)
    return data


def look_around(client: Client, job: str, error: errors.NotFound) -> NotFound:
    """Says where a job is that does not exist under the name that was given."""
    if error.facts.get("kind") != "job":  # one of its backfills, or a version
        return NotFound(short_names(str(error)))
    try:
        # Only a question about the job itself tells whether there was one.
        client.jobs.get(job)
    except errors.NotFound as told:
        error = told
    name, said = job.rpartition("/")[2], short_names(str(error))
    if "deleted_at" in error.facts:
        return NotFound(f"{said}: see `sexton jobs ledger {job}`, `sexton why`, `sexton runs list`")
    elsewhere = [
        each.full_name
        for each in islice(client.jobs.list(all_namespaces=True, prefix=name), _LOOKED_AT)
        if each.name == name
    ]
    if elsewhere:
        names = ", ".join(elsewhere[:5])
        return NotFound(f"{said}; there is {names}: name the namespace, or use -n")
    known = [each.name for each in islice(client.jobs.list(), _LOOKED_AT)]
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "`sexton jobs list -A` lists all"
    return NotFound(f"{said}; {hint}")


def _describe(job: Job) -> None:
    spec, zone = job.spec, times.zone_of(job.spec)
    lines = [("job", job.full_name), ("state", _state(job))]
    if spec is not None and spec.description:
        lines.append(("description", spec.description))
    if job.next_time is not None:
        lines.append(("next", f"{times.local(job.next_time, zone)} ({zone})"))
        lines.append(("next in UTC", times.utc(job.next_time)))
    lines.append(("decided up to", times.utc(job.cursor_time)))
    lines.append(("version", f"{job.version}, since {times.utc(job.update_time)}"))
    lines.append(("created", times.utc(job.create_time)))
    if job.source:
        lines.append(("applied from", job.source))
    if job.live_runs:
        lines.append(("live runs", _live_runs(job)))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print_line(f"{name.ljust(width)}  {value}")
    for warning in (*job.warnings, *job.notices):
        print_line(f"warning: {warning}")
    if spec is not None:
        print_line()
        for line in yaml_text(fields_of(spec)).splitlines():
            print_line(line)
    print_line()
    print_line(f"to start it now: sexton jobs trigger {job.full_name}")


def _live_runs(job: Job) -> str:
    shown, more = job.live_runs[:_LIVE_SHOWN], len(job.live_runs) - _LIVE_SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _state(job: Job) -> str:
    if job.paused:
        return f"paused: {job.pause_reason}" if job.pause_reason else "paused"
    return f"active, {len(job.live_runs)} live" if job.live_runs else "active"


def _schedules(job: Job) -> str:
    if job.spec is None or not job.spec.schedules:
        return "none"
    first, *others = (_schedule(each) for each in job.spec.schedules)
    return f"{first} and {len(others)} more" if others else first


def _schedule(schedule: Schedule) -> str:
    if isinstance(schedule, Cron):
        return schedule.expression
    if isinstance(schedule, Every):
        return f"every {times.span(schedule.period)}"
    if isinstance(schedule, CalendarInterval):
        return f"every {schedule.count} {schedule.unit.value} at {schedule.at:%H:%M}"
    if isinstance(schedule, At):
        return f"at {len(schedule.times)} times"
    assert isinstance(schedule, RRule), "there are five kinds"
    return schedule.text.splitlines()[-1] if schedule.text else ""


def _explanation_data(job: str, found: Explanation) -> dict[str, Any]:
    return {
        "job": job,
        "nominal_time": times.utc_or_none(found.nominal_time),
        "decision": found.decision or None,
        "forecast": found.forecast,
        "summary": found.summary,
        "gates": [
            {"name": gate.name, "passed": gate.passed, "detail": gate.detail}
            for gate in found.gates
        ],
        "previous_time": times.utc_or_none(found.previous_time),
        "following_time": times.utc_or_none(found.following_time),
        "run": None if found.run is None else runs.run_data(found.run),
    }
