"""The work of `sexton jobs backfill` and `backfills`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sexton.backfills import Backfill, BackfillPlan
from sexton_cli.online import times
from sexton_cli.output import ListFormat, print_data, print_line, print_table


def show_plan(plan: BackfillPlan, zone: str, output: ListFormat) -> None:
    """Prints exactly what a backfill would run."""
    if output is ListFormat.NAME:
        for moment in plan.times:
            print_line(times.utc(moment))
        return
    data = {
        "times": [times.utc_or_none(moment) for moment in plan.times],
        "backfill": backfill_data(plan.backfill),
    }
    if print_data(data, output):
        return
    print_table(times.both_headers(zone), [times.both(moment, zone) for moment in plan.times])
    runs = "1 run" if len(plan.times) == 1 else f"{len(plan.times)} runs, in this order"
    print_line(f"{runs}; nothing has been started")


def show_list(found: Iterable[Backfill], output: ListFormat) -> None:
    """Prints backfills, one a line."""
    backfills = list(found)
    if output is ListFormat.NAME:
        for each in backfills:
            print_line(each.full_name)
    elif not print_data([backfill_data(each) for each in backfills], output):
        print_table(
            ("BACKFILL", "STATE", "STARTED", "FROM", "TO", "WAITS FOR"),
            [
                (
                    each.full_name,
                    each.state.value,
                    f"{each.started + each.skipped} of {each.total}",
                    times.utc(each.start_time),
                    times.utc(each.end_time),
                    each.waits_for or times.NEVER,
                )
                for each in backfills
            ],
        )


def show_change(backfill: Backfill, output: ListFormat) -> None:
    """Prints how a backfill stands."""
    if output is ListFormat.NAME:
        print_line(backfill.full_name)
    elif not print_data(backfill_data(backfill), output):
        waits = f", waits for {backfill.waits_for}" if backfill.waits_for else ""
        skipped = f", {backfill.skipped} left out" if backfill.skipped else ""
        print_line(
            f"{backfill.full_name}: {backfill.state.value}, {backfill.started} of "
            f"{backfill.total} started{skipped}{waits}"
        )


def backfill_data(backfill: Backfill) -> dict[str, Any]:
    """Returns a backfill for programs."""
    return {
        "namespace": backfill.namespace,
        "job": backfill.job,
        "id": backfill.id,
        "state": backfill.state.value,
        "start_time": times.utc_or_none(backfill.start_time),
        "end_time": times.utc_or_none(backfill.end_time),
        "order": backfill.order.value,
        "overlap": None if backfill.overlap is None else backfill.overlap.value,
        "skip_succeeded": backfill.skip_succeeded,
        "job_version": backfill.job_version,
        "total": backfill.total,
        "started": backfill.started,
        "skipped": backfill.skipped,
        "waits_for": backfill.waits_for or None,
        "create_time": times.utc_or_none(backfill.create_time),
        "ended_time": times.utc_or_none(backfill.ended_time),
    }
