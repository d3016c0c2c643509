"""The public API, as the console calls it: every call that a page needs, with its deadline.

What this mesh's coordinators don't offer (`Unimplemented`) a page leaves out, and says so: an older
mesh is shown as far as it can be. See `part`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from sexton import errors
from sexton._calls import Calls
from sexton._settings import Settings
from sexton._values import timestamp
from sexton._wire import AioWire, Call, Wire
from sexton.tls import TlsFiles
from sexton.v1 import backfill_pb2, backfill_pb2_grpc, dead_letter_pb2, job_pb2, run_pb2
from sexton.v1 import dead_letter_pb2_grpc as dead_grpc
from sexton.v1 import scheduler_pb2 as api
from sexton.v1 import scheduler_pb2_grpc as grpc

Answer = TypeVar("Answer")

REASON_UNIMPLEMENTED: Final = "This mesh's coordinators don't offer it."
TIMEOUT_S: Final = 5.0
"""Of each call: longer, and whoever looks has gone."""


@dataclass(frozen=True, slots=True)
class Part(Generic[Answer]):
    """An answer that may be missing without the page failing."""

    value: Answer | None
    absent: str = ""
    """Why it is missing; empty: it is there."""


async def part(answer: Awaitable[Answer]) -> Part[Answer]:
    """Waits for an answer; one that the mesh does not give becomes a reason."""
    try:
        return Part(await answer)
    except errors.Unimplemented:
        return Part(None, REASON_UNIMPLEMENTED)
    except errors.NotFound:
        raise
    except errors.SextonError as error:
        return Part(None, f"It can't be had now: {error}")


class MeshApi:
    """Calls whichever coordinator answers."""

    def __init__(self, settings: Settings, wire: Wire | None = None) -> None:
        self.settings: Final = settings
        files = TlsFiles(settings.tls) if settings.tls is not None else None
        self._calls = Calls(settings, wire or AioWire(tls=files))

    async def close(self) -> None:
        """Closes all connections. Idempotent."""
        await self._calls.close()

    # Jobs -------------------------------------------------------------------------------------

    async def jobs(
        self,
        *,
        prefix: str = "",
        words: str = "",
        paused: bool | None = None,
        order: api.JobOrder.ValueType = api.JOB_ORDER_NAME,
        names: Sequence[str] = (),
        size: int = 100,
        token: str = "",
    ) -> api.ListJobsResponse:
        """Lists a page of the jobs that fit, without their tasks."""
        request = api.ListJobsRequest(
            prefix=prefix,
            words=words,
            paused=paused,
            order=order,
            names=names,
            page_size=size,
            page_token=token,
            view=api.VIEW_BASIC,
        )
        answer: api.ListJobsResponse = await self._call(grpc.JobServiceStub, "ListJobs", request)
        return answer

    async def job(self, name: str) -> job_pb2.Job:
        """Reads a job."""
        request = api.GetJobRequest(name=name)
        job: job_pb2.Job = (await self._call(grpc.JobServiceStub, "GetJob", request)).job
        return job

    async def pause(self, name: str, reason: str) -> None:
        """Stops new starts."""
        request = api.PauseJobRequest(name=name, reason=reason)
        await self._call(grpc.JobServiceStub, "PauseJob", request)

    async def resume(self, name: str, mode: api.ResumeMode.ValueType) -> None:
        """Lets a job start again."""
        request = api.ResumeJobRequest(name=name, mode=mode)
        await self._call(grpc.JobServiceStub, "ResumeJob", request)

    async def trigger(self, name: str, request_id: str) -> api.TriggerJobResponse:
        """Starts a run; the request's id makes a repetition harmless."""
        request = api.TriggerJobRequest(name=name, request_id=request_id)
        answer: api.TriggerJobResponse = await self._call(
            grpc.JobServiceStub, "TriggerJob", request
        )
        return answer

    async def delete(self, name: str, uid: str) -> None:
        """Deletes this incarnation of a job."""
        request = api.DeleteJobRequest(name=name, uid=uid)
        await self._call(grpc.JobServiceStub, "DeleteJob", request)

    async def explain(self, name: str, time: datetime) -> api.ExplainJobResponse:
        """Explains what became, or will become, of an instant."""
        request = api.ExplainJobRequest(name=name, time=timestamp("time", time))
        answer: api.ExplainJobResponse = await self._call(
            grpc.JobServiceStub, "ExplainJob", request
        )
        return answer

    async def preview(
        self, name: str, *, after: datetime | None = None, until: datetime | None = None, count: int
    ) -> api.PreviewJobResponse:
        """Computes the next nominal times of a job."""
        request = api.PreviewJobRequest(
            name=name,
            count=count,
            after_time=None if after is None else timestamp("after", after),
            until_time=None if until is None else timestamp("until", until),
        )
        answer: api.PreviewJobResponse = await self._call(
            grpc.JobServiceStub, "PreviewJob", request
        )
        return answer

    async def versions(self, name: str, size: int = 20) -> Sequence[api.JobVersion]:
        """Lists the newest definitions of a job, newest first."""
        request = api.ListJobVersionsRequest(name=name, page_size=size)
        answer = await self._call(grpc.JobServiceStub, "ListJobVersions", request)
        found: Sequence[api.JobVersion] = answer.versions
        return found

    async def decisions(
        self,
        name: str,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        descending: bool = True,
        size: int = 100,
        token: str = "",
    ) -> api.ListDecisionsResponse:
        """Lists what became of each nominal time of a range."""
        request = api.ListDecisionsRequest(
            name=name,
            start_time=None if start is None else timestamp("start", start),
            end_time=None if end is None else timestamp("end", end),
            descending=descending,
            page_size=size,
            page_token=token,
        )
        answer: api.ListDecisionsResponse = await self._call(
            grpc.JobServiceStub, "ListDecisions", request
        )
        return answer

    async def forecast(
        self, start: datetime, end: datetime, interval_s: int
    ) -> api.ForecastLoadResponse:
        """Counts the nominal times of all jobs by interval."""
        request = api.ForecastLoadRequest(
            start_time=timestamp("start", start),
            end_time=timestamp("end", end),
            interval_s=interval_s,
        )
        answer: api.ForecastLoadResponse = await self._call(
            grpc.JobServiceStub, "ForecastLoad", request
        )
        return answer

    # Runs -------------------------------------------------------------------------------------

    async def run(self, name: str) -> run_pb2.Run:
        """Reads a run, whole."""
        request = api.GetRunRequest(name=name)
        run: run_pb2.Run = (await self._call(grpc.RunServiceStub, "GetRun", request)).run
        return run

    async def runs(
        self,
        parent: str = "",
        *,
        states: Sequence[run_pb2.RunState.ValueType] = (),
        after: datetime | None = None,
        before: datetime | None = None,
        size: int = 100,
        token: str = "",
    ) -> api.ListRunsResponse:
        """Lists a page of runs: live ones first, then ended ones, newest first."""
        request = api.ListRunsRequest(
            parent=parent,
            states=states,
            after_time=None if after is None else timestamp("after", after),
            before_time=None if before is None else timestamp("before", before),
            page_size=size,
            page_token=token,
            view=api.VIEW_BASIC,
        )
        answer: api.ListRunsResponse = await self._call(grpc.RunServiceStub, "ListRuns", request)
        return answer

    async def end_run(self, name: str, reason: str, *, terminate: bool) -> None:
        """Asks a run to end, or has it killed."""
        if terminate:
            await self._call(
                grpc.RunServiceStub,
                "TerminateRun",
                api.TerminateRunRequest(name=name, reason=reason),
            )
        else:
            request = api.CancelRunRequest(name=name, reason=reason)
            await self._call(grpc.RunServiceStub, "CancelRun", request)

    async def retry(self, name: str, request_id: str) -> api.RetryRunResponse:
        """Runs an ended run again."""
        request = api.RetryRunRequest(name=name, request_id=request_id)
        answer: api.RetryRunResponse = await self._call(grpc.RunServiceStub, "RetryRun", request)
        return answer

    def watch(self, name: str, timeout_s: float) -> AsyncGenerator[api.WatchRunsResponse, None]:
        """Streams the changes of a run, or of a job's runs, for so long."""
        request = api.WatchRunsRequest(name=name)
        call = Call(grpc.RunServiceStub, "WatchRuns", request)
        return self._calls.stream(call, timeout_s=timeout_s)

    # The mesh ---------------------------------------------------------------------------------

    async def members(self) -> api.ListMembersResponse:
        """Lists leaders, standbys and workers."""
        answer: api.ListMembersResponse = await self._call(
            grpc.MeshServiceStub, "ListMembers", api.ListMembersRequest()
        )
        return answer

    async def queues(self) -> api.ListQueuesResponse:
        """Lists the queues with their lines, and the workers' sessions."""
        answer: api.ListQueuesResponse = await self._call(
            grpc.MeshServiceStub, "ListQueues", api.ListQueuesRequest()
        )
        return answer

    async def pause_queue(self, queue: str, reason: str, *, paused: bool) -> None:
        """Stops the assignments of a queue, or lets them go on."""
        request = api.PauseQueueRequest(queue=queue, paused=paused, reason=reason)
        await self._call(grpc.MeshServiceStub, "PauseQueue", request)

    async def drain_worker(self, session: str) -> None:
        """Has a worker take nothing further and end when it is done."""
        request = api.DrainWorkerRequest(session=session)
        await self._call(grpc.MeshServiceStub, "DrainWorker", request)

    async def store(self) -> api.GetStoreStatusResponse:
        """Tells how the store is, and who holds its leases."""
        answer: api.GetStoreStatusResponse = await self._call(
            grpc.MeshServiceStub, "GetStoreStatus", api.GetStoreStatusRequest()
        )
        return answer

    # Dead letters and backfills ---------------------------------------------------------------

    async def dead_letters(
        self, filter_: dead_letter_pb2.DeadLetterFilter, *, size: int = 200, token: str = ""
    ) -> dead_letter_pb2.ListDeadLettersResponse:
        """Lists a page of dead letters, newest first."""
        request = dead_letter_pb2.ListDeadLettersRequest(
            filter=filter_, page_size=size, page_token=token
        )
        answer: dead_letter_pb2.ListDeadLettersResponse = await self._call(
            dead_grpc.DeadLetterServiceStub, "ListDeadLetters", request
        )
        return answer

    async def requeue(
        self, filter_: dead_letter_pb2.DeadLetterFilter, *, dry_run: bool
    ) -> dead_letter_pb2.RequeueDeadLettersResponse:
        """Runs dead letters again, or counts them."""
        request = dead_letter_pb2.RequeueDeadLettersRequest(filter=filter_, validate_only=dry_run)
        answer: dead_letter_pb2.RequeueDeadLettersResponse = await self._call(
            dead_grpc.DeadLetterServiceStub, "RequeueDeadLetters", request
        )
        return answer

    async def backfills(self, name: str) -> Sequence[backfill_pb2.Backfill]:
        """Lists the newest backfills of a job, newest first."""
        request = backfill_pb2.ListBackfillsRequest(parent=name, page_size=20)
        answer = await self._call(backfill_pb2_grpc.BackfillServiceStub, "ListBackfills", request)
        found: Sequence[backfill_pb2.Backfill] = answer.backfills
        return found

    async def backfill(
        self, request: backfill_pb2.CreateBackfillRequest
    ) -> backfill_pb2.CreateBackfillResponse:
        """Runs a range of the past, or plans it; the request's id makes a repetition harmless."""
        answer: backfill_pb2.CreateBackfillResponse = await self._call(
            backfill_pb2_grpc.BackfillServiceStub, "CreateBackfill", request
        )
        return answer

    async def cancel_backfill(self, name: str) -> backfill_pb2.Backfill:
        """Has a backfill start nothing further."""
        request = backfill_pb2.CancelBackfillRequest(name=name)
        answer = await self._call(backfill_pb2_grpc.BackfillServiceStub, "CancelBackfill", request)
        found: backfill_pb2.Backfill = answer.backfill
        return found

    async def _call(self, stub: Any, method: str, request: Any) -> Any:
        # All of them may be repeated: what changes something carries an id, or is so already.
        call = Call(stub, method, request)
        return await self._calls.unary(call, idempotent=True, timeout_s=TIMEOUT_S)
