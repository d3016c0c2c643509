"""The servicers: wire in, the rooms of this package, wire out."""
# ruff: noqa: N802 - the methods' names are the protos'

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing
from typing import Any, Final

from sexton.errors import InvalidArgument, NotFound
from sexton.v1 import job_pb2, run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton.v1 import scheduler_pb2_grpc as grpc_services
from sexton_coordinator.api import checks
from sexton_coordinator.api.applying import Applier
from sexton_coordinator.api.editing import Editor
from sexton_coordinator.api.ending import RunEnder
from sexton_coordinator.api.explaining import Explainer
from sexton_coordinator.api.forecasting import Forecaster
from sexton_coordinator.api.former import Incarnations
from sexton_coordinator.api.job_listing import JobLister
from sexton_coordinator.api.ledger import LedgerReader
from sexton_coordinator.api.members import MemberLister
from sexton_coordinator.api.notices import Notices
from sexton_coordinator.api.peers import time_left_s
from sexton_coordinator.api.previewing import Previewer
from sexton_coordinator.api.progress import ProgressReader
from sexton_coordinator.api.queues import QueueLister, store_status
from sexton_coordinator.api.run_finding import RunFinder
from sexton_coordinator.api.run_listing import RunLister
from sexton_coordinator.api.run_watching import RunWatcher
from sexton_coordinator.api.showing import Viewer
from sexton_coordinator.api.starting import Starter
from sexton_coordinator.api.versions import Versions
from sexton_coordinator.mesh import Mesh
from sexton_core.ids import check_name
from sexton_core.instants import format_instant
from sexton_core.words import ResumeMode
from sexton_records.runs import run_message

JOB_SERVICE: Final = "sexton.v1.JobService"
RUN_SERVICE: Final = "sexton.v1.RunService"
MESH_SERVICE: Final = "sexton.v1.MeshService"

_MODES: Final = {
    api.RESUME_MODE_UNSPECIFIED: ResumeMode.NEXT,
    api.RESUME_MODE_NEXT: ResumeMode.NEXT,
    api.RESUME_MODE_NOW: ResumeMode.NOW,
    api.RESUME_MODE_CATCH_UP: ResumeMode.CATCH_UP,
}
OVERLAPS: Final = {value: value for value in job_pb2.OverlapPolicy.values()}


