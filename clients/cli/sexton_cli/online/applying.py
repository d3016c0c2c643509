"""The work of `sexton apply`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sexton import errors
from sexton.client import Client
from sexton.jobs import Applied, Change
from sexton_cli.errors import Refused
from sexton_cli.jobfile import JobFile, messages_of
from sexton_cli.offline.values import read_job_file
from sexton_cli.online import progress, times
from sexton_cli.online.session import Target, connected
from sexton_cli.output import ListFormat, print_data, print_line

_DONE = {
    Change.NONE: "unchanged",
    Change.CREATED: "created",
    Change.UPDATED: "updated",
    Change.PRUNED: "deleted, for it stands in its source no more",
}
_WOULD = {
    Change.NONE: "unchanged",
    Change.CREATED: "to be created",
    Change.UPDATED: "to be updated",
    Change.PRUNED: "to be deleted, for it stands in its source no more",
}
_REFUSED_JOB = re.compile(
    r"^jobs\[\d+\] namespaces/(?P<namespace>[^/\s]+)/jobs/(?P<job>[^/\s:]+): (?:spec\.)?",
    re.MULTILINE,
)
"""How a line of a refusal begins: the number is that in one call, of which there may be several."""
_MOST_SHOWN = 200
"""Unchanged jobs beyond this are counted instead of listed."""
_COUNTED = 10_000
"""Gained and lost times are counted up to this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """What is asked for beside the file."""

    dry_run: bool = False
    prune: bool = False
    source: str | None = None
    """None: the file's name."""


def run(path: str, target: Target, output: ListFormat, how: How) -> None:
    """Applies a file and prints what became of each job.

    Raises:
        CliError: the file or the mesh refuses; nothing is written then.
    """
    file = read_job_file(path)
    with connected(target) as client:
        applied = apply_file(client, file, how)
    if print_data([_data(each) for each in applied], output):
        return
    if output is ListFormat.NAME:
        for each in applied:
            print_line(each.job.full_name)
        return
    for line in (*lines_of(applied, dry_run=how.dry_run), *(f"note: {n}" for n in file.notes)):
        print_line(line)


def apply_file(client: Client, file: JobFile, how: How = How()) -> tuple[Applied, ...]:
    """Applies a job file; its name is recorded as the jobs' source.

    Raises:
        Refused: the mesh refuses a definition; nothing is written.
        SextonError: the call failed otherwise.
    """
    try:
        with progress.line() as tell:
            # Somebody who looks on is worth the call in parts.
            on_progress = None
            if progress.shown():
                on_progress = partial(_tell, tell)
            return client.jobs.apply(
                messages_of(file),
                source=how.source or Path(file.source).name[:200],
                prune=how.prune,
                prune_namespaces=(file.namespace,) if how.prune else (),
                dry_run=how.dry_run,
                on_progress=on_progress,
            )
    except errors.InvalidArgument as error:
        if not error.field.startswith("jobs["):
            raise
        raise Refused(_placed(error.message, file)) from None


def _placed(refusal: str, file: JobFile) -> str:
    """Gives what the mesh refuses, each with the line of the file on which its job begins."""
    lines = {job.full_name: job.line for job in file.jobs}

    def place(found: re.Match[str]) -> str:
        name = f"{found['namespace']}/{found['job']}"
        return f"{file.source}:{lines[name]}: {name}: " if name in lines else f"{name}: "

    return _REFUSED_JOB.sub(place, refusal)


def _tell(tell: Callable[[str], None], done: int, of: int) -> None:
    tell(f"{done:,} of {of:,} jobs")


def lines_of(applied: Sequence[Applied], *, dry_run: bool = False) -> list[str]:
    """Tells what became of each job, when it runs next, and how to start it now."""
    words = _WOULD if dry_run else _DONE
    lines: list[str] = []
    unchanged = 0
    for each in applied:
        unchanged += each.change is Change.NONE
        if each.change is Change.NONE and unchanged > _MOST_SHOWN:
            continue
        after = "" if each.change is Change.PRUNED else f"; {_next(each)}"
        lines.append(f"{each.job.full_name}: {words[each.change]}{_changed(each)}{after}")
        lines += [f"  {line}" for line in _moved(each)]
        lines += [f"  warning: {text}" for text in (*each.job.warnings, *each.job.notices)]
    if unchanged > _MOST_SHOWN:
        lines.append(f"... and {unchanged - _MOST_SHOWN} more are unchanged")
    new = next((each for each in applied if each.change is Change.CREATED), None)
    if new is not None and not dry_run:
        lines.append(f"to start one now: sexton jobs trigger {new.job.full_name}")
    return lines


def _moved(applied: Applied) -> Iterator[str]:
    """Tells which nominal times of the next 30 days come and go."""
    if applied.change in (Change.NONE, Change.CREATED):
        return
    for word, number, first in (
        ("gains", applied.gained, applied.gained_times),
        ("loses", applied.lost, applied.lost_times),
    ):
        if number:
            more = "at least " if number >= _COUNTED else ""
            shown = ", ".join(times.utc(moment) for moment in first[:3])
            dots = ", ..." if first and number > len(first[:3]) else ""
            yield (f"{word} {more}{number:,} runs in 30 days{f': {shown}{dots}' if shown else ''}")


def _changed(applied: Applied) -> str:
    return f" ({', '.join(applied.changed)})" if applied.changed else ""


def _next(applied: Applied) -> str:
    job = applied.job
    if job.spec is not None and not job.spec.schedules:
        return "no schedule: runs by trigger and backfill"
    if job.next_time is None:
        return "never runs again"
    zone = times.zone_of(job.spec)
    shown = times.utc(job.next_time)
    if zone != "UTC":
        shown = f"{times.local(job.next_time, zone)} ({zone}), {shown}"
    return f"paused; would run next {shown}" if job.paused else f"runs next {shown}"


def _data(applied: Applied) -> dict[str, Any]:
    return {
        "job": applied.job.full_name,
        "change": applied.change.value,
        "changed": list(applied.changed),
        "version": applied.job.version,
        "next_time": times.utc_or_none(applied.job.next_time),
        "warnings": list(applied.job.warnings),
        "notices": list(applied.job.notices),
        "gained": applied.gained,
        "lost": applied.lost,
        "gained_times": [times.utc_or_none(moment) for moment in applied.gained_times],
        "lost_times": [times.utc_or_none(moment) for moment in applied.lost_times],
    }
