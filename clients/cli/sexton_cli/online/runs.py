"""The work of `sexton runs` and `sexton members`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import islice
from typing import Any, Final

from sexton.client import Client
from sexton.errors import IllegalState, NotFound
from sexton.mesh import Mesh, Queue
from sexton.runs import Attempt, Run, RunError, RunState
from sexton_cli.online import times
from sexton_cli.output import ListFormat, print_data, print_line, print_table

_JOB_ID: Final = re.compile(r"[a-z][a-z0-9-]*")
MORE: Final = "... and more than these {:,}: --limit shows them"
HEADERS = ("RUN", "STATE", "NOMINAL TIME", "ATTEMPTS", "TOOK", "WORKER")


def show_list(found: Iterable[Run], output: ListFormat, limit: int) -> None:
    """Prints runs, one a line, up to a limit; where there are more, a table says so."""
    runs = list(islice(found, limit + 1))
    more = len(runs) > limit
    runs = runs[:limit]
    if output is ListFormat.NAME:
        for run in runs:
            print_line(run.full_name)
    elif not print_data([run_data(run) for run in runs], output):
        print_table(HEADERS, [_row(run) for run in runs])
        if more:
            print_line(MORE.format(limit))


def is_run(name: str) -> bool:
    """Tells whether a name is a run's and not a job's: no run's id can be the name of a job."""
    parts = name.split("/")
    return len(parts) > 2 or (len(parts) == 2 and _JOB_ID.fullmatch(parts[1]) is None)


def show(run: Run, output: ListFormat) -> None:
    """Prints a run and its attempts."""
    if output is ListFormat.NAME:
        print_line(run.full_name)
    elif not print_data(run_data(run), output):
        _describe(run)


def show_obstacles(client: Client, run: Run) -> None:
    """Prints what stands in the way of a run that waits: for example that its queue is paused."""
    if run.state not in {RunState.WAITING, RunState.RETRYING}:
        return
    try:
        job = client.jobs.get(run.full_name.rpartition("/")[0])
    except NotFound:
        return
    if job.version == run.job_version:
        notices = list(job.notices)
    else:  # the job's are of another queue, or another task
        notices = [_paused(each) for each in client.mesh.queues() if each.name == run.queue]
    for notice in filter(None, notices):
        print_line(f"warning: {notice}")


def _paused(queue: Queue) -> str:
    reason = f": {queue.pause_reason}" if queue.pause_reason else ""
    return f"queue {queue.name} is paused{reason}" if queue.paused else ""


def cancel_waiting(client: Client, job: str, reason: str) -> Iterator[Run]:
    """Ends the runs of a job that wait, the newest first: none of them starts in another's place.

    One that starts in this moment is asked to end as well.
    """
    client.jobs.get(job)  # or a misspelt name would end nothing and say nothing
    states = [RunState.WAITING, RunState.RETRYING]
    for run in list(client.runs.list(job, states=states)):
        try:
            yield client.runs.cancel(run, reason=reason)
        except IllegalState:
            continue  # it has ended meanwhile


def show_change(run: Run, output: ListFormat) -> None:
    """Prints a run as it now stands, as a line of its own, at once."""
    if output is ListFormat.NAME:
        print_line(run.full_name)
    elif output is ListFormat.JSON:
        sys.stdout.write(json.dumps(run_data(run), ensure_ascii=False) + "\n")
    elif output is ListFormat.YAML:
        sys.stdout.write("---\n")
        print_data(run_data(run), output)
    else:
        print_line(f"{run.full_name}: {_state(run)}")
    sys.stdout.flush()


def show_end(run: Run, output: ListFormat) -> None:
    """Prints a run that was asked to end; of one that ended otherwise, that it stays as it is."""
    by_request = {RunState.CANCELLED, RunState.TERMINATED}
    if output is ListFormat.TABLE and run.ended and run.state not in by_request:
        print_line(f"{run.full_name}: {run.state.value}; it has ended otherwise, and stays so")
    else:
        show_change(run, output)


def show_members(mesh: Mesh, output: ListFormat) -> None:
    """Prints who the mesh is."""
    if output is ListFormat.NAME:
        for member in mesh.members:
            print_line(f"{member.role.value}/{member.id}")
        return
    data = {
        "mesh_time": times.utc_or_none(mesh.mesh_time),
        "members": [
            {
                "role": member.role.value,
                "id": member.id,
                "address": member.address,
                "shard": member.shard,
                "leading": member.leading,
                "token": member.token,
                "skew_ms": _milliseconds(member.skew),
                "software_version": member.software_version,
                "details": dict(member.details),
            }
            for member in mesh.members
        ],
    }
    if print_data(data, output):
        return
    print_table(
        ("ROLE", "ID", "ADDRESS", "LEADS", "TOKEN", "SKEW", "VERSION", "DETAILS"),
        [
            (
                member.role.value,
                member.id,
                member.address or times.NEVER,
                "yes" if member.leading else times.NEVER,
                member.token or times.NEVER,
                f"{_milliseconds(member.skew):+d} ms",
                member.software_version,
                ", ".join(
                    f"{name} {value}" for name, value in sorted(member.details.items()) if value
                ),
            )
            for member in mesh.members
        ],
    )
    print_line(f"mesh time {times.utc(mesh.mesh_time)}")


