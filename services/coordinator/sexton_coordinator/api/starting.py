"""Starts runs that somebody asks for, by the leader of the job's shard."""

from __future__ import annotations

from sexton.errors import IllegalState, NotFound
from sexton.internal.v1 import coordinator_pb2 as internal
from sexton.internal.v1.coordinator_pb2_grpc import LeaderServiceStub
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.peers import ask_holder
from sexton_coordinator.api.run_finding import RunFinder
from sexton_coordinator.mesh import Mesh
from sexton_core.runs.table import ENDED
from sexton_records import keys
from sexton_records.runs import STATE_OF
from sexton_runtime.rpc.policy_channel import PolicyChannel


class Starter:
    """Starts runs."""

    def __init__(self, mesh: Mesh, finder: RunFinder) -> None:
        self._mesh = mesh
        self._finder = finder

    async def trigger(
        self, name: Name, request: api.TriggerJobRequest, *, timeout_s: float
    ) -> api.TriggerJobResponse:
        """Starts a run of a job.

        Raises:
            NotFound: there is no such job.
            InvalidArgument: the request's id had another body, or `overlap` contradicts the job.
            NotLeader, Unavailable, OutcomeUnknown: the leader could not be asked in time.

        """
        job = await self._finder.current(name)
        if job is None:
            raise NotFound("job", request.name)
        return await self.ask_leader(
            internal.TriggerRequest(
                namespace=job.namespace,
                job=job.job,
                uid=job.uid,
                request_id=request.request_id,
                overlap=request.overlap,
            ),
            timeout_s=timeout_s,
        )

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
        response = await ask_holder(self._mesh, lease, trigger, timeout_s=timeout_s)
        return response.answer
