"""Why: for any job and instant, the ordered gates with their values; the same as `sexton why`."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sexton.errors import NotFound
from sexton.v1 import job_pb2
from sexton_console.web import query
from sexton_console.web.desk import desk_of
from sexton_console.web.render import render
from sexton_console.words import job_name, zone_of


async def show(request: Request) -> Response:
    """Shows an explanation, or asks what is to be explained."""
    desk = desk_of(request)
    wanted = query.text(request, "job")
    shown: dict[str, Any] = {
        "job": wanted,
        "at": request.query_params.get("at", "").strip(),
        "found": None,
    }
    zone = "UTC"
    if wanted:
        namespace, slash, short = wanted.rpartition("/")
        name = job_name(namespace if slash else "default", short)
        last: datetime
        try:
            job = await desk.api.job(name)
            zone, last = zone_of(job.spec), _last_time(job)
        except NotFound as error:
            if "deleted_at" not in error.facts:
                raise
            last = datetime.fromisoformat(error.facts["deleted_at"]) + timedelta(seconds=1)
        moment = query.moment(request, "at", zone) or last
        shown["found"] = await desk.api.explain(name, moment)
        when = ["--at", shown["at"]] if shown["at"] else []
        shown |= {
            "namespace": namespace if slash else "default",
            "short": short,
            "command": shlex.join(["sexton", "why", wanted, *when]),
        }
    return render(request, "why.html", title="Why", section="why", zone=zone, **shown)


def _last_time(job: job_pb2.Job) -> datetime:
    """Gives the time that is asked about most: the last one that was decided, else the next."""
    if job.HasField("cursor_time"):
        return job.cursor_time.ToDatetime(UTC)
    return (job.next_time if job.HasField("next_time") else job.create_time).ToDatetime(UTC)
