"""Any trace by its id, such as that of a takeover: its spans on one axis."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from sexton_console.traces.rail import Rail
from sexton_console.traces.waterfall import waterfall
from sexton_console.web.desk import desk_of
from sexton_console.web.render import render
from sexton_console.web.rows import rows_of
from sexton_console.web.urls import trace_url


async def show(request: Request) -> Response:
    """Shows a trace."""
    desk = desk_of(request)
    try:
        trace = bytes.fromhex(request.path_params["trace"])
    except ValueError:
        raise HTTPException(404) from None
    spans = await desk.traces.spans(trace)
    start = min((span.start for span in spans), default=0)
    end = max((span.end for span in spans), default=0)
    rail = Rail(state="", moments=(), gaps=(), deliveries=(), start=start, end=end)
    falls = waterfall(rail, spans)
    return render(
        request,
        "trace.html",
        title="Trace",
        section="mesh",
        live=not spans,
        name=next((span.name for span in spans if not span.parent_id), ""),
        trace=trace.hex(),
        services=sorted({span.service for span in spans if span.service}),
        spans=len(spans),
        zone="UTC",
        **rows_of(request, falls, trace_url(trace.hex())),
    )
