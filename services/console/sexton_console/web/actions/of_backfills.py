"""What can be done with backfills: to run a range of a job's past, and to stop that."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from starlette.requests import Request

from sexton.errors import InvalidArgument
from sexton.v1 import backfill_pb2
from sexton_console.web import query
from sexton_console.web.actions.asking import Action, Done
from sexton_console.web.actions.of_jobs import job_of, new_id
from sexton_console.web.desk import Desk, desk_of
from sexton_console.web.times import iso, when
from sexton_console.words import zone_of

_SHOWN: Final = 100
"""Times of a plan that are listed one by one."""


async def start(request: Request) -> Action:
    """Runs the nominal times of a range again; first it tells which."""
    job = job_of(request)
    desk = desk_of(request)
    zone = zone_of((await desk.api.job(job.name)).spec)
    first, last = _bound(request, "from", zone), _bound(request, "to", zone)
    newest_first = query.choice(request, "order", ("newest_first",)) != ""
    skip = query.choice(request, "skip", ("succeeded",)) != ""
    asked = backfill_pb2.CreateBackfillRequest(
        parent=job.name,
        request_id=new_id(),
        skip_succeeded=skip,
        order=backfill_pb2.BACKFILL_ORDER_NEWEST_FIRST
        if newest_first
        else backfill_pb2.BACKFILL_ORDER_OLDEST_FIRST,
    )
    asked.start_time.FromDatetime(first)
    asked.end_time.FromDatetime(last)
    backfills = f"{job.url}/backfills"

    async def do(desk: Desk, form: Mapping[str, str]) -> Done:
        asked.request_id = form.get("request_id") or asked.request_id
        made = (await desk.api.backfill(asked)).backfill
        return f"The backfill {made.name.rpartition('/')[2]} has begun.", backfills

    plan = backfill_pb2.CreateBackfillRequest()
    plan.CopyFrom(asked)
    plan.validate_only = True
    times = (await desk.api.backfill(plan)).times
    if not times:  # the range has some, for else it would have been refused
        raise InvalidArgument("skip", "succeeded", "a range with a time that has not succeeded")
    many = f"{len(times)} run{'s' if len(times) != 1 else ''}"
    further = len(times) - _SHOWN
    return Action(
        title=f"Backfill {job.full}: {many}?",
        question="They start in this order, one when the one before has ended, whatever was "
        "decided about these times before. The ledger stays as it is.",
        lines=[
            *(when(time, zone) for time in times[:_SHOWN]),
            *([f"and {further} more"] if further > 0 else ()),
        ],
        button=f"Start {many}",
        back=backfills,
        do=do,
        fields={"request_id": asked.request_id},
        cli=shlex.join([
            "sexton", "jobs", "backfill", job.full, "--from", iso(first), "--to", iso(last),
            *(("--order", "newest_first") if newest_first else ()),
            *(("--skip-succeeded",) if skip else ()),
        ]),
        sdk=f"client.jobs.backfill({job.full!r}, {_python(first)}, {_python(last)}"
        + (", order=sexton.BackfillOrder.NEWEST_FIRST" if newest_first else "")
        + (", skip_succeeded=True" if skip else "")
        + ")",
    )  # fmt: skip


async def cancel(request: Request) -> Action:
    """Has a backfill start no further run."""
    job = job_of(request)
    backfill = request.path_params["backfill"]
    backfills = f"{job.url}/backfills"

    async def do(desk: Desk, _: Mapping[str, str]) -> Done:
        left = await desk.api.cancel_backfill(f"{job.name}/backfills/{backfill}")
        return f"It starts nothing further; {left.started} of {left.total} were started.", backfills

    return Action(
        title=f"Cancel backfill {backfill} of {job.full}?",
        question="It starts no further run. Those that it has started go on.",
        button="Cancel the backfill",
        back=backfills,
        do=do,
        cli=shlex.join(["sexton", "jobs", "backfills", job.full, "--cancel", backfill]),
        sdk=f"client.backfills.cancel({f'{job.full}/{backfill}'!r})",
    )


def _bound(request: Request, name: str, zone: str) -> datetime:
    moment = query.moment(request, name, zone)
    if moment is None:
        raise InvalidArgument(name, "", "a nominal time, such as 2026-11-29T21:30")
    return moment


def _python(moment: datetime) -> str:
    return f"datetime.fromisoformat({iso(moment)!r})"
