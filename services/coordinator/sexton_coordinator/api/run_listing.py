"""Lists runs, a page at a time, in bounded work: those in flight first, then those that ended.

Of one job the ended ones come in the order of the time in their ids, newest first; those of
backfills, whose ids begin with the backfill, come after the others. Of a namespace, or of all, they
come in the order in which they ended, newest first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from sexton.errors import InvalidArgument, NotFound
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import checks
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.job_listing import VIEWS
from sexton_coordinator.api.run_finding import RunFinder
from sexton_coordinator.api.run_order import Candidate, RunOrder
from sexton_coordinator.api.tokens import make_token, read_token
from sexton_coordinator.jobs_store import get_all
from sexton_coordinator.mesh import Mesh
from sexton_core.instants import Instant, format_instant
from sexton_core.runs.table import LIVE
from sexton_core.words import RunState
from sexton_records.runs import STATE_OF, run_message
from sexton_runtime.kv.types import KeyValue

CHUNK: Final = 50
MAX_EXAMINED: Final = 2_000
"""Runs looked at for one page: where few of them fit, a page has few runs, or none."""

MAX_ANSWER_BYTES: Final = 2 * 1024 * 1024
"""A page ends when it has grown to this; the largest run adds at most 1 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which runs are asked for."""

    namespace: str
    states: frozenset[run_pb2.RunState.ValueType]
    after: Instant
    before: Instant

    def state_fits(self, state: run_pb2.RunState.ValueType) -> bool:
        """Tells whether runs in this state are asked for."""
        return not self.states or state in self.states

    def fits(self, record: records.RunRecord) -> bool:
        """Tells whether a run is asked for, by what it ended at or is due at."""
        time = record.end_time_ns or record.due_ns
        return (
            (not self.namespace or record.template.namespace == self.namespace)
            and self.state_fits(record.state)
            and self.after <= time
            and (not self.before or time < self.before)
        )

    @property
    def wants_live(self) -> bool:
        """Tells whether some runs in flight may be asked for."""
        return not self.states or any(STATE_OF[state] in LIVE for state in self.states)

    @property
    def wants_ended(self) -> bool:
        """Tells whether some ended runs may be asked for."""
        return not self.states or any(STATE_OF[state] not in LIVE for state in self.states)


class RunLister:
    """Lists runs."""

    def __init__(self, mesh: Mesh, finder: RunFinder) -> None:
        self._mesh = mesh
        self._finder = finder

    async def page(self, request: api.ListRunsRequest) -> api.ListRunsResponse:
        """Returns a page, and where the next one begins.

        Raises:
            InvalidArgument: a field can't be used, or the token is of another query.
            NotFound: there is no such job, and no run of it is kept.

        """
        parent = checks.parent_name("parent", request.parent, jobs=True)
        size = checks.page_size(request.page_size)
        full = checks.word(VIEWS, "view", request.view)
        wanted = _filter(request, parent)
        query = (
            "ListRuns",
            request.parent,
            sorted(wanted.states),
            wanted.after,
            wanted.before,
        )
        position: list[str] = []
        if request.page_token:
            position = read_token(query, request.page_token, (2, 3, 4))
        order = RunOrder(self._mesh, self._finder, wanted.before)
        if parent is not None and parent.job:
            if not position and not await self._finder.exists(parent):
                raise NotFound("job", str(parent))
            candidates = order.of_job(
                parent, position, live=wanted.wants_live, ended=wanted.wants_ended
            )
        else:
            candidates = order.of_all(
                position,
                live=wanted.wants_live,
                ended=wanted.wants_ended,
                after=wanted.after,
            )
        response = api.ListRunsResponse()
        async with aclosing(candidates) as stream:
            last = await self._fill(response, stream, wanted, size, full=full)
        if last:
            response.next_page_token = make_token(query, last)
        return response

    async def _fill(
        self,
        response: api.ListRunsResponse,
        candidates: AsyncIterator[Candidate],
        wanted: Filter,
        size: int,
        *,
        full: bool,
    ) -> list[str]:
        """Fills a page; returns the position behind which the next begins, none at the end."""
        examined = answer_bytes = 0
        while True:
            chunk, complete = await _take(candidates, CHUNK)
            for number, kv in enumerate(await self._records(chunk, wanted), start=1):
                if kv is None or not kv.create_revision:
                    continue
                record = records.RunRecord.FromString(kv.value)
                if not wanted.fits(record):
                    continue
                message = run_message(record, kv.mod_revision, full=full)
                response.runs.append(message)
                answer_bytes += message.ByteSize()
                if len(response.runs) == size or answer_bytes > MAX_ANSWER_BYTES:
                    at_end = complete and number == len(chunk)
                    return [] if at_end else chunk[number - 1].position
            if complete:
                return []
            examined += len(chunk)
            if examined >= MAX_EXAMINED:
                return chunk[-1].position
            await asyncio.sleep(0)

    async def _records(self, chunk: list[Candidate], wanted: Filter) -> list[KeyValue | None]:
        """Reads what the candidates name, but what their index entry shows to be in vain."""
        fitting = [
            candidate
            for candidate in chunk
            if candidate.entry is None
            or (
                wanted.state_fits(candidate.entry.state)
                and wanted.namespace in ("", candidate.entry.namespace)
            )
        ]
        found = await get_all(self._mesh.store, [candidate.key for candidate in fitting])
        read = dict(zip((candidate.key for candidate in fitting), found, strict=True))
        return [read.get(candidate.key) for candidate in chunk]


async def _take(candidates: AsyncIterator[Candidate], most: int) -> tuple[list[Candidate], bool]:
    """Returns the next candidates, and whether there are no more."""
    chunk: list[Candidate] = []
    async for candidate in candidates:
        chunk.append(candidate)
        if len(chunk) == most:
            return chunk, False
    return chunk, True


def _filter(request: api.ListRunsRequest, parent: Name | None) -> Filter:
    for state in request.states:
        if state not in STATE_OF:
            raise InvalidArgument("states", state, f"of {', '.join(RunState)}")
    after = before = 0
    if request.HasField("after_time"):
        after = checks.instant("after_time", request.after_time)
    if request.HasField("before_time"):
        before = checks.instant("before_time", request.before_time)
        if before <= after:
            expected = f"a time later than {format_instant(after)}"
            raise InvalidArgument("before_time", format_instant(before), expected)
    return Filter(
        namespace=parent.namespace if parent is not None else "",
        states=frozenset(request.states),
        after=after,
        before=before,
    )
