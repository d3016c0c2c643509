"""The past of a job, as far back as is asked for: what plots and calendar are drawn from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from sexton_console.mesh.follower import seen_of
from sexton_console.mesh.numbers import Seen
from sexton_console.web.desk import Desk
from sexton_console.web.errands import Found
from sexton_console.words import ENDED_STATES

NEWEST: Final = 300
"""Runs that are shown where no range is chosen."""
MAX_RUNS: Final = 5_000
"""Of a range; older ones are left out, and it is said that they are."""
_PAGE: Final = 500
_KEPT_S: Final = 5.0
_DAY_S: Final = 86_400.0
RANGES: Final = {"": 0.0, "day": _DAY_S, "week": 7 * _DAY_S, "month": 30 * _DAY_S,
                 "quarter": 91 * _DAY_S}  # fmt: skip
"""Seconds by word; none: the newest runs, however old they are."""


@dataclass(slots=True)
class Past:
    """Ended runs of a job, the newest first."""

    runs: list[Seen] = field(default_factory=list)
    since_s: float = 0.0
    """From here on all that are kept are there; earlier ones were not read."""


async def past_of(desk: Desk, name: str, range_: str) -> Found[Past]:
    """Reads a job's past, in the background where it is long."""
    return await desk.errands.answer(
        f"past {name} {range_}", _KEPT_S, lambda: _read(desk, name, range_)
    )


async def _read(desk: Desk, name: str, range_: str) -> AsyncIterator[Past]:
    since_s = desk.now_s - RANGES[range_] if range_ else 0.0
    most = MAX_RUNS if range_ else NEWEST
    past, token = Past(), ""
    while True:
        size = min(_PAGE, most - len(past.runs))
        answer = await desk.api.runs(name, states=ENDED_STATES, size=size, token=token)
        found = [seen_of(run) for run in answer.runs if run.HasField("end_time")]
        past.runs += [run for run in found if run.ended_s >= since_s]
        token = answer.next_page_token
        # They come by the time for which they were asked, newest first.
        reached_s = min((run.due_s for run in found), default=desk.now_s)
        full = len(past.runs) >= most
        if not token or (found and reached_s < since_s):
            past.since_s = since_s
        elif past.runs:
            past.since_s = max(since_s, past.runs[-1].ended_s)
        yield past
        if not token or full or (found and reached_s < since_s):
            return