class JobServicer(grpc_services.JobServiceServicer):
    """Serves `sexton.v1.JobService`."""

    def __init__(self, mesh: Mesh, finder: RunFinder, starter: Starter) -> None:
        self._editor = Editor(mesh)
        self._notices = Notices(mesh)
        self._applier = Applier(mesh, self._editor, self._notices)
        self._viewer = Viewer(mesh)
        self._lister = JobLister(mesh, self._notices)
        self._explainer = Explainer(mesh, finder, self._notices)
        self._starter = starter
        self._previewer = Previewer(mesh)
        self._versions = Versions(mesh)
        self._ledger = LedgerReader(mesh)
        self._incarnations = Incarnations(mesh)
        self._forecaster = Forecaster(mesh)

    async def CreateJob(
        self, request: api.CreateJobRequest, _context: Any
    ) -> api.CreateJobResponse:
        """Creates a job."""
        name = checks.job_name("job.name", request.job.name)
        checks.request_id(request.request_id, required=False)
        return api.CreateJobResponse(job=await self._noted(self._editor.create(name, request)))

    async def GetJob(self, request: api.GetJobRequest, _context: Any) -> api.GetJobResponse:
        """Reads a job."""
        name = checks.job_name("name", request.name)
        try:
            loaded = await self._editor.changer.load(name)
        except NotFound as error:
            former = await self._incarnations.last(name)
            if former is None or former.deleted_at is None:
                raise
            gone = NotFound("job", str(name), format_instant(former.deleted_at))
            raise gone from error
        return api.GetJobResponse(job=await self._noted(self._viewer.loaded(loaded)))

    async def ListJobs(self, request: api.ListJobsRequest, _context: Any) -> api.ListJobsResponse:
        """Lists jobs."""
        return await self._lister.page(request)

    async def UpdateJob(
        self, request: api.UpdateJobRequest, _context: Any
    ) -> api.UpdateJobResponse:
        """Changes a definition."""
        name = checks.job_name("job.name", request.job.name)
        revision = checks.etag(request.job.etag)
        job = await self._noted(self._editor.update(name, request, revision))
        return api.UpdateJobResponse(job=job)

    async def DeleteJob(
        self, request: api.DeleteJobRequest, _context: Any
    ) -> api.DeleteJobResponse:
        """Deletes a job."""
        name = checks.job_name("name", request.name)
        revision = checks.etag(request.etag)
        uid = checks.uid(request.uid)
        await self._editor.delete(name, revision, uid)
        return api.DeleteJobResponse()

    async def ApplyJobs(
        self, request: api.ApplyJobsRequest, _context: Any
    ) -> api.ApplyJobsResponse:
        """Creates or updates many jobs."""
        return await self._applier.apply(request)

    async def PauseJob(self, request: api.PauseJobRequest, _context: Any) -> api.PauseJobResponse:
        """Stops new starts."""
        name = checks.job_name("name", request.name)
        reason = checks.note("reason", request.reason)
        return api.PauseJobResponse(job=await self._noted(self._editor.pause(name, reason)))

    async def ResumeJob(
        self, request: api.ResumeJobRequest, _context: Any
    ) -> api.ResumeJobResponse:
        """Lets a job start again."""
        name = checks.job_name("name", request.name)
        mode = checks.word(_MODES, "mode", request.mode)
        return api.ResumeJobResponse(job=await self._noted(self._editor.resume(name, mode)))

    async def TriggerJob(
        self, request: api.TriggerJobRequest, context: Any
    ) -> api.TriggerJobResponse:
        """Starts a run now, by the leader of the job's shard."""
        timeout_s = time_left_s(context)
        name = checks.job_name("name", request.name)
        checks.request_id(request.request_id, required=True)
        checks.word(OVERLAPS, "overlap", request.overlap)
        return await self._starter.trigger(name, request, timeout_s=timeout_s)

    async def ExplainJob(
        self, request: api.ExplainJobRequest, _context: Any
    ) -> api.ExplainJobResponse:
        """Explains what became, or will become, of a job at an instant."""
        name = checks.job_name("name", request.name)
        at = checks.instant("time", request.time if request.HasField("time") else None)
        return await self._explainer.explain(name, at)

    async def PreviewJob(
        self, request: api.PreviewJobRequest, _context: Any
    ) -> api.PreviewJobResponse:
        """Computes the next nominal times."""
        return await self._previewer.preview(request)

    async def ListJobVersions(
        self, request: api.ListJobVersionsRequest, _context: Any
    ) -> api.ListJobVersionsResponse:
        """Lists the definitions that a job has had."""
        return await self._versions.page(request)

    async def ListDecisions(
        self, request: api.ListDecisionsRequest, _context: Any
    ) -> api.ListDecisionsResponse:
        """Lists what became of each nominal time of a range."""
        return await self._ledger.page(request)

    async def ForecastLoad(
        self, request: api.ForecastLoadRequest, _context: Any
    ) -> api.ForecastLoadResponse:
        """Counts the nominal times to come."""
        return await self._forecaster.forecast(request)

    async def _noted(self, answer: Awaitable[job_pb2.Job]) -> job_pb2.Job:
        """Adds to a job what stands in the way of its runs."""
        job = await answer
        await self._notices.add(job)
        return job


