"""Lists jobs, a page at a time, in bounded work."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from sexton.errors import InvalidArgument
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import job_pb2 as pb
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import checks
from sexton_coordinator.api.notices import Notices
from sexton_coordinator.api.showing import Viewer
from sexton_coordinator.api.tokens import make_token, read_token
from sexton_coordinator.jobs_store import get_all
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.writes import JobName
from sexton_core.policy.state import Handle
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
        scanned = looked_at = answer_bytes = 0
        while scanned < MAX_SCANNED:
            page = await self._mesh.store.scan(start, end, limit=CHUNK)
            fitting = [kv for kv in page.kvs if _job_id(kv).startswith(request.prefix)]
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
            if len(shown) < len(rows):
                last = shown[-1].key
                break
            if len(wanted) < len(fitting):
                last = wanted[-1].key
                break
            if not page.next_token:
                return response
            last = page.kvs[-1].key
            if len(response.jobs) == size:
                break
            start = last + b"\0"
            scanned += len(page.kvs)
            await asyncio.sleep(0)
        response.next_page_token = make_token(query, [last.decode()])
        return response

    async def _rows(self, kvs: Sequence[KeyValue], *, full: bool) -> list[_Row]:
        """Returns jobs as they are listed, but for their live runs."""
        mesh = self._mesh
        named: list[tuple[JobName, records.JobRecord, KeyValue]] = []
        for kv in kvs:
            record = records.JobRecord.FromString(kv.value)
            name = mesh.jobs.name_of(*keys.parse_job_key(kv.key), record.uid)
            named.append((name, record, kv))
        states = await get_all(mesh.store, [name.state_key for name, _, _ in named])
        rows = []
        for (name, record, kv), state_kv in zip(named, states, strict=True):
            if state_kv.create_revision:  # else it was deleted since the page was read
                state = records.StateRecord.FromString(state_kv.value)
                message, decoded = self._viewer.listed(
                    name, record, kv.mod_revision, state, full=full
                )
                rows.append(_Row(kv.key, name.uid, message, decoded.live))
        return rows


class _Row(NamedTuple):
    """A job on a page."""

    key: bytes
    uid: str
    message: pb.Job
    live: Sequence[Handle]


def _job_id(kv: KeyValue) -> str:
    return keys.parse_job_key(kv.key)[1]
