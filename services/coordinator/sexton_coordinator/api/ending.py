"""Asks for the end of runs, of the owner of their queue's shard."""

from __future__ import annotations

from sexton.errors import NotFound
from sexton.internal.v1 import queue_pb2
from sexton.internal.v1.queue_pb2_grpc import QueueServiceStub
from sexton.v1 import run_pb2
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.peers import ask_holder
from sexton_coordinator.api.run_finding import RunFinder
from sexton_coordinator.mesh import Mesh
from sexton_records import keys
from sexton_records.runs import run_message
from sexton_runtime.rpc.policy_channel import PolicyChannel


class RunEnder:
    """Ends runs."""

    def __init__(self, mesh: Mesh, finder: RunFinder) -> None:
        self._mesh = mesh
        self._finder = finder

    async def end(
        self, name: Name, mode: run_pb2.CancelMode.ValueType, reason: str, *, timeout_s: float
    ) -> run_pb2.Run:
        """Asks for a run's end and returns it as it then stands; one that has ended stays so.

        Raises:
            NotFound: there is no such run.
            NotLeader, Unavailable: its queue's owner could not be asked in time.

        """
        found = await self._finder.find(name)
        if found is not None and found.handle:
            handle = found.handle
            request = queue_pb2.EndRunsRequest(
                ends=[queue_pb2.EndRequest(handle=handle, mode=mode, reason=reason)]
            )

            async def end_runs(channel: PolicyChannel, left_s: float) -> object:
                return await QueueServiceStub(channel).EndRuns(request, timeout=left_s)

            lease = keys.queue_lease(keys.parse_handle_key(handle).shard)
            await ask_holder(self._mesh, lease, end_runs, timeout_s=timeout_s)
            found = await self._finder.find(name)
        if found is None:
            raise NotFound("run", str(name))
        return run_message(found.record, found.revision, full=True)
