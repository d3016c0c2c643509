"""Now: due against done, lateness, failures that look alike, what is late, who leads."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from sexton.v1 import scheduler_pb2 as api
from sexton_console.mesh.api import part
from sexton_console.mesh.numbers import Minute
from sexton_console.web import charts
from sexton_console.web.desk import Desk, desk_of
from sexton_console.web.pages.job import LATE_S, RunRow, run_row
from sexton_console.web.render import render
from sexton_console.web.shared import shared
from sexton_console.words import LIVE_STATES, enum_word

LIVE: Final = 200
"""Runs in flight that are looked at for late ones."""
SHOWN: Final = 12
FAILURES_S: Final = 3_600.0
_MEMBERS_S: Final = 2.0
_MINUTE_NS: Final = 60 * 10**9


async def show(request: Request) -> Response:
    """Shows how the mesh is now."""
    desk = desk_of(request)
    members, store, queues, live = await asyncio.gather(
        part(shared(desk, "members", _MEMBERS_S, desk.api.members)),
        part(shared(desk, "store", _MEMBERS_S, desk.api.store)),
        part(shared(desk, "queues", _MEMBERS_S, desk.api.queues)),
        part(shared(desk, "live", 1.0, lambda: desk.api.runs(states=LIVE_STATES, size=LIVE))),
    )
    numbers = desk.follower.numbers
    now_s = desk.now_s
    running = [run_row(run) for run in live.value.runs] if live.value else []
    minutes = _with_live(numbers.minutes(now_s), running)
    late = [run for run in running if run.is_late(now_s)]
    last = minutes[-6:-1]
    return render(
        request,
        "now.html",
        title="Now",
        section="now",
        live=True,
        members=members,
        leaders=[member for member in members.value.members if member.leading]
        if members.value
        else [],
        counts=_counts(members.value),
        store=store,
        queues=queues,
        in_flight=live,
        chart=charts.minutes(minutes),
        due_per_minute=sum(each.due for each in last) / len(last),
        done_per_minute=sum(each.done for each in last) / len(last),
        failed_last_hour=sum(each.failed for each in minutes),
        lateness=numbers.lateness(now_s),
        estimated=numbers.estimated(now_s),
        failures=numbers.failures(now_s - FAILURES_S)[:SHOWN],
        late=sorted(late, key=lambda run: run.due)[:SHOWN],
        late_count=len(late),
        running=sorted(running, key=lambda run: -run.due)[:SHOWN],
        running_count=len(running),
        more_live=bool(live.value and live.value.next_page_token),
        hour_ago=(desk.now_s - 3_600),
        counted=numbers.counted,
        late_after=timedelta(seconds=LATE_S),
    )


def _with_live(minutes: Sequence[Minute], runs: Iterable[RunRow]) -> list[Minute]:
    """Adds runs in flight to the minutes in which they were due.

    Else, where a line stands still, nothing would seem to be due.
    """
    waiting = Counter(run.due // _MINUTE_NS for run in runs)
    return [replace(each, due=each.due + waiting[each.number]) for each in minutes]


def _counts(answer: api.ListMembersResponse | None) -> dict[str, int]:
    counts: dict[str, int] = {}
    for member in answer.members if answer is not None else ():
        word = enum_word(api.Member.Role, member.role, "ROLE_")
        counts[word] = counts.get(word, 0) + 1
    return counts


async def members_of(desk: Desk) -> api.ListMembersResponse:
    """Gives the members, as they were at most a moment ago."""
    return await shared(desk, "members", _MEMBERS_S, desk.api.members)