class RunServicer(grpc_services.RunServiceServicer):
    """Serves `sexton.v1.RunService`."""

    def __init__(self, mesh: Mesh, finder: RunFinder, starter: Starter) -> None:
        self._finder = finder
        self._lister = RunLister(mesh, self._finder)
        self._ender = RunEnder(mesh, self._finder)
        self._watcher = RunWatcher(mesh, self._finder)
        self._starter = starter
        self._progress = ProgressReader(mesh)

    async def GetRun(self, request: api.GetRunRequest, _context: Any) -> api.GetRunResponse:
        """Reads a run."""
        found = await self._finder.find(checks.run_name("name", request.name))
        if found is None:
            raise NotFound("run", request.name)
        run = run_message(found.record, found.revision, full=True)
        await self._progress.add(run, found)
        return api.GetRunResponse(run=run)

    async def ListRuns(self, request: api.ListRunsRequest, _context: Any) -> api.ListRunsResponse:
        """Lists runs."""
        return await self._lister.page(request)

    async def CancelRun(self, request: api.CancelRunRequest, context: Any) -> api.CancelRunResponse:
        """Asks a run to end."""
        name = checks.run_name("name", request.name)
        reason = checks.note("reason", request.reason)
        run = await self._ender.end(
            name, run_pb2.CANCEL_MODE_CANCEL, reason, timeout_s=time_left_s(context)
        )
        return api.CancelRunResponse(run=run)

    async def TerminateRun(
        self, request: api.TerminateRunRequest, context: Any
    ) -> api.TerminateRunResponse:
        """Has a run killed."""
        name = checks.run_name("name", request.name)
        reason = checks.note("reason", request.reason)
        run = await self._ender.end(
            name, run_pb2.CANCEL_MODE_TERMINATE, reason, timeout_s=time_left_s(context)
        )
        return api.TerminateRunResponse(run=run)

    async def WatchRuns(
        self, request: api.WatchRunsRequest, _context: Any
    ) -> AsyncIterator[api.WatchRunsResponse]:
        """Streams runs as they stand, then each change."""
        name = checks.watched_name("name", request.name)
        if request.ended_only and not name.run:
            raise InvalidArgument("ended_only", "true", "false, unless one run is watched")
        watching = self._watcher.watch(name, ended_only=request.ended_only)
        async with aclosing(watching) as responses:
            async for response in responses:
                yield response

    async def RetryRun(self, request: api.RetryRunRequest, context: Any) -> api.RetryRunResponse:
        """Runs an ended run again, by the leader of the job's shard."""
        timeout_s = time_left_s(context)
        name = checks.run_name("name", request.name)
        checks.request_id(request.request_id, required=True)
        checks.word(OVERLAPS, "overlap", request.overlap)
        answer = await self._starter.retry(name, request, timeout_s=timeout_s)
        return api.RetryRunResponse(
            run=answer.run if answer.HasField("run") else None,
            decision=answer.decision,
            reason=answer.reason,
            run_name=answer.run_name,
        )

    async def stop(self) -> None:
        """Ends open streams."""
        await self._watcher.stop()


class MeshServicer(grpc_services.MeshServiceServicer):
    """Serves `sexton.v1.MeshService`."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._lister = MemberLister(mesh)
        self._queues = QueueLister(mesh)

    async def ListMembers(
        self, _request: api.ListMembersRequest, _context: Any
    ) -> api.ListMembersResponse:
        """Lists leaders, standbys and workers."""
        return await self._lister.members()

    async def ListQueues(
        self, _request: api.ListQueuesRequest, context: Any
    ) -> api.ListQueuesResponse:
        """Lists queues and workers."""
        return await self._queues.queues(timeout_s=time_left_s(context))

    async def PauseQueue(
        self, request: api.PauseQueueRequest, context: Any
    ) -> api.PauseQueueResponse:
        """Stops the assignments of a queue, or lets them go on."""
        with checks.refusing():
            check_name("queue", request.queue)
        checks.note("reason", request.reason)
        queue = await self._queues.pause(request, timeout_s=time_left_s(context))
        return api.PauseQueueResponse(queue=queue)

    async def DrainWorker(
        self, request: api.DrainWorkerRequest, context: Any
    ) -> api.DrainWorkerResponse:
        """Has a worker drain and end."""
        if not request.session:
            raise InvalidArgument("session", "", "the id of a worker's session, from ListQueues")
        checks.note("session", request.session)
        await self._queues.drain(request.session, timeout_s=time_left_s(context))
        return api.DrainWorkerResponse()

    async def GetStoreStatus(
        self, _request: api.GetStoreStatusRequest, _context: Any
    ) -> api.GetStoreStatusResponse:
        """Tells how the store is."""
        return await store_status(self._mesh)
