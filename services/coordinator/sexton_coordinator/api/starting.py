"""Starts runs that somebody asks for, by the leader of the job's shard."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Protocol

from sexton.errors import IllegalState, NotFound, SextonError
from sexton.internal.v1 import coordinator_pb2 as internal
from sexton.internal.v1.coordinator_pb2_grpc import LeaderServiceStub
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.peers import ask_holder
from sexton_coordinator.api.run_finding import RunFinder
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.writes import JobName
from sexton_core.runs.table import ENDED
from sexton_records import keys
from sexton_records.runs import STATE_OF
from sexton_runtime.rpc.policy_channel import PolicyChannel


class Leader(Protocol):
    """What this replica answers while it leads."""

    async def Trigger(  # noqa: N802 - the method's name is the proto's
        self, request: internal.TriggerRequest, context: Any
    ) -> internal.TriggerResponse:
        """Starts a run through the gate."""
        ...


class Starter:
    """Starts runs. `leader` answers where this replica leads; None: it is asked as others are."""

    def __init__(self, mesh: Mesh, finder: RunFinder, leader: Leader | None = None) -> None:
        self._mesh = mesh
        self._finder = finder
        self._leader = leader

    async def trigger(
        self, name: Name, request: api.TriggerJobRequest, *, timeout_s: float
    ) -> api.TriggerJobResponse:
        """Starts a run of a job.

        Raises:
            NotFound: there is no such job.
            InvalidArgument: the request's id had another body, or `overlap` contradicts the job.
            NotLeader, Unavailable, OutcomeUnknown: the leader could not be asked in time.

        """
        clock = asyncio.get_running_loop().time
        end_s = clock() + timeout_s
        remembered = self._finder.remembered(name)
        if remembered is not None:
            try:
                return await self._trigger(remembered, request, timeout_s)
            except SextonError as error:
                self._finder.forget(name)
                if not isinstance(error, NotFound):
                    raise
        # That incarnation is gone, as the leader has read since: there may be another by now.
        job = await self._finder.current(name)
        if job is None or (remembered is not None and job.uid == remembered.uid):
            raise NotFound("job", request.name)
        return await self._trigger(job, request, end_s - clock())

    async def _trigger(
        self, job: JobName, request: api.TriggerJobRequest, timeout_s: float
    ) -> api.TriggerJobResponse:
        asked = internal.TriggerRequest(
            namespace=job.namespace,
            job=job.job,
            uid=job.uid,
            request_id=request.request_id,
            overlap=request.overlap,
        )
        return await self.ask_leader(asked, timeout_s=timeout_s)

    async def retry(
        self, name: Name, request: api.RetryRunRequest, *, timeout_s: float
    ) -> api.TriggerJobResponse:
        """Runs an ended run again.

        Raises:
            NotFound: there is no such run, or no such job any more.
            IllegalState: it has not ended, or is a former incarnation's of its job.
            InvalidArgument, NotLeader, Unavailable, OutcomeUnknown: as `trigger`.

        """
        found = await self._finder.find(name)
        if found is None:
            raise NotFound("run", request.name)
        record = found.record
        state = STATE_OF[record.state]
        if found.handle:
            raise IllegalState(f"run {request.name}", state, sorted(ENDED))
        job = await self._finder.current(name)
        if job is None:
            raise NotFound("job", str(name._replace(run="")))
        if job.uid != record.template.job_uid:
            raise IllegalState(
                f"run {request.name}",
                f"of a job that was deleted; the one of that name now has the uid {job.uid}",
                ["of the job that is there; trigger that one"],
            )
        return await self.ask_leader(
            internal.TriggerRequest(
                namespace=job.namespace,
                job=job.job,
                uid=job.uid,
                request_id=request.request_id,
                overlap=request.overlap,
                retry_of=record.run_id,
                nominal_ns=record.nominal_ns,
            ),
            timeout_s=timeout_s,
        )

    async def ask_leader(
        self, request: internal.TriggerRequest, *, timeout_s: float
    ) -> api.TriggerJobResponse:
        """Has the leader of the job's shard decide about a start."""

        async def trigger(channel: PolicyChannel, left_s: float) -> internal.TriggerResponse:
            stub = LeaderServiceStub(channel)
            answer: internal.TriggerResponse = await stub.Trigger(request, timeout=left_s)
            return answer

        shard = keys.shard_of(request.uid, self._mesh.coordinator_shards)
        lease = keys.coordinator_lease(shard)
        here = partial(self._leader.Trigger, request, None) if self._leader is not None else None
        response = await ask_holder(self._mesh, lease, trigger, timeout_s=timeout_s, here=here)
        if response.answer.HasField("run"):
            name = Name(request.namespace, request.job)
            self._finder.remember_run(name, response.answer.run, response.revision)
        return response.answer