def run_data(run: Run) -> dict[str, Any]:
    """Returns a run for programs."""
    request = run.cancel_request
    return {
        "namespace": run.namespace,
        "job": run.job,
        "id": run.id,
        "state": run.state.value,
        "origin": run.origin.value,
        "nominal_time": times.utc_or_none(run.nominal_time),
        "due_time": times.utc_or_none(run.due_time),
        "create_time": times.utc_or_none(run.create_time),
        "end_time": times.utc_or_none(run.end_time),
        "not_before_time": times.utc_or_none(run.not_before_time),
        "job_uid": run.job_uid,
        "job_version": run.job_version,
        "queue": run.queue,
        "priority": run.priority,
        "failures": run.failures,
        "retry_of": run.retry_of or None,
        "cancel_request": None
        if request is None
        else {
            "mode": request.mode.value,
            "reason": request.reason,
            "request_time": times.utc_or_none(request.request_time),
        },
        "error": _error_data(run.error),
        "result": run.result,
        "progress": None
        if run.progress is None
        else {"fraction": run.progress.fraction, "message": run.progress.message},
        "traceparent": run.traceparent or None,
        "attempts": [_attempt_data(each) for each in run.attempts],
    }


def _attempt_data(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "token": attempt.token,
        "state": attempt.state.value,
        "worker": attempt.worker,
        "session": attempt.session,
        "assign_time": times.utc_or_none(attempt.assign_time),
        "start_time": times.utc_or_none(attempt.start_time),
        "end_time": times.utc_or_none(attempt.end_time),
        "execution_s": None if attempt.execution is None else attempt.execution.total_seconds(),
        "error": _error_data(attempt.error),
        "output_tail": attempt.output_tail,
    }


def _error_data(error: RunError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {"kind": error.kind, "message": error.message, "detail": error.detail}


def _row(run: Run) -> tuple[object, ...]:
    last = run.attempts[-1] if run.attempts else None
    return (
        run.full_name,
        run.state.value,
        times.utc(run.nominal_time),
        last.number if last else 0,
        _took(run),
        (last.worker if last else "") or times.NEVER,
    )


def _took(run: Run) -> str:
    if run.end_time is None or run.create_time is None:
        return times.NEVER
    since = max(run.create_time, run.due_time or run.create_time)  # written before its time, or not
    return times.span(max(run.end_time, since) - since)


def _state(run: Run) -> str:
    if run.error is None:
        return run.state.value
    # A run that was asked to end has its state as the error's kind, too.
    said = run.error.message if run.error.kind == run.state.value else _sentence(run.error)
    return f"{run.state.value}: {said}" if said else run.state.value


def _sentence(error: RunError) -> str:
    return f"{error.kind}: {error.message}" if error.message else error.kind


def _describe(run: Run) -> None:
    lines: list[tuple[str, object]] = [
        ("run", run.full_name),
        ("state", _state(run)),
        ("asked for by", run.origin.value),
        ("nominal time", times.utc(run.nominal_time)),
        ("due", times.utc(run.due_time)),
        ("created", times.utc(run.create_time)),
        ("ended", f"{times.utc(run.end_time)}, after {_took(run)}" if run.ended else times.NEVER),
        ("queue", f"{run.queue}, priority {run.priority}"),
        ("version", run.job_version),
    ]
    if run.not_before_time is not None and not run.ended:
        lines.append(("not before", times.utc(run.not_before_time)))
    if run.progress is not None:
        part = run.progress.fraction
        shown = [] if part is None else [f"{part:.0%}"]
        lines.append(("progress", ", ".join([*shown, *filter(None, [run.progress.message])])))
    if run.retry_of:
        lines.append(("repeats", run.retry_of))
    if run.cancel_request is not None:
        request = run.cancel_request
        lines.append(("to end by", f"{request.mode.value}, {request.reason or 'no reason given'}"))
    if run.result_json:
        lines.append(("result", run.result_json))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print_line(f"{name.ljust(width)}  {value}")
    for attempt in run.attempts:
        print_line()
        print_line(
            f"attempt {attempt.number}: {attempt.state.value} on {attempt.worker}, from "
            f"{times.utc(attempt.start_time)} to {times.utc(attempt.end_time)}, token "
            f"{attempt.token}"
        )
        if attempt.error is not None:
            print_line(f"  {_sentence(attempt.error)}")
            for line in attempt.error.detail.splitlines():
                print_line(f"  | {line}")
        for line in attempt.output_tail.splitlines():
            print_line(f"  > {line}")


def _milliseconds(skew: timedelta) -> int:
    return round(skew / timedelta(milliseconds=1))
