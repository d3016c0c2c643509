"""People who look after a simulated mesh: they pause queues, drain workers, prune, and look on.

They do so while faults are injected. Then they let every queue go on, and leave the mesh alone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from sexton import errors
from sexton.v1 import backfill_pb2, dead_letter_pb2
from sexton.v1 import job_pb2 as pb
from sexton.v1 import scheduler_pb2 as api
from sexton_sim.mesh.person import Person
from sexton_sim.mesh.plan import NAMESPACE, QUEUES, DrawSpec
from sexton_sim.mesh.users import Api

_SOURCES = ("one.yaml", "other.yaml")
_RETRY_S = 0.5


class Operator(Person):
    """One person, who does one thing after the other."""

    def __init__(
        self,
        api_: Api,
        *,
        names: Sequence[str],
        spec: DrawSpec,
        now_s: Callable[[], int],
        rng: random.Random,
    ) -> None:
        super().__init__(rng)
        self._api = api_
        self._names = names
        self._spec = spec
        self._now_s = now_s
        self._deeds = (
            (2, self._pause_queue),
            (3, self._resume_queue),
            (1, self._drain_worker),
            (1, self._prune),
            (2, self._look),
        )

    async def _pause_queue(self) -> None:
        queue = self._random.choice(QUEUES)
        request = api.PauseQueueRequest(queue=queue, paused=True, reason="to look at it")
        await self._api.call("PauseQueue", request)

    async def _resume_queue(self) -> None:
        await self._api.call("PauseQueue", api.PauseQueueRequest(queue=self._random.choice(QUEUES)))

    async def _drain_worker(self) -> None:
        listed = await self._api.call("ListQueues", api.ListQueuesRequest())
        if listed.workers:
            session = self._random.choice(listed.workers).session
            await self._api.call("DrainWorker", api.DrainWorkerRequest(session=session))

    async def _prune(self) -> None:
        """Applies a file of a few jobs, and what it held before and does not now is deleted."""
        names = self._random.sample(self._names, k=min(2, len(self._names)))
        parent = f"namespaces/{NAMESPACE}/jobs"
        request = api.ApplyJobsRequest(
            jobs=[pb.Job(name=f"{parent}/{name}", spec=self._spec(self._random)) for name in names],
            source=self._random.choice(_SOURCES),
            prune=True,
            prune_keep=[f"{parent}/{self._random.choice(self._names)}"],
        )
        await self._api.call("ApplyJobs", request)

    async def _look(self) -> None:
        """Asks one of the questions that change nothing."""
        parent = f"namespaces/{NAMESPACE}"
        job = f"{parent}/jobs/{self._random.choice(self._names)}"
        at = Timestamp(seconds=self._now_s() + self._random.randint(-20, 20))
        question = self._random.choice(
            (
                api.ExplainJobRequest(name=job, time=at),
                api.PreviewJobRequest(name=job, count=3),
                api.ListDecisionsRequest(name=job),
                api.ListJobVersionsRequest(name=job),
                api.ForecastLoadRequest(parent=parent, interval_s=60),
                backfill_pb2.ListBackfillsRequest(parent=job),
                dead_letter_pb2.ListDeadLettersRequest(page_size=3),
                api.ListMembersRequest(),
                api.GetStoreStatusRequest(),
            )
        )
        await self._api.call(type(question).__name__.removesuffix("Request"), question)


async def resume_queues(api_: Api) -> None:
    """Lets every queue go on, and asks until that is answered."""
    for queue in QUEUES:
        while True:
            try:
                await api_.call("PauseQueue", api.PauseQueueRequest(queue=queue))
            except errors.SextonError:
                await asyncio.sleep(_RETRY_S)
            else:
                break
