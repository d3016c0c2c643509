"""People who use a simulated mesh: they create, change, trigger and delete jobs all the time.

Every call goes into the history with what was asked and what was answered. One whose outcome is
not known is made again with the same request id, now and then so is one that was answered.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

from sexton import errors
from sexton.history import answered, asked
from sexton.v1 import job_pb2 as pb
from sexton.v1 import run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton.v1.backfill_pb2_grpc import BackfillServiceStub
from sexton.v1.dead_letter_pb2_grpc import DeadLetterServiceStub
from sexton.v1.scheduler_pb2_grpc import (
    JobServiceStub,
    MeshServiceStub,
    RunServiceStub,
)
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_runtime.transport import Transport
from sexton_sim.history import Recorder
from sexton_sim.mesh.person import Person
from sexton_sim.mesh.plan import NAMESPACE, DrawSpec
from sexton_sim.process import Process

_UNKNOWN = (
    errors.OutcomeUnknown,
    errors.DeadlineExceeded,
    errors.Cancelled,
    errors.Internal,
)
_STUBS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("CancelRun", "TerminateRun", "ListRuns", "RetryRun"), RunServiceStub),
    **dict.fromkeys(
        ("ListQueues", "PauseQueue", "DrainWorker", "ListMembers", "GetStoreStatus"),
        MeshServiceStub,
    ),
    **dict.fromkeys(("CreateBackfill", "CancelBackfill", "ListBackfills"), BackfillServiceStub),
    **dict.fromkeys(
        ("RequeueDeadLetters", "PurgeDeadLetters", "ListDeadLetters"), DeadLetterServiceStub
    ),
}
"""Of the calls that are not the service of jobs'."""
_TIMEOUT_S = 5.0
_REPEATS = 4
_LAST_WORDS_S = 120.0


class Api:
    """The API under its several addresses, every call recorded."""

    def __init__(
        self,
        process: Process,
        transport: Transport,
        recorder: Recorder,
        addresses: Sequence[str],
        rng: random.Random,
    ) -> None:
        self._name = process.name
        self._recorder = recorder
        self._random = rng
        self._channels = [PolicyChannel(transport.channel(address)) for address in addresses]

    async def call(self, method: str, request: Message) -> Any:
        """Makes a call at some replica.

        Raises:
            SextonError: as it was answered, or not.

        """
        channel = self._random.choice(self._channels)
        invoke = getattr(_STUBS.get(method, JobServiceStub)(channel), method)
        number = self._recorder.invoke(self._name, method, **asked(request))
        try:
            answer = await invoke(request, timeout=_TIMEOUT_S)
        except _UNKNOWN as error:
            self._recorder.unknown(number, f"{type(error).__name__}: {error.message}")
            raise
        except errors.SextonError as error:
            self._recorder.fail(number, f"{type(error).__name__}: {error.message}")
            raise
        except BaseException as error:
            self._recorder.unknown(number, type(error).__name__)
            raise
        self._recorder.ok(number, **answered(answer))
        return answer


