"""Backfills: asked for, shown, and stopped. The leader of the job's shard works them off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from sexton.errors import NotFound, StaleRevision
from sexton.internal.v1 import coordinator_pb2 as internal
from sexton.internal.v1 import records_pb2 as records
from sexton.internal.v1.coordinator_pb2_grpc import LeaderServiceStub
from sexton.v1 import backfill_pb2 as api
from sexton.v1 import job_pb2
from sexton_coordinator.api import checks
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.peers import ask_holder
from sexton_coordinator.api.run_finding import RunFinder
from sexton_coordinator.api.showing import handle_key
from sexton_coordinator.api.tokens import make_token, read_token
from sexton_coordinator.jobs_store import LoadedJob, get_all, scan_all
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.requests import refused_backfill
from sexton_coordinator.writes import JobName
from sexton_core.errors import PolicyError
from sexton_core.ids import backfill_id, scheduled_run_id
from sexton_core.instants import Instant
from sexton_core.policy import Backfill, check_total, range_times, request_backfill
from sexton_core.words import BackfillOrder, RunState
from sexton_records import keys
from sexton_records.backfills import (
    ASKED_ORDERS,
    ASKED_OVERLAPS,
    backfill_message,
    new_backfill_record,
)
from sexton_records.runs import STATE_OF
from sexton_records.state import handle_of
from sexton_records.times import timestamp
from sexton_runtime.kv.types import KeyValue
from sexton_runtime.rpc.policy_channel import PolicyChannel

_TIMES_AT_ONCE: Final = 100
"""Nominal times computed in one go: the leader's lease is renewed on the same loop."""
_RUNS_PER_READ: Final = 200
_ATTEMPTS: Final = 5
"""A job that is edited while its range is counted has it counted again."""


