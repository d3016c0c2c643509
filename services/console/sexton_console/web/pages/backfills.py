"""The backfills of a job, and a form to ask for one."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from sexton.v1 import backfill_pb2
from sexton_console.mesh.api import part
from sexton_console.web.desk import desk_of
from sexton_console.web.render import render
from sexton_console.words import enum_word, job_name, zone_of

_UNENDED: Final = "starting"


class Row(NamedTuple):
    """A backfill in the list."""

    id: str
    state: str
    start: int
    end: int
    done: int
    """Times that have their run, or were left out."""
    skipped: int
    total: int
    newest_first: bool
    waits_for: str
    asked: int
    ended: int

    @property
    def goes_on(self) -> bool:
        """Tells whether it still starts runs."""
        return self.state == _UNENDED


async def show(request: Request) -> Response:
    """Shows the backfills of a job that go on, or ended in the last 30 days."""
    desk = desk_of(request)
    namespace, short = request.path_params["namespace"], request.path_params["job"]
    name = job_name(namespace, short)
    job, found = await asyncio.gather(desk.api.job(name), part(desk.api.backfills(name)))
    return render(
        request,
        "backfills.html",
        title=f"Backfills of {short}",
        section="jobs",
        live=True,
        namespace=namespace,
        short=short,
        zone=zone_of(job.spec),
        found=found,
        rows=[_row(each) for each in found.value or ()],
    )


def _row(backfill: backfill_pb2.Backfill) -> Row:
    return Row(
        id=backfill.name.rpartition("/")[2],
        state=enum_word(backfill_pb2.BackfillState, backfill.state, "BACKFILL_STATE_"),
        start=backfill.start_time.ToNanoseconds(),
        end=backfill.end_time.ToNanoseconds(),
        done=backfill.started + backfill.skipped,
        skipped=backfill.skipped,
        total=backfill.total,
        newest_first=backfill.order == backfill_pb2.BACKFILL_ORDER_NEWEST_FIRST,
        waits_for=backfill.waits_for,
        asked=backfill.create_time.ToNanoseconds(),
        ended=backfill.end_state_time.ToNanoseconds(),
    )
