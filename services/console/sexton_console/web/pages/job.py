"""One job: its definition and versions, its times, its ledger, how long and how late it ran."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from sexton.v1 import run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_console.mesh.api import part
from sexton_console.web import charts, definition, query
from sexton_console.web.desk import desk_of
from sexton_console.web.pages.past import RANGES, Past, past_of
from sexton_console.web.render import render
from sexton_console.web.shared import shared
from sexton_console.web.urls import job_url, with_query
from sexton_console.words import (
    job_name,
    run_parts,
    run_state,
    schedule_text,
    zone_of,
)

NEXT: Final = 20
LEDGER: Final = 60
RUNS: Final = 20
LATE_S: Final = 15.0
"""From here on a start counts as late: what `late_after` is where a job does not say otherwise."""


class RunRow(NamedTuple):
    """A run in a list."""

    namespace: str
    job: str
    run: str
    state: str
    nominal: int
    due: int
    started: int
    ended: int
    attempts: int
    worker: str
    error: str

    @property
    def late_s(self) -> float | None:
        """Gives how late it started."""
        return max(0, self.started - self.due) / 1e9 if self.started else None

    def is_late(self, now_s: float) -> bool:
        """Tells whether it started late, or has not started and is late already."""
        return (self.started or now_s * 1e9) - self.due > LATE_S * 1e9

    @property
    def took_s(self) -> float | None:
        """Gives the time from its first assignment, or from when it was due, to its end."""
        took = max(0, self.ended - self.started) / 1e9
        return took if self.started and self.ended else None


def run_row(run: run_pb2.Run) -> RunRow:
    """Gives what is listed of a run."""
    namespace, job, run_id = run_parts(run.name)
    due = run.due_time.ToNanoseconds()
    # What is handed out before its time is kept until then.
    first = max(run.attempts[0].assign_time.ToNanoseconds(), due) if run.attempts else 0
    error = ": ".join(filter(None, (run.error.kind, run.error.message)))
    return RunRow(
        namespace=namespace,
        job=job,
        run=run_id,
        state=run_state(run.state),
        nominal=run.nominal_time.ToNanoseconds(),
        due=due,
        started=first,
        ended=run.end_time.ToNanoseconds() if run.HasField("end_time") else 0,
        attempts=run.attempts[-1].number if run.attempts else 0,
        worker=run.attempts[-1].worker if run.attempts else "",
        error=error,
    )


async def show(request: Request) -> Response:
    """Shows a job."""
    desk = desk_of(request)
    namespace, short = request.path_params["namespace"], request.path_params["job"]
    name = job_name(namespace, short)
    here = job_url(namespace, short)
    job = await desk.api.job(name)
    zone = zone_of(job.spec)
    ledger_page = request.query_params.get("ledger", "")
    range_ = query.choice(request, "range", RANGES)
    preview, ledger, versions, recent, found = await asyncio.gather(
        part(
            shared(desk, f"next {name} {job.etag} {job.cursor_time.seconds}", 5.0,
                   lambda: desk.api.preview(name, count=NEXT))
        ),
        part(desk.api.decisions(name, size=LEDGER, token=ledger_page)),
        part(shared(desk, f"versions {name} {job.version}", 60.0,
                    lambda: desk.api.versions(name))),
        desk.api.runs(name, size=RUNS),
        past_of(desk, name, range_),
    )  # fmt: skip
    version = query.text(request, "version")
    past = found.value or Past()
    since_s = desk.now_s - RANGES[range_] if range_ else 0.0
    shown_versions = versions.value or ()
    return render(
        request,
        "job.html",
        title=short,
        section="jobs",
        live=not (ledger_page or version),
        namespace=namespace,
        short=short,
        job=job,
        zone=zone,
        schedules=[(schedule_text(each), each.time_zone or "UTC") for each in job.spec.schedules],
        preview=preview,
        ledger=ledger,
        ledger_rows=_ledger_rows(ledger.value),
        versions=versions,
        diff=definition.diff_of(shown_versions, version),
        version=version,
        lines=definition.lines_of(job.spec),
        facts=definition.facts_of(job.spec),
        runs=[run_row(run) for run in recent.runs],
        plot=charts.plot(past.runs, since_s, desk.now_s if range_ else 0.0),
        days=charts.calendar(past.runs, desk.now_s, past.since_s),
        past=past,
        past_complete=found.complete,
        past_absent=found.absent,
        since_s=since_s,
        range=range_,
        ranges=[(word or "newest runs", with_query(here, range=word), word) for word in RANGES],
        outcomes=desk.follower.numbers.outcomes(f"{namespace}/{short}"),
    )


class LedgerRow(NamedTuple):
    """What became of one nominal time."""

    nominal: int
    decision: str
    reason: str
    blocked_by: str
    run: RunRow | None
    decided: int
    version: int
    gap: bool
    """Whether the time to the row above is longer than a day: a line shows it."""


def _ledger_rows(answer: api.ListDecisionsResponse | None) -> list[LedgerRow]:
    rows: list[LedgerRow] = []
    before = 0
    for entry in answer.entries if answer is not None else ():
        nominal = entry.nominal_time.ToNanoseconds()
        far = bool(before) and abs(before - nominal) > timedelta(days=1).total_seconds() * 1e9
        before = nominal
        rows.append(
            LedgerRow(
                nominal=nominal,
                decision=entry.decision,
                reason=entry.reason.replace("_", " "),
                blocked_by=entry.blocked_by,
                run=run_row(entry.run) if entry.HasField("run") else None,
                decided=entry.decide_time.ToNanoseconds() if entry.HasField("decide_time") else 0,
                version=entry.job_version,
                gap=far,
            )
        )
    return rows
