"""Queues and workers: how long the lines are, who serves them, and what would be lost."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sexton_console.mesh.api import part
from sexton_console.web.desk import desk_of
from sexton_console.web.pages.now import members_of
from sexton_console.web.render import render
from sexton_console.web.shared import shared


async def show(request: Request) -> Response:
    """Shows the queues and the workers."""
    desk = desk_of(request)
    queues = await part(shared(desk, "queues", 1.0, desk.api.queues))
    members = await part(members_of(desk)) if queues.value is None else None
    minutes = desk.follower.numbers.minutes(desk.now_s)[-6:-1]
    return render(
        request,
        "queues.html",
        title="Queues and workers",
        section="queues",
        live=True,
        queues=queues,
        members=members,
        done_per_minute=sum(minute.done for minute in minutes) / len(minutes),
    )
