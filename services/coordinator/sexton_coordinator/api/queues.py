"""Tells how the queues are, as the owners of their shards know it; and how the store is."""

from __future__ import annotations

import asyncio
from typing import Final

from google.protobuf.message import DecodeError

from sexton.errors import NotFound
from sexton.internal.v1 import queue_pb2
from sexton.internal.v1 import records_pb2 as records
from sexton.internal.v1.queue_pb2_grpc import QueueServiceStub
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api.peers import ask_holder
from sexton_coordinator.mesh import Mesh
from sexton_core.instants import MILLISECOND
from sexton_records import keys
from sexton_runtime.kv.types import Lease
from sexton_runtime.rpc.policy_channel import PolicyChannel

_MAX_LEASES: Final = 5_000
"""Leases that are told: an answer has at most 4 MiB."""


class QueueLister:
    """Lists queues and workers."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh

    async def queues(self, *, timeout_s: float) -> api.ListQueuesResponse:
        """Asks every owner.

        Raises:
            NotLeader, Unavailable: one could not be asked in time.

        """
        shards = range(self._mesh.queue_shards)
        answers = await asyncio.gather(*(self._describe(shard, timeout_s) for shard in shards))
        queues = [
            queue_message(info, shard)
            for shard, answer in zip(shards, answers, strict=True)
            for info in answer.queues
            if _is_shown(info)
        ]
        workers = [_worker(session) for answer in answers for session in answer.sessions]
        return api.ListQueuesResponse(
            queues=sorted(queues, key=lambda queue: queue.name),
            workers=sorted(workers, key=lambda worker: (worker.worker, worker.session)),
        )

    async def pause(self, request: api.PauseQueueRequest, *, timeout_s: float) -> api.Queue:
        """Stops the assignments of a queue, or lets them go on; gives it as it then is.

        Raises:
            NotLeader, Unavailable, OutcomeUnknown: its owner could not be asked in time.
            NoSpace: the store is full.

        """
        asked = queue_pb2.SetQueuePauseRequest(
            queue=request.queue, paused=request.paused, reason=request.reason
        )

        async def set_pause(
            channel: PolicyChannel, left_s: float
        ) -> queue_pb2.SetQueuePauseResponse:
            stub = QueueServiceStub(channel)
            answer: queue_pb2.SetQueuePauseResponse = await stub.SetQueuePause(
                asked, timeout=left_s
            )
            return answer

        shard = keys.shard_of(request.queue, self._mesh.queue_shards)
        lease = keys.queue_lease(shard)
        response = await ask_holder(self._mesh, lease, set_pause, timeout_s=timeout_s)
        return queue_message(response.queue, shard)

    async def drain(self, session: str, *, timeout_s: float) -> None:
        """Asks a worker to drain.

        Raises:
            NotFound: no owner knows such a session.
            NotLeader, Unavailable: an owner could not be asked in time.

        """
        request = queue_pb2.DrainSessionRequest(session=session)

        async def drain(channel: PolicyChannel, left_s: float) -> queue_pb2.DrainSessionResponse:
            stub = QueueServiceStub(channel)
            answer: queue_pb2.DrainSessionResponse = await stub.DrainSession(
                request, timeout=left_s
            )
            return answer

        leases = map(keys.queue_lease, range(self._mesh.queue_shards))
        answers = await asyncio.gather(
            *(ask_holder(self._mesh, lease, drain, timeout_s=timeout_s) for lease in leases)
        )
        if not any(answer.found for answer in answers):
            raise NotFound("worker session", session)

    async def _describe(self, shard: int, timeout_s: float) -> queue_pb2.DescribeQueuesResponse:
        async def describe(
            channel: PolicyChannel, left_s: float
        ) -> queue_pb2.DescribeQueuesResponse:
            request = queue_pb2.DescribeQueuesRequest()
            answer: queue_pb2.DescribeQueuesResponse = await QueueServiceStub(
                channel
            ).DescribeQueues(request, timeout=left_s)
            return answer

        return await ask_holder(self._mesh, keys.queue_lease(shard), describe, timeout_s=timeout_s)


async def store_status(mesh: Mesh) -> api.GetStoreStatusResponse:
    """Asks the store how it is, and who holds its leases."""
    status, clock, leases = await asyncio.gather(
        mesh.store.status(), mesh.store.clock(), mesh.store.list_leases()
    )
    return api.GetStoreStatusResponse(
        revision=status.revision,
        used_bytes=status.used_bytes,
        map_bytes=status.map_bytes,
        max_bytes=status.max_map_bytes,
        disk_free_bytes=status.disk_free_bytes,
        full=status.full,
        watches=status.watches,
        clock_disputed=status.clock_disputed,
        wall_skew_ms=(clock.wall_time_ns - clock.mesh_time_ns) // MILLISECOND,
        cluster_id=status.cluster_id,
        incarnation=status.incarnation,
        leases=[_lease(lease) for lease in leases[:_MAX_LEASES]],
    )


def queue_message(info: queue_pb2.QueueInfo, shard: int) -> api.Queue:
    """Returns a queue as the API shows it."""
    return api.Queue(
        name=info.queue,
        shard=shard,
        ready=info.ready,
        delayed=info.delayed,
        running=info.running,
        oldest_ready_ms=info.oldest_ready_ms,
        slots=info.slots,
        paused=info.paused,
        pause_reason=info.pause_reason,
    )


def _is_shown(info: queue_pb2.QueueInfo) -> bool:
    """Tells whether there is anything about a queue that an owner has ever seen."""
    return bool(info.ready or info.delayed or info.running or info.slots or info.paused)


def _worker(session: queue_pb2.SessionInfo) -> api.WorkerSession:
    return api.WorkerSession(
        session=session.session,
        worker=session.worker,
        queues=session.queues,
        tasks=session.tasks,
        kinds=session.kinds,
        slots=session.slots,
        runs=session.runs,
        running=session.running,
        silent_ms=session.silent_ms,
        connected=session.connected,
        draining=session.draining,
        software_version=session.software_version,
    )


def _lease(lease: Lease) -> api.LeaseInfo:
    try:
        member = records.MemberRecord.FromString(lease.value)
    except DecodeError:
        member = records.MemberRecord()
    return api.LeaseInfo(
        name=lease.name,
        token=lease.token,
        holder=member.id or lease.holder,
        address=member.address,
        ttl_ms=lease.ttl_ms,
    )
