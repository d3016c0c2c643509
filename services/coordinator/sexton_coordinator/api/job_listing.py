"""Lists jobs, a page at a time, in bounded work."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

from sexton.errors import InvalidArgument
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import job_pb2 as pb
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import checks
from sexton_coordinator.api.job_order import Fit, JobOrder
from sexton_coordinator.api.notices import Notices
from sexton_coordinator.api.showing import Viewer
from sexton_coordinator.api.tokens import make_token, read_token
from sexton_coordinator.jobs_store import get_all
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.writes import JobName
from sexton_core.policy.state import Handle
from sexton_records import keys
from sexton_runtime.kv.types import KeyValue

CHUNK: Final = 50
MAX_SCANNED: Final = 2_000
"""Definitions looked at for one page: where a prefix is rare, a page has few jobs, or none."""

_SEARCHED: Final = 500
MAX_SEARCHED: Final = 10_000
"""The same where words are looked for, at once and for one page: most are put aside unread."""

MAX_ANSWER_BYTES: Final = 2 * 1024 * 1024
"""A page ends when it has grown to this; the largest job adds to it, and 4 MiB are the limit."""

MAX_LIVE_LOOKED_AT: Final = 5_000
"""Handles looked at for one page."""

VIEWS: Final = {
    api.VIEW_UNSPECIFIED: False,
    api.VIEW_BASIC: False,
    api.VIEW_FULL: True,
}
"""Whether a view is full; lists are not unless asked to be."""

_PREFIX: Final = re.compile(r"([a-z][a-z0-9-]{0,62})?")


class JobLister:
    """Lists jobs."""

    def __init__(self, mesh: Mesh, notices: Notices) -> None:
        self._mesh = mesh
        self._viewer = Viewer(mesh)
        self._notices = notices

    async def page(self, request: api.ListJobsRequest) -> api.ListJobsResponse:
        """Returns a page, and where the next one begins.

        Raises:
            InvalidArgument: a field can't be used, or the token is of another query.

        """
        parent = checks.parent_name("parent", request.parent, jobs=False)
        size = checks.page_size(request.page_size)
        full = checks.word(VIEWS, "view", request.view)
        if _PREFIX.fullmatch(request.prefix) is None:
            raise InvalidArgument("prefix", request.prefix, "the beginning of a job's id")
        fit = Fit(request, parent)
        order = JobOrder(self._mesh, request, parent)
        query = _query(request)
        last = ""
        if request.page_token:
            (last,) = read_token(query, request.page_token, (1,))
        chunk, most = (_SEARCHED, MAX_SEARCHED) if fit.searches else (CHUNK, MAX_SCANNED)
        response = api.ListJobsResponse()
        looked_at = answer_bytes = 0
        async with aclosing(order.behind(last, chunk)) as pieces:
            async for piece in pieces:
                fitting = [each for each in piece.found if fit.fits(each[1])]
                wanted = fitting[: size - len(response.jobs)]
                rows = await self._rows(wanted, full=full)
                shown: list[_Row] = []
                for row in rows:
                    shown.append(row)
                    answer_bytes += row.message.ByteSize()
                    looked_at += len(row.live)
                    if answer_bytes > MAX_ANSWER_BYTES or looked_at > MAX_LIVE_LOOKED_AT:
                        break
                await self._viewer.add_live_runs((row.message, row.uid, row.live) for row in shown)
                if full:
                    await self._notices.add(*(row.message for row in shown))
                response.jobs.extend(row.message for row in shown)
                response.scanned += len(piece.found)
                if len(shown) < len(rows):
                    last = shown[-1].position
                    break
                if len(wanted) < len(fitting):
                    last = wanted[-1][0]
                    break
                if piece.complete:
                    return response
                last = piece.found[-1][0] if piece.found else last
                if len(response.jobs) == size or response.scanned >= most:
                    break
                await asyncio.sleep(0)
        response.next_page_token = make_token(query, [last])
        return response

    async def _rows(self, found: Sequence[tuple[str, KeyValue]], *, full: bool) -> list[_Row]:
        """Returns jobs as they are listed, but for their live runs."""
        mesh = self._mesh
        named: list[tuple[str, JobName, records.JobRecord, KeyValue]] = []
        for position, kv in found:
            record = records.JobRecord.FromString(kv.value)
            name = mesh.jobs.name_of(*keys.parse_job_key(kv.key), record.uid)
            named.append((position, name, record, kv))
        states = await get_all(mesh.store, [name.state_key for _, name, _, _ in named])
        rows = []
        for (position, name, record, kv), state_kv in zip(named, states, strict=True):
            if state_kv.create_revision:  # else it was deleted since the page was read
                state = records.StateRecord.FromString(state_kv.value)
                message, decoded = self._viewer.listed(
                    name, record, kv.mod_revision, state, full=full
                )
                rows.append(_Row(position, name.uid, message, decoded.live))
        return rows


class _Row(NamedTuple):
    """A job on a page."""

    position: str
    uid: str
    message: pb.Job
    live: Sequence[Handle]


def _query(request: api.ListJobsRequest) -> tuple[object, ...]:
    """Gives everything that decides about what is listed."""
    return (
        "ListJobs",
        request.parent,
        request.prefix,
        request.words,
        request.paused if request.HasField("paused") else None,
        request.order,
        list(request.names),
    )
