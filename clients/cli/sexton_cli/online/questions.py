"""The work of `sexton jobs preview`, `ledger`, `versions`, `diff` and `load`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import unified_diff
from typing import Any

from sexton.jobs import JobSpec
from sexton.ledger import JobVersion, LedgerEntry, Load, Preview
from sexton_cli.jobfile.write import fields_of
from sexton_cli.online import runs, times
from sexton_cli.output import ListFormat, print_data, print_line, print_table
from sexton_cli.yaml_text import yaml_text
from sexton_core.schedules.forecast import HERD
from sexton_core.words import Reason

_FEW = 2
"""One or two jobs are no herd, however often they are due."""


def show_preview(found: Preview, zone: str, output: ListFormat) -> None:
    """Prints the next nominal times."""
    if output is ListFormat.NAME:
        for each in found.times:
            print_line(times.utc(each.nominal_time))
        return
    data = {
        "times": [
            {
                "nominal_time": times.utc_or_none(each.nominal_time),
                "due_time": times.utc_or_none(each.due_time),
                "local_time": each.local_time,
                "note": each.note,
            }
            for each in found.times
        ],
        "complete": found.complete,
        "descriptions": list(found.descriptions),
        "warnings": list(found.warnings),
    }
    if print_data(data, output):
        return
    for description in found.descriptions:
        print_line(description)
    rows = []
    for each in found.times:
        notes = [each.note] if each.note else []
        if each.due_time != each.nominal_time:
            notes.append(f"due {times.utc(each.due_time)}")
        rows.append((*times.both(each.nominal_time, zone), "; ".join(notes)))
    if rows:
        print_table((*times.both_headers(zone), "NOTE"), rows)
    if found.complete:
        print_line("and none after that" if rows else "no nominal time: it never runs by itself")
    for warning in found.warnings:
        print_line(f"warning: {warning}")


def show_ledger(entries: Iterable[LedgerEntry], zone: str, output: ListFormat) -> None:
    """Prints what became of each nominal time."""
    found = list(entries)
    if output is ListFormat.NAME:
        for each in found:
            print_line(times.utc(each.nominal_time))
    elif not print_data([_entry_data(each) for each in found], output):
        print_table(
            (*times.both_headers(zone, "NOMINAL "), "DECISION", "WHY", "RUN"),
            [
                (
                    *times.both(each.nominal_time, zone),
                    each.decision or ("none" if each.reason == Reason.DELETED else "not kept"),
                    each.reason + (f" by {each.blocked_by}" if each.blocked_by else ""),
                    f"{each.run.id}: {each.run.state.value}" if each.run else times.NEVER,
                )
                for each in found
            ],
        )


def show_versions(versions: Sequence[JobVersion], output: ListFormat) -> None:
    """Prints the definitions that a job has had."""
    if output is ListFormat.NAME:
        for each in versions:
            print_line(str(each.version))
        return
    data = [
        {
            "version": each.version,
            "after_time": times.utc_or_none(each.after_time),
            "until_time": times.utc_or_none(each.until_time),
            "source": each.source or None,
            "definition": fields_of(each.spec),
        }
        for each in versions
    ]
    if print_data(data, output):
        return
    rows = []
    for each, before in zip(versions, [*versions[1:], None], strict=True):
        rows.append(
            (
                each.version,
                times.utc(each.after_time),
                times.utc(each.until_time) if each.until_time else "now",
                each.source or times.NEVER,
                ", ".join(_changed(before.spec, each.spec)) if before else times.NEVER,
            )
        )
    print_table(("VERSION", "RULES TIMES AFTER", "UP TO", "APPLIED FROM", "CHANGED"), rows)


def show_diff(old: JobSpec, new: JobSpec, names: tuple[str, str]) -> bool:
    """Prints the difference of two definitions, as job files; tells whether there is one."""
    before, after = (yaml_text(fields_of(spec)).splitlines() for spec in (old, new))
    lines = list(unified_diff(before, after, *names, n=2, lineterm=""))
    for line in lines:
        print_line(line)
    return bool(lines)


def show_load(found: Load, most: int, output: ListFormat, interval: str) -> None:
    """Prints how many nominal times lie ahead, and when most."""
    data = {
        "total": found.total,
        "jobs": found.jobs,
        "truncated": found.truncated,
        "intervals": [
            {
                "start_time": times.utc_or_none(each.start_time),
                "count": each.count,
                "jobs": list(each.jobs),
            }
            for each in found.intervals
        ],
    }
    if print_data(data, output):
        return
    more = "at least " if found.truncated else ""
    print_line(f"{more}{found.total:,} nominal times of {found.jobs:,} jobs")
    fullest = found.fullest[:most]
    if not fullest:
        return
    print_table(
        (f"FULLEST {interval}, FROM", "TIMES", "OF"),
        [(times.utc(each.start_time), each.count, _of(each.jobs)) for each in fullest],
    )
    if fullest[0].count >= HERD and len(fullest[0].jobs) > _FEW:
        print_line(
            f"warning: {fullest[0].count:,} are due within {interval} of "
            f"{times.utc(fullest[0].start_time)}: spread those that come at fixed times with `H` "
            "or `jitter`"
        )


def _of(jobs: Sequence[str]) -> str:
    return ", ".join(jobs)


def _changed(old: JobSpec, new: JobSpec) -> list[str]:
    before, after = fields_of(old), fields_of(new)
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


def _entry_data(entry: LedgerEntry) -> dict[str, Any]:
    return {
        "nominal_time": times.utc_or_none(entry.nominal_time),
        "decision": entry.decision,
        "reason": entry.reason or None,
        "blocked_by": entry.blocked_by or None,
        "decide_time": times.utc_or_none(entry.decide_time),
        "job_version": entry.job_version,
        "run": None if entry.run is None else runs.run_data(entry.run),
    }