class User(Person):
    """One person, who does one thing after the other."""

    def __init__(
        self, api_: Api, *, name: str, names: Sequence[str], spec: DrawSpec, rng: random.Random
    ) -> None:
        super().__init__(rng)
        self._api = api_
        self._name = name
        self._names = names
        self._spec = spec
        self._requests = 0
        self._runs: list[str] = []
        self._asked: dict[str, Any] = {}
        """The last request of each method that has an id."""
        self._deeds = (
            (3, self.create),
            (3, self._update),
            (2, self._pause),
            (3, self._resume),
            (4, self._trigger),
            (2, self._end_run),
            (1, self._delete),
            (0.5, self._apply),
            (1, self._list_runs),
            (0.5, self._ask_for_another),
        )

    async def create(self, name: str = "") -> None:
        """Creates a job; under a request id, or not."""
        job = pb.Job(name=_path(name or self._some()), spec=self._spec(self._random))
        request = api.CreateJobRequest(job=job, request_id=self._request_id())
        await self._repeated("CreateJob", request)

    async def _update(self) -> None:
        answer = await self._api.call("GetJob", api.GetJobRequest(name=_path(self._some())))
        job: pb.Job = answer.job
        fresh = self._spec(self._random)
        fields = self._random.sample(("schedules", "overlap", "catch_up", "task", "retry"), k=2)
        for field in fields:
            job.spec.ClearField(field)  # type: ignore[arg-type]
            value = getattr(fresh, field)
            if isinstance(value, int):
                setattr(job.spec, field, value)
            elif isinstance(value, Message):
                getattr(job.spec, field).CopyFrom(value)
            else:
                getattr(job.spec, field).extend(value)
        mask = FieldMask(paths=fields)
        await self._api.call("UpdateJob", api.UpdateJobRequest(job=job, update_mask=mask))

    async def _pause(self) -> None:
        await self._api.call("PauseJob", api.PauseJobRequest(name=_path(self._some())))

    async def _resume(self) -> None:
        mode = self._random.choice(api.ResumeMode.values()[1:])
        request = api.ResumeJobRequest(name=_path(self._some()), mode=mode)
        await self._api.call("ResumeJob", request)

    async def _trigger(self) -> None:
        overlap = pb.OVERLAP_POLICY_UNSPECIFIED
        if self._random.random() < 0.3:
            overlap = self._random.choice(pb.OverlapPolicy.values()[1:])
        request = api.TriggerJobRequest(
            name=_path(self._some()), request_id=self._request_id(), overlap=overlap
        )
        answer = await self._repeated("TriggerJob", request)
        if answer.run.name:
            self._remember([answer.run])

    async def _end_run(self) -> None:
        if not self._runs:
            await self._list_runs()
        if self._runs:
            name = self._random.choice(self._runs[-5:])
            if self._random.random() < 0.5:
                await self._api.call("CancelRun", api.CancelRunRequest(name=name))
            else:
                await self._api.call("TerminateRun", api.TerminateRunRequest(name=name))

    async def _delete(self) -> None:
        await self._api.call("DeleteJob", api.DeleteJobRequest(name=_path(self._some())))

    async def _apply(self) -> None:
        names = self._random.sample(self._names, k=min(2, len(self._names)))
        jobs = [pb.Job(name=_path(name), spec=self._spec(self._random)) for name in names]
        await self._api.call("ApplyJobs", api.ApplyJobsRequest(jobs=jobs, source=self._name))

    async def _ask_for_another(self) -> None:
        """Makes a request under the id of one before, with another body: that is refused."""
        asked = self._asked.get(self._random.choice(("CreateJob", "TriggerJob")))
        if asked is None:
            return
        other = type(asked)()
        other.CopyFrom(asked)
        if isinstance(other, api.CreateJobRequest):
            other.job.spec.CopyFrom(self._spec(self._random))
        else:
            other.overlap = self._random.choice(pb.OverlapPolicy.values()[1:])
        await self._api.call(type(other).__name__.removesuffix("Request"), other)

    async def _list_runs(self) -> None:
        request = api.ListRunsRequest(
            parent=f"namespaces/{NAMESPACE}",
            states=[run_pb2.RUN_STATE_WAITING, run_pb2.RUN_STATE_RUNNING],
        )
        answer = await self._api.call("ListRuns", request)
        self._remember(answer.runs)

    async def _repeated(self, method: str, request: Any) -> Any:
        """Repeats what may not have happened, and sometimes what has."""
        self._asked[method] = request
        for repeat in range(_REPEATS):
            try:
                answer = await self._api.call(method, request)
            except _UNKNOWN:
                if not request.request_id or repeat == _REPEATS - 1:
                    raise
            else:
                if not request.request_id or self._random.random() < 0.8:
                    return answer
            await asyncio.sleep(self._random.uniform(0, 1))
        return answer

    def _remember(self, runs: Sequence[run_pb2.Run]) -> None:
        self._runs = [*self._runs[-20:], *(run.name for run in runs[:10])]

    def _some(self) -> str:
        return self._random.choice(self._names)

    def _request_id(self) -> str:
        self._requests += 1
        return f"{self._name}-{self._requests}"


async def say_last_words(api_: Api) -> str:
    """Pauses every job and reads everything once more. Gives what was wrong; empty: nothing."""
    try:
        async with asyncio.timeout(_LAST_WORDS_S):
            while True:
                try:
                    parent = f"namespaces/{NAMESPACE}"
                    jobs = await api_.call("ListJobs", api.ListJobsRequest(parent=parent))
                    for job in jobs.jobs:
                        await api_.call("PauseJob", api.PauseJobRequest(name=job.name))
                    await api_.call("ListRuns", api.ListRunsRequest(parent=parent))
                except errors.SextonError:
                    await asyncio.sleep(0.5)
                else:
                    return ""
    except TimeoutError:
        return f"the API did not serve within {_LAST_WORDS_S:g} s of healing"


def _path(name: str) -> str:
    return f"namespaces/{NAMESPACE}/jobs/{name}"
