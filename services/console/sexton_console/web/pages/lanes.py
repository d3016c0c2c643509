"""What the agenda shows of each job: read in the background, and kept by parts of ten minutes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from sexton.v1 import job_pb2, run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_console.mesh.api import MeshApi, part
from sexton_console.web.desk import Desk
from sexton_console.web.errands import Found
from sexton_console.words import run_state

BIN_S: Final = 600
"""Seconds of one mark."""
_MOST: Final = 1_000
"""Instants of one job that are read, behind and ahead."""
_KEPT_S: Final = 15.0
_AT_ONCE: Final = 8

_RANK: Final = {
    "failed": 9, "timed_out": 9, "lost": 9, "missed": 8, "expired": 8, "dropped": 7, "skipped": 6,
    "excluded": 5, "cancelled": 4, "terminated": 4, "running": 3, "waiting": 3, "retrying": 3,
    "buffered": 3, "due": 2, "succeeded": 1, "fired": 1, "forecast": 0,
}  # fmt: skip
"""Of several decisions in one mark the one that a person should see first is shown."""


class Span(NamedTuple):
    """From when to when is read, and where what became ends and what will become begins."""

    start: datetime
    end: datetime
    now: datetime


@dataclass(slots=True)
class Read:
    """What was read of a job."""

    marks: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By the second in which a part of ten minutes begins: what became of it, and of how many."""
    unread: list[tuple[datetime, datetime]] = field(default_factory=list)
    """Where there are more instants than were read."""

    def add(self, time: datetime, state: str) -> None:
        """Adds an instant."""
        begin = int(time.timestamp()) // BIN_S * BIN_S
        known, times = self.marks.get(begin, ("", 0))
        worse = _RANK.get(state, 0) >= _RANK.get(known, -1)
        self.marks[begin] = (state if worse else known, times + 1)


async def lanes_of(
    desk: Desk, page: str, jobs: Sequence[job_pb2.Job], span: Span
) -> Found[dict[str, Read]]:
    """Gives what is known of jobs, by name; `page`: what of them is looked at."""
    named = hashlib.blake2b(digest_size=12)
    for job in jobs:
        named.update(f"{job.name} {job.etag} ".encode())
    key = f"lanes {page} {named.hexdigest()}"
    return await desk.errands.answer(key, _KEPT_S, lambda: _read_all(desk.api, jobs, span))


async def _read_all(
    mesh: MeshApi, jobs: Iterable[job_pb2.Job], span: Span
) -> AsyncIterator[dict[str, Read]]:
    """Reads some at once; gives all that were read so far."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def read(job: job_pb2.Job) -> tuple[str, Read]:
        async with turns:
            found = Read()
            await asyncio.gather(_behind(mesh, job, span, found), _ahead(mesh, job, span, found))
            return job.name, found

    reading = [asyncio.create_task(read(job)) for job in jobs]
    found: dict[str, Read] = {}
    yield found
    try:
        for each in asyncio.as_completed(reading):
            name, read_of_it = await each
            found[name] = read_of_it
            yield found
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


async def _behind(mesh: MeshApi, job: job_pb2.Job, span: Span, found: Read) -> None:
    """Reads what became of the instants behind."""
    first, last = span.start, min(span.end, span.now)
    if last <= first:
        return
    ledger = await part(mesh.decisions(job.name, start=first, end=last, size=_MOST))
    if ledger.value is not None:
        times = [(e.nominal_time.ToDatetime(UTC), _state(e)) for e in ledger.value.entries]
        more = ledger.value.next_page_token
    else:
        runs = await mesh.runs(job.name, after=first, before=last, size=_MOST)
        times = [
            (run.nominal_time.ToDatetime(UTC), run_state(run.state))
            for run in runs.runs
            if run.origin == run_pb2.RUN_ORIGIN_SCHEDULE
        ]
        more = runs.next_page_token
    for time, state in times:
        found.add(time, state)
    if more and times:
        found.unread.append((first, min(times)[0]))


async def _ahead(mesh: MeshApi, job: job_pb2.Job, span: Span, found: Read) -> None:
    """Reads what is asked for ahead."""
    first, last = max(span.start, span.now), span.end
    if last <= first or not job.spec.schedules or job.paused:
        return
    preview = await part(mesh.preview(job.name, after=first, until=last, count=_MOST))
    if preview.value is None:
        following = job.next_time.ToDatetime(UTC)
        if job.HasField("next_time") and first <= following <= last:
            found.add(following, "forecast")
        return
    times = [each.nominal_time.ToDatetime(UTC) for each in preview.value.times]
    for time in times:
        found.add(time, "forecast")
    if len(times) >= _MOST:
        found.unread.append((times[-1], last))


def _state(entry: api.LedgerEntry) -> str:
    return run_state(entry.run.state) if entry.HasField("run") else entry.decision