class Backfiller:
    """Starts, shows and stops backfills."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._finder = RunFinder(mesh)

    async def create(
        self, request: api.CreateBackfillRequest, *, timeout_s: float
    ) -> api.CreateBackfillResponse:
        """Starts a backfill, or tells what it would run.

        Raises:
            InvalidArgument: a field can't be used, or the request's id had another body.
            NotFound: there is no such job.
            IllegalState: the job has no schedule, or too many of its backfills go on.
            NotLeader, Unavailable, OutcomeUnknown: the leader could not be asked in time.

        """
        name = checks.job_name("parent", request.parent)
        checks.request_id(request.request_id, required=True)
        start = request.start_time if request.HasField("start_time") else None
        end = request.end_time if request.HasField("end_time") else None
        first, last = checks.instant("start_time", start), checks.instant("end_time", end)
        checks.word(ASKED_OVERLAPS, "overlap", request.overlap)
        checks.word(ASKED_ORDERS, "order", request.order)
        for attempt in range(_ATTEMPTS):
            loaded = await self._mesh.jobs.by_name(name.namespace, name.job)
            if loaded is None:
                raise NotFound("job", request.parent)
            begun = await self._begun(loaded.name, request)
            if begun is not None and not request.validate_only:
                total, version = begun.total, begun.version
            else:
                times = await self._times(loaded, request, first, last)
                if request.validate_only:
                    return await self._preview(loaded, request, first, last, times)
                total, version = len(times), loaded.job.current.version
            asked = internal.StartBackfillRequest(
                uid=loaded.name.uid, request=request, version=version, total=total
            )
            try:
                backfill = await self._start(asked, timeout_s=timeout_s)
            except StaleRevision:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return api.CreateBackfillResponse(backfill=await self._shown(loaded.name, backfill))
        raise AssertionError("the last attempt returns or raises")

    async def get(self, request: api.GetBackfillRequest) -> api.GetBackfillResponse:
        """Reads a backfill of the job as it now is.

        Raises:
            NotFound: there is no such job or backfill.

        """
        name, backfill = checks.backfill_name("name", request.name)
        job = await self._current(name)
        (kv,) = (await self._mesh.store.get([_key(job, backfill)])).kvs
        if not kv.create_revision:
            raise NotFound("backfill", request.name)
        return api.GetBackfillResponse(backfill=await self._shown(job, _read(job, kv)))

    async def page(self, request: api.ListBackfillsRequest) -> api.ListBackfillsResponse:
        """Lists the backfills of a job, newest first.

        Raises:
            InvalidArgument: a field can't be used, or the token is of another query.
            NotFound: there is no such job.

        """
        name = checks.job_name("parent", request.parent)
        size = checks.page_size(request.page_size)
        job = await self._current(name)
        query = ("ListBackfills", request.parent, job.uid)
        kvs = await scan_all(self._mesh.store, keys.backfills_prefix(job.shard, job.uid))
        found = sorted((_read(job, kv) for kv in kvs), key=_position, reverse=True)
        if request.page_token:
            (position,) = read_token(query, request.page_token, (1,))
            found = [backfill for backfill in found if _position(backfill) < position]
        shown = [await self._shown(job, backfill) for backfill in found[:size]]
        response = api.ListBackfillsResponse(backfills=shown)
        if len(found) > size:
            response.next_page_token = make_token(query, [_position(shown[-1])])
        return response

    async def cancel(
        self, request: api.CancelBackfillRequest, *, timeout_s: float
    ) -> api.CancelBackfillResponse:
        """Has a backfill start nothing any more.

        Raises:
            NotFound: there is no such job or backfill.
            NotLeader, Unavailable, OutcomeUnknown: the leader could not be asked in time.

        """
        name, backfill = checks.backfill_name("name", request.name)
        job = await self._current(name)
        asked = internal.StopBackfillRequest(
            namespace=job.namespace, job=job.job, uid=job.uid, backfill=backfill
        )

        async def stop(channel: PolicyChannel, left_s: float) -> internal.StopBackfillResponse:
            stub = LeaderServiceStub(channel)
            answer: internal.StopBackfillResponse = await stub.StopBackfill(asked, timeout=left_s)
            return answer

        lease = keys.coordinator_lease(job.shard)
        response = await ask_holder(self._mesh, lease, stop, timeout_s=timeout_s)
        return api.CancelBackfillResponse(backfill=response.backfill)

    # Inside -----------------------------------------------------------------------------------

    async def _current(self, name: Name) -> JobName:
        job = await self._finder.current(name)
        if job is None:
            raise NotFound("job", str(name))
        return job

    async def _begun(
        self, job: JobName, request: api.CreateBackfillRequest
    ) -> records.BackfillRecord | None:
        """Returns the backfill that this request, or one with its id, has begun before."""
        key = _key(job, backfill_id(job.uid, request.request_id))
        (kv,) = (await self._mesh.store.get([key])).kvs
        return records.BackfillRecord.FromString(kv.value) if kv.create_revision else None

    async def _times(
        self,
        loaded: LoadedJob,
        request: api.CreateBackfillRequest,
        first: Instant,
        last: Instant,
    ) -> list[Instant]:
        """Returns the nominal times of the range, oldest first.

        Raises:
            InvalidArgument: the range, or the overlap policy, can't be used.
            IllegalState: the job has no schedule.

        """
        times: list[Instant] = []
        overlap = ASKED_OVERLAPS[request.overlap]
        try:
            for nominal in range_times(loaded.job, self._mesh.now(), first, last, overlap):
                times.append(nominal)
                if len(times) % _TIMES_AT_ONCE == 0:
                    await asyncio.sleep(0)
            check_total(times, first, last)
        except PolicyError as error:
            raise refused_backfill(error, request.parent) from None
        return times

    async def _preview(
        self,
        loaded: LoadedJob,
        request: api.CreateBackfillRequest,
        first: Instant,
        last: Instant,
        times: list[Instant],
    ) -> api.CreateBackfillResponse:
        """Answers with what would run, in its order; writes nothing."""
        name, order = loaded.name, ASKED_ORDERS[request.order]
        backfill: Backfill = request_backfill(
            loaded.job,
            self._mesh.now(),
            request.request_id,
            first=first,
            last=last,
            overlap=ASKED_OVERLAPS[request.overlap],
            order=order,
            skip_succeeded=request.skip_succeeded,
            total=len(times),
        )
        record = new_backfill_record(name.namespace, name.job, backfill, b"", self._mesh.now())
        if request.skip_succeeded:
            succeeded = await self._succeeded(name, times)
            times = [nominal for nominal in times if nominal not in succeeded]
        if order is BackfillOrder.NEWEST_FIRST:
            times.reverse()
        return api.CreateBackfillResponse(
            backfill=backfill_message(name.uid, backfill.id, record),
            times=[timestamp(nominal) for nominal in times],
        )

    async def _succeeded(self, name: JobName, times: Sequence[Instant]) -> set[Instant]:
        found: set[Instant] = set()
        for first in range(0, len(times), _RUNS_PER_READ):
            part = times[first : first + _RUNS_PER_READ]
            wanted = [
                keys.run_key(
                    name.namespace, name.job, name.uid, scheduled_run_id(name.uid, nominal)
                )
                for nominal in part
            ]
            for nominal, kv in zip(part, await get_all(self._mesh.store, wanted), strict=True):
                if kv.create_revision:
                    state = STATE_OF[records.RunRecord.FromString(kv.value).state]
                    if state is RunState.SUCCEEDED:
                        found.add(nominal)
        return found

    async def _start(
        self, asked: internal.StartBackfillRequest, *, timeout_s: float
    ) -> api.Backfill:
        async def start(channel: PolicyChannel, left_s: float) -> internal.StartBackfillResponse:
            stub = LeaderServiceStub(channel)
            answer: internal.StartBackfillResponse = await stub.StartBackfill(asked, timeout=left_s)
            return answer

        lease = keys.coordinator_lease(keys.shard_of(asked.uid, self._mesh.coordinator_shards))
        response = await ask_holder(self._mesh, lease, start, timeout_s=timeout_s)
        return response.backfill

    async def _shown(self, job: JobName, backfill: api.Backfill) -> api.Backfill:
        """Adds what a backfill waits for."""
        if backfill.state != api.BACKFILL_STATE_STARTING:
            return backfill
        (kv,) = (await self._mesh.store.get([job.state_key])).kvs
        state = records.StateRecord.FromString(kv.value)
        if state.HasField("paused_at_ns"):
            backfill.waits_for = "paused"
            return backfill
        if backfill.overlap == job_pb2.OVERLAP_POLICY_ALLOW_ALL:
            return backfill
        handles = [handle_of(name) for name in state.live]
        wanted = [handle_key(self._mesh, job.uid, handle) for handle in handles]
        found = await get_all(self._mesh.store, wanted, keys_only=True)
        for handle, live in zip(handles, found, strict=True):
            if live.create_revision:
                backfill.waits_for = str(Name(job.namespace, job.job, handle.run_id))
                break
        return backfill


def _key(job: JobName, backfill: str) -> bytes:
    return keys.backfill_key(job.shard, job.uid, backfill)


def _read(job: JobName, kv: KeyValue) -> api.Backfill:
    _, backfill = keys.parse_backfill_key(kv.key)
    return backfill_message(job.uid, backfill, records.BackfillRecord.FromString(kv.value))


def _position(backfill: api.Backfill) -> str:
    """Returns by what backfills are ordered."""
    return f"{backfill.create_time.ToNanoseconds():020}/{backfill.name.rpartition('/')[2]}"
