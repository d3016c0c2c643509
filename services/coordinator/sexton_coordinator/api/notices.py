"""Tells what stands in the way of a job's runs at this moment, as the queues' owners know it.

A notice is for people and decides nothing: an owner that does not answer makes none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from sexton.errors import SextonError
from sexton.internal.v1 import queue_pb2
from sexton.internal.v1.queue_pb2_grpc import QueueServiceStub
from sexton.v1 import job_pb2 as pb
from sexton_coordinator.mesh import Mesh
from sexton_records import keys

KEPT_S: Final = 1.0
"""How long an owner's answer is used again."""
_ANSWER_S: Final = 0.5

_Queues = dict[str, queue_pb2.QueueInfo]


class Notices:
    """Adds notices to jobs."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._asking = asyncio.Lock()
        self._known: dict[int, _Queues] = {}
        self._asked_at = -KEPT_S

    async def add(self, *jobs: pb.Job) -> None:
        """Adds what stands in the way of each, instead of what stood there.

        Jobs without their task have none.
        """
        known = await self._queues()
        for job in jobs:
            job.notices[:] = self._of(job.spec.queue, job.spec.task, known)

    async def of_run(self, queue: str, task: pb.Task) -> list[str]:
        """Returns what stands in the way of a run in line."""
        return list(self._of(queue, task, await self._queues()))

    async def of_pause(self, queue: str) -> str:
        """Says that a queue is paused; empty: it is not, or its owner can't tell."""
        known = (await self._queues()).get(keys.shard_of(queue, self._mesh.queue_shards), {})
        return _paused(known.get(queue, queue_pb2.QueueInfo(queue=queue)))

    def _of(self, name: str, task: pb.Task, known: dict[int, _Queues]) -> Iterable[str]:
        kind = task.WhichOneof("kind")
        queues = known.get(keys.shard_of(name, self._mesh.queue_shards))
        if kind is None or queues is None:
            return
        queue = queues.get(name, queue_pb2.QueueInfo())
        if queue.paused:
            yield _paused(queue)
        if not queue.slots:
            yield f"no worker serves queue {name}"
        elif not queue.offers_left_out:
            called = task.python.task
            if kind != "python" and kind not in queue.offers:
                yield f"no worker of queue {name} allows tasks of kind {kind}"
            elif kind == "python" and f"python:{called}" not in queue.offers:
                yield f"no worker of queue {name} knows the Python task {called}"

    async def _queues(self) -> dict[int, _Queues]:
        """Returns the queues by shard, as they were at most `KEPT_S` ago."""
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() - self._asked_at >= KEPT_S:
                shards = range(self._mesh.queue_shards)
                answers = await asyncio.gather(*map(self._ask, shards))
                self._known = {
                    shard: queues
                    for shard, queues in zip(shards, answers, strict=True)
                    if queues is not None
                }
                self._asked_at = loop.time()
            return self._known

    async def _ask(self, shard: int) -> _Queues | None:
        owner = self._mesh.directory.owner(shard)
        if owner is None or not owner.address:
            return None
        request = queue_pb2.DescribeQueuesRequest(queues_only=True)
        stub = QueueServiceStub(self._mesh.channel(owner.address))
        try:
            answer = await stub.DescribeQueues(request, timeout=_ANSWER_S)
        except SextonError:
            return None
        return {info.queue: info for info in answer.queues}


def _paused(queue: queue_pb2.QueueInfo) -> str:
    reason = f": {queue.pause_reason}" if queue.pause_reason else ""
    return f"queue {queue.queue} is paused{reason}" if queue.paused else ""
