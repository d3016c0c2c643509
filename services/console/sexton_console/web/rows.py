"""A waterfall in parts: a browser asks for the further ones as they come into view."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request

from sexton_console.traces.waterfall import Waterfall
from sexton_console.web import query
from sexton_console.web.urls import with_query

ROWS: Final = 1_000
"""Rows at once."""


def rows_of(request: Request, falls: Waterfall, here: str) -> dict[str, Any]:
    """Gives what a page shows of a waterfall: the rows that are asked for, and where to go on."""
    begin = query.number(request, "from", len(falls.bars))
    return {
        "falls": falls,
        "bars": falls.bars[begin : begin + ROWS],
        "here": here,
        "begin": begin,
        "further": len(falls.bars) - begin - ROWS,
        "further_rows": with_query(here, **{"from": begin + ROWS}),
    }
