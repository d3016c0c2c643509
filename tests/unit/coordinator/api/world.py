"""A simulated mesh with the real API: coordinators, store, and a queue that follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.duration_pb2 import Duration
from grpc_status import rpc_status
from simulation.coordinator.mesh import COORDINATORS, Mesh, S, every
from simulation.coordinator.scripted_queue import ScriptedQueue

from sexton._error_table import to_status
from sexton.errors import NotLeader
from sexton.internal.v1 import queue_pb2
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import job_pb2, run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton.v1.backfill_pb2_grpc import BackfillServiceStub
from sexton.v1.dead_letter_pb2_grpc import DeadLetterServiceStub
from sexton.v1.scheduler_pb2_grpc import JobServiceStub, MeshServiceStub, RunServiceStub
from sexton_runtime.rpc.policy_channel import PolicyChannel

__all__ = ["JOB", "MINUTES", "NS", "Queue", "S", "World", "every", "shell", "story"]

NS = "namespaces/default"
JOB = f"{NS}/jobs/report"


def shell(command: str = "true", **env: str) -> job_pb2.Task:
    values = {name: job_pb2.EnvValue(value=value) for name, value in env.items()}
    return job_pb2.Task(shell=job_pb2.ShellTask(command=command, env=values))


MINUTES = [job_pb2.Schedule(every=job_pb2.Every(period=Duration(seconds=60)))]


class Queue(ScriptedQueue):
    """Also ends runs when asked to, and knows one worker; `refuses` calls say NOT_LEADER first."""

    refuses = 0
    described = 0
    queues: tuple[queue_pb2.QueueInfo, ...] = (
        queue_pb2.QueueInfo(queue="default", slots=4, offers=["shell"]),
    )

    async def EndRuns(self, request: queue_pb2.EndRunsRequest, context: Any) -> Any:
        if self.refuses > 0:
            self.refuses -= 1
            await context.abort_with_status(rpc_status.to_status(to_status(NotLeader())))
        results = []
        for end in request.ends:
            self.ends.append((end.reason, end.mode))
            if end.handle in self.seen:
                await self._end(end.handle, 0.01, end.mode)
            results.append(queue_pb2.EndResult(state=run_pb2.RUN_STATE_CANCELLED))
        return queue_pb2.EndRunsResponse(results=results)

    async def SetQueuePause(self, request: queue_pb2.SetQueuePauseRequest, _: Any) -> Any:
        queue = queue_pb2.QueueInfo(
            queue=request.queue, paused=request.paused, pause_reason=request.reason
        )
        self.queues = (*(q for q in self.queues if q.queue != queue.queue), queue)
        return queue_pb2.SetQueuePauseResponse(queue=queue)

    async def DrainSession(self, request: queue_pb2.DrainSessionRequest, _: Any) -> Any:
        return queue_pb2.DrainSessionResponse(found=request.session == "s1")

    async def DescribeProgress(self, request: queue_pb2.DescribeProgressRequest, _: Any) -> Any:
        report = queue_pb2.RunReport(progress=run_pb2.RunProgress(fraction=0.5, message="half"))
        return queue_pb2.DescribeProgressResponse(reports=[report for _ in request.handles])

    async def DescribeQueues(
        self, request: queue_pb2.DescribeQueuesRequest, _: Any
    ) -> queue_pb2.DescribeQueuesResponse:
        self.described += 1
        session = queue_pb2.SessionInfo(session="s1", worker="anna", slots=4, connected=True)
        return queue_pb2.DescribeQueuesResponse(
            owner_token=1,
            queues=self.queues,
            sessions=[] if request.queues_only else [session],
        )


class World(Mesh):
    """`jobs_api`, `runs_api` and `mesh_api` are stubs of the first coordinator's API."""

    queue: Queue

    def __init__(self, seed: int = 0, **options: Any) -> None:
        options.setdefault("coordinators", ("coordinator-1",))
        scripted = ("lasts_s", "deaf", "fails")
        queue = {name: options.pop(name) for name in scripted if name in options}
        super().__init__(seed, **options)
        self.queue = Queue(mesh=self, **queue)
        self._channels: list[PolicyChannel] = []

    def connect(self, name: str = "coordinator-1") -> None:
        """Directs the stubs to a coordinator."""
        channel = self.open_channel(COORDINATORS[name])
        self.jobs_api = JobServiceStub(channel)
        self.runs_api = RunServiceStub(channel)
        self.mesh_api = MeshServiceStub(channel)
        self.fill_api = BackfillServiceStub(channel)
        self.dead_api = DeadLetterServiceStub(channel)

    def open_channel(self, address: str) -> PolicyChannel:
        """Opens a channel that lives as long as the world."""
        channel = PolicyChannel(self.transport.channel(address))
        self._channels.append(channel)
        return channel

    async def make(self, name: str = JOB, **fields: Any) -> job_pb2.Job:
        """Creates a job through the API."""
        given: dict[str, Any] = {"task": shell(), "schedules": MINUTES} | fields
        spec = job_pb2.JobSpec(**given)
        request = api.CreateJobRequest(job=job_pb2.Job(name=name, spec=spec))
        job: job_pb2.Job = (await self.jobs_api.CreateJob(request)).job
        return job

    async def get(self, name: str = JOB) -> job_pb2.Job:
        job: job_pb2.Job = (await self.jobs_api.GetJob(api.GetJobRequest(name=name))).job
        return job

    async def start_run(self, request_id: str, name: str = JOB, **fields: Any) -> run_pb2.Run:
        """Starts a run by hand."""
        request = api.TriggerJobRequest(name=name, request_id=request_id, **fields)
        run: run_pb2.Run = (await self.jobs_api.TriggerJob(request)).run
        return run

    async def run_record(self, run: run_pb2.Run) -> records.RunRecord:
        (kv,) = [kv for kv in await self.below(b"active/") if kv.key.endswith(_id(run).encode())]
        return records.RunRecord.FromString(kv.value)

    def record_of(self, kv: Any) -> records.RunRecord:
        return records.RunRecord.FromString(kv.value)

    def backfill_of(self, kv: Any) -> records.BackfillRecord:
        return records.BackfillRecord.FromString(kv.value)

    async def ended(self, run: run_pb2.Run) -> run_pb2.Run:
        """Waits until a run has ended."""
        while True:
            request = api.GetRunRequest(name=run.name)
            found: run_pb2.Run = (await self.runs_api.GetRun(request)).run
            if found.HasField("end_time"):
                return found
            await asyncio.sleep(0.05)

    async def revision(self) -> int:
        return (await self.store.status()).revision


def _id(run: run_pb2.Run) -> str:
    return run.name.rpartition("/")[2]


def story(scenario: Callable[[World], Awaitable[None]], seed: int = 0, **options: Any) -> None:
    """Plays a scenario with the API of a mesh that leads."""
    world = World(seed, **options)

    async def play(_: Mesh) -> None:
        world.connect()
        if options.get("leading", True):
            await world.leader()
        await scenario(world)

    world.run(play)
