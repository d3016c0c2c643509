"""Lists jobs, a page at a time, in bounded work."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from sexton.errors import InvalidArgument
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import checks
from sexton_coordinator.api.showing import Viewer
from sexton_coordinator.api.tokens import make_token, read_token
from sexton_coordinator.jobs_store import get_all
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.writes import JobName
from sexton_records import keys
from sexton_runtime.kv.types import KeyValue, prefix_end

CHUNK: Final = 50
MAX_SCANNED: Final = 2_000
"""Definitions looked at for one page: where a prefix is rare, a page has few jobs, or none."""

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

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._viewer = Viewer(mesh)

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
        query = ("ListJobs", request.parent, request.prefix)
        start = keys.JOBS
        if parent is not None:
            start = keys.namespace_prefix(parent.namespace) + request.prefix.encode()
        end = prefix_end(start)
        last = b""
        if request.page_token:
            (text,) = read_token(query, request.page_token, (1,))
            last = text.encode()
            start = max(start, last + b"\0")
        response = api.ListJobsResponse()
        scanned = looked_at = 0
        while len(response.jobs) < size and scanned < MAX_SCANNED:
            page = await self._mesh.store.scan(start, end, limit=CHUNK)
            fitting = [kv for kv in page.kvs if _job_id(kv).startswith(request.prefix)]
            room = size - len(response.jobs)
            last = page.kvs[-1].key if page.kvs else last
            if len(fitting) > room:
                last = fitting[room - 1].key
            elif not page.next_token:
                await self._show(fitting, response, full=full)
                return response
            looked_at += await self._show(fitting[:room], response, full=full)
            start = last + b"\0"
            scanned += len(page.kvs)
            if response.ByteSize() > MAX_ANSWER_BYTES or looked_at > MAX_LIVE_LOOKED_AT:
                break
            await asyncio.sleep(0)
        response.next_page_token = make_token(query, [last.decode()])
        return response

    async def _show(
        self, kvs: list[KeyValue], response: api.ListJobsResponse, *, full: bool
    ) -> int:
        """Adds jobs to an answer; returns how many handles were looked at."""
        mesh = self._mesh
        named: list[tuple[JobName, records.JobRecord, int]] = []
        for kv in kvs:
            record = records.JobRecord.FromString(kv.value)
            name = mesh.jobs.name_of(*keys.parse_job_key(kv.key), record.uid)
            named.append((name, record, kv.mod_revision))
        states = await get_all(mesh.store, [name.state_key for name, _, _ in named])
        lives = []
        for (name, record, revision), kv in zip(named, states, strict=True):
            if not kv.create_revision:
                continue  # deleted since the page was read
            state = records.StateRecord.FromString(kv.value)
            message, decoded = self._viewer.listed(name, record, revision, state, full=full)
            response.jobs.append(message)
            lives.append((response.jobs[-1], name.uid, decoded.live))
        await self._viewer.add_live_runs(lives)
        return sum(len(live) for _, _, live in lives)


def _job_id(kv: KeyValue) -> str:
    return keys.parse_job_key(kv.key)[1]
