"""An API in memory: enough of the mesh for the SDK and the command line to be tried on.

Real gRPC on a port of its own, the real checks of definitions, and a history that holds one run.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import grpc
from google.protobuf.json_format import ParseDict
from grpc_status import rpc_status
from unit.sdk.memory_job_list import page_of
from unit.sdk.memory_operating import Operating

from sexton import errors
from sexton._error_table import to_status
from sexton.v1 import (
    backfill_pb2_grpc,
    dead_letter_pb2_grpc,
    job_pb2,
    run_pb2,
    scheduler_pb2,
    scheduler_pb2_grpc,
)
from sexton_core.errors import FieldError
from sexton_core.instants import DAY, from_datetime
from sexton_core.schedules import JobIdentity, ScheduleCache
from sexton_records.spec import canonical, decode_definition
from sexton_records.times import instant_of, timestamp

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
UID = "0a1b2c3d4e5f60718293a4b5"
ENDED_RUN = "t20261129T020000Z-0a1b2c3d"
SECRET = "a-client-secret-for-tests"


def at(moment):
    return timestamp(from_datetime(moment))


class MemoryApi(
    Operating,
    scheduler_pb2_grpc.JobServiceServicer,
    scheduler_pb2_grpc.RunServiceServicer,
    scheduler_pb2_grpc.MeshServiceServicer,
):
    """All services of scheduler.proto. `calls` lists the methods called; `fail` makes some fail."""

    def __init__(self, secret="", page_size=None):
        self.jobs = {}
        self.terse = False
        self.runs = {}
        self.answers = {}
        self.calls = []
        self.sources = []
        self.failures = {}
        self.gates = {}
        self._secret = secret
        self.deleted = {}
        """When jobs were deleted whose past is kept."""
        self._page_size = page_size
        self.most_scanned = 10_000
        """Jobs looked at for one page of a list."""
        self._changed = threading.Condition()
        self._versions = 0
        self._cut = 0
        self.before = {}
        self.begin_operating()

    def fail(self, method, *failures):
        """Makes the next calls of a method fail, one each; None: that call succeeds."""
        self.failures[method] = list(failures)

    def cut(self):
        """Ends all streams that are open."""
        with self._changed:
            self._cut += 1
            self._changed.notify_all()

    def end(self, name, state=run_pb2.RUN_STATE_SUCCEEDED, **fields):
        """Ends a run."""
        with self._changed:
            run = self.runs[name]
            run.state = state
            run.end_time.CopyFrom(at(NOW))
            for field, value in fields.items():
                setattr(run, field, value)
            self._changed.notify_all()

    def _enter(self, method, context):
        self.calls.append(method)
        metadata = dict(context.invocation_metadata())
        if self._secret and metadata.get("authorization") != f"Bearer {self._secret}":
            raise errors.Unauthenticated(
                "the call carries no secret"
                if "authorization" not in metadata
                else "it is not ours"
            )
        waiting = self.failures.get(method)
        failure = waiting.pop(0) if waiting else None
        if isinstance(failure, threading.Event):
            failure.wait(5)
        elif failure is not None:
            raise failure

    # Jobs

    def CreateJob(self, request, context):
        with self._answering("CreateJob", context):
            if request.request_id in self.answers:
                return self.answers[request.request_id]
            if request.job.name in self.jobs:
                raise errors.AlreadyExists("job", request.job.name)
            job = self._written(request.job, write=not request.validate_only)
            self.answers[request.request_id] = scheduler_pb2.CreateJobResponse(job=job)
            return self.answers[request.request_id]

    def GetJob(self, request, context):
        with self._answering("GetJob", context):
            if request.name in self.deleted and request.name not in self.jobs:
                # This call alone tells, as the real one.
                raise errors.NotFound("job", request.name, self.deleted[request.name])
            return scheduler_pb2.GetJobResponse(job=self._job(request.name))

    def ListJobs(self, request, context):
        with self._answering("ListJobs", context):
            size = self._page_size or request.page_size or 100
            page, token, scanned = page_of(self.jobs, request, size=size, most=self.most_scanned)
            if request.view != scheduler_pb2.VIEW_FULL:
                page = [self._without_task(job) for job in page]
            return scheduler_pb2.ListJobsResponse(jobs=page, next_page_token=token, scanned=scanned)

    def UpdateJob(self, request, context):
        with self._answering("UpdateJob", context):
            job = self._job(request.job.name)
            if request.job.etag and request.job.etag != job.etag:
                raise errors.StaleRevision("etag", int(request.job.etag), int(job.etag))
            changed = job_pb2.Job(name=job.name, spec=job.spec)
            if request.update_mask.paths:
                request.update_mask.MergeMessage(request.job.spec, changed.spec, True, True)
            else:
                changed.spec.CopyFrom(request.job.spec)
            written = self._written(changed, write=not request.validate_only)
            return scheduler_pb2.UpdateJobResponse(job=written)

    def DeleteJob(self, request, context):
        with self._answering("DeleteJob", context):
            job = self.jobs.get(request.name)
            if request.uid and (job is None or job.uid != request.uid):
                return scheduler_pb2.DeleteJobResponse()
            del self.jobs[self._job(request.name).name]
            return scheduler_pb2.DeleteJobResponse()

    def ApplyJobs(self, request, context):
        with self._answering("ApplyJobs", context):
            self.sources.append(request.source)
            checked = [self._checked(job) for job in request.jobs]
            applied = []
            for job, spec in zip(request.jobs, checked, strict=True):
                known = self.jobs.get(job.name)
                change = scheduler_pb2.AppliedJob.CHANGE_CREATED
                paths = []
                if known is not None:
                    paths = [
                        field.name
                        for field in spec.DESCRIPTOR.fields
                        if getattr(spec, field.name) != getattr(known.spec, field.name)
                    ]
                    change = (
                        scheduler_pb2.AppliedJob.CHANGE_UPDATED
                        if paths
                        else scheduler_pb2.AppliedJob.CHANGE_NONE
                    )
                written = known
                if change != scheduler_pb2.AppliedJob.CHANGE_NONE:
                    written = self._written(job, write=not request.validate_only)
                written.source = request.source
                applied.append(
                    scheduler_pb2.AppliedJob(job=written, change=change, changed_paths=paths)
                )
            if request.prune:
                applied += self._prune(request)
            answer = scheduler_pb2.ApplyJobsResponse(jobs=applied, read_time=at(NOW))
            for each in answer.jobs if self.terse else ():
                each.job.ClearField("spec")
            return answer

    def _prune(self, request):
        """Deletes what the source has applied before and does not name any more."""
        keep = {job.name for job in request.jobs} | set(request.prune_keep)
        for name in sorted(self.jobs):
            namespace = name.split("/")[1]
            if (
                self.jobs[name].source == request.source
                and name not in keep
                and namespace in request.prune_namespaces
            ):
                job = self.jobs[name]
                if not request.validate_only:
                    del self.jobs[name]
                yield scheduler_pb2.AppliedJob(
                    job=job, change=scheduler_pb2.AppliedJob.CHANGE_PRUNED, lost=30
                )

    def PauseJob(self, request, context):
        with self._answering("PauseJob", context):
            job = self._job(request.name)
            job.paused, job.pause_reason = True, request.reason
            return scheduler_pb2.PauseJobResponse(job=job)

    def ResumeJob(self, request, context):
        with self._answering("ResumeJob", context):
            job = self._job(request.name)
            job.paused, job.pause_reason = False, ""
            return scheduler_pb2.ResumeJobResponse(job=job)

    def TriggerJob(self, request, context):
        with self._answering("TriggerJob", context):
            job = self._job(request.name)
            name = f"{job.name}/runs/m20261129T120000Z-{request.request_id[:8]}"
            if request.overlap == job_pb2.OVERLAP_POLICY_SKIP:
                return scheduler_pb2.TriggerJobResponse(decision="skipped", reason="run t1 is live")
            if request.overlap == job_pb2.OVERLAP_POLICY_BUFFER_ONE:
                return scheduler_pb2.TriggerJobResponse(
                    decision="buffered", reason="run t1 is live"
                )
            run = self.runs.setdefault(
                name,
                run_pb2.Run(
                    name=name,
                    job_uid=job.uid,
                    origin=run_pb2.RUN_ORIGIN_MANUAL,
                    nominal_time=at(NOW),
                    due_time=at(NOW),
                    create_time=at(NOW),
                    state=run_pb2.RUN_STATE_WAITING,
                    job_version=job.version,
                    queue=job.spec.queue,
                ),
            )
            return scheduler_pb2.TriggerJobResponse(run=run)

    def ExplainJob(self, request, context):
        with self._answering("ExplainJob", context):
            if request.name not in self.deleted:
                self._job(request.name)
            return scheduler_pb2.ExplainJobResponse(
                nominal_time=request.time,
                summary="It will run.",
                gates=[
                    scheduler_pb2.Gate(
                        name="schedule", passed=True, detail="0 3 * * * asks for it"
                    ),
                    scheduler_pb2.Gate(name="paused", passed=True, detail="the job is active"),
                ],
                decision="fired",
                forecast=True,
                previous_time=timestamp(instant_of(request.time) - DAY),
                following_time=timestamp(instant_of(request.time) + DAY),
            )

    # Runs

    def GetRun(self, request, context):
        with self._answering("GetRun", context):
            return scheduler_pb2.GetRunResponse(run=self._run(request.name))

    def ListRuns(self, request, context):
        with self._answering("ListRuns", context):
            found = [
                run
                for name, run in sorted(self.runs.items(), reverse=True)
                if name.startswith(f"{request.parent}/" if request.parent else "")
                and (not request.states or run.state in request.states)
                and (
                    not run.HasField("end_time")
                    or run.end_time.ToNanoseconds() >= request.after_time.ToNanoseconds()
                )
            ]
            page, token = self._page(found, request)
            return scheduler_pb2.ListRunsResponse(runs=page, next_page_token=token)

    def CancelRun(self, request, context):
        with self._answering("CancelRun", context):
            return scheduler_pb2.CancelRunResponse(
                run=self._ended(request.name, run_pb2.RUN_STATE_CANCELLED)
            )

    def TerminateRun(self, request, context):
        with self._answering("TerminateRun", context):
            return scheduler_pb2.TerminateRunResponse(
                run=self._ended(request.name, run_pb2.RUN_STATE_TERMINATED)
            )

    def WatchRuns(self, request, context):
        with self._answering("WatchRuns", context):
            ended = run_pb2.RUN_STATE_SUCCEEDED
            # Of a job or namespace a stream begins with the runs in flight.
            sent = {name: run.state for name, run in self.runs.items() if run.state >= ended}
            if "/runs/" in request.name:
                sent = {}
                self._run(request.name)
            elif "/jobs/" in request.name:
                self._job(request.name)
            synced = False
            cut = self._cut
            while context.is_active():
                with self._changed:
                    if self._cut != cut:
                        raise errors.Unavailable("this replica stops")
                    new = [
                        run
                        for name, run in self.runs.items()
                        if (name == request.name or name.startswith(f"{request.name}/"))
                        and sent.get(name) != run.state
                    ]
                    sent.update((run.name, run.state) for run in new)
                    answer = scheduler_pb2.WatchRunsResponse(runs=new, synced=True)
                    over = "/runs/" in request.name and any(run.state >= ended for run in new)
                if new or not synced:
                    synced = True
                    yield answer
                if over:
                    return
                with self._changed:
                    self._changed.wait(0.05)

    # Mesh

    def ListMembers(self, request, context):
        with self._answering("ListMembers", context):
            roles = scheduler_pb2.Member
            return scheduler_pb2.ListMembersResponse(
                mesh_time=at(NOW),
                members=[
                    scheduler_pb2.Member(
                        role=role,
                        id=f"id-{role}",
                        address=f"127.0.0.1:740{role}",
                        leading=role in (roles.ROLE_COORDINATOR, roles.ROLE_QUEUE),
                        token=role * 10,
                        skew_ms=-3,
                        software_version="0.1.0",
                        details={"slots": "4"} if role == roles.ROLE_WORKER else {},
                    )
                    for role in (
                        roles.ROLE_STORE,
                        roles.ROLE_COORDINATOR,
                        roles.ROLE_QUEUE,
                        roles.ROLE_WORKER,
                    )
                ],
            )

    # What the calls share

    @contextmanager
    def _answering(self, method, context):
        try:
            self._enter(method, context)
            yield
        except errors.SextonError as error:
            context.abort_with_status(rpc_status.to_status(to_status(error)))
        except FieldError as error:
            refusal = errors.InvalidArgument(error.field, error.value, error.expected)
            context.abort_with_status(rpc_status.to_status(to_status(refusal)))

    def _checked(self, job):
        identity = JobIdentity(namespace="default", name="a", uid=UID, since=from_datetime(NOW))
        definition = decode_definition(job.spec, 1, identity, ScheduleCache())
        return canonical(job.spec, definition)

    def _written(self, job, *, write=True):
        namespace, name = job.name.split("/")[1::2]
        identity = JobIdentity(namespace=namespace, name=name, uid=UID, since=from_datetime(NOW))
        definition = decode_definition(job.spec, 1, identity, ScheduleCache())
        known = self.jobs.get(job.name)
        self._versions += 1
        written = job_pb2.Job(
            name=job.name,
            uid=known.uid if known else UID,
            etag=str(self._versions),
            spec=canonical(job.spec, definition),
            version=known.version + 1 if known else 1,
            paused=bool(known and known.paused),
            create_time=at(NOW),
            update_time=at(NOW),
        )
        following = definition.schedule and definition.schedule.next_after(from_datetime(NOW))
        if following:
            written.next_time.CopyFrom(timestamp(following))
        written.notices.extend(self.notices.get(job.name, ()))
        if write:
            if known is not None:
                self.before[job.name] = known.spec
            self.jobs[job.name] = written
        return written

    def _job(self, name):
        if name not in self.jobs:
            raise errors.NotFound("job", name)
        return self.jobs[name]

    def _run(self, name):
        if name not in self.runs:
            raise errors.NotFound("run", name)
        return self.runs[name]

    def _ended(self, name, state):
        run = self._run(name)
        if run.state < run_pb2.RUN_STATE_SUCCEEDED:
            self.end(name, state)
        return run

    def _page(self, found, request):
        start = int(request.page_token or 0)
        size = self._page_size or request.page_size or 100
        end = start + size
        return found[start:end], str(end) if end < len(found) else ""

    @staticmethod
    def _without_task(job):
        basic = job_pb2.Job()
        basic.CopyFrom(job)
        basic.spec.ClearField("task")
        return basic


def with_history(api):
    """Gives the API one job and one ended run."""
    name = "namespaces/default/jobs/nightly"
    spec = {
        "schedules": [{"cron": "0 3 * * *", "timeZone": "Europe/Berlin"}],
        "task": {"shell": {"command": "./backup"}},
    }
    api._written(ParseDict({"name": name, "spec": spec}, job_pb2.Job()))
    run = f"{name}/runs/{ENDED_RUN}"
    due = datetime(2026, 11, 29, 2, 0, tzinfo=UTC)
    api.runs[run] = run_pb2.Run(
        name=run,
        job_uid=UID,
        origin=run_pb2.RUN_ORIGIN_SCHEDULE,
        nominal_time=at(due),
        due_time=at(due),
        create_time=at(due),
        end_time=at(due + timedelta(seconds=42)),
        state=run_pb2.RUN_STATE_SUCCEEDED,
        job_version=1,
        queue="default",
        failures=1,
        result_json='{"files": 3}',
        attempts=[
            run_pb2.Attempt(
                number=1,
                token=11,
                session="s1",
                worker="one",
                state=run_pb2.ATTEMPT_STATE_FAILED,
                assign_time=at(due),
                start_time=at(due),
                end_time=at(due + timedelta(seconds=2)),
                error=run_pb2.RunError(kind="exit 1", message="no space left", detail="df: 0"),
                output_tail="no space left\n",
            ),
            run_pb2.Attempt(
                number=2,
                token=12,
                session="s1",
                worker="one",
                state=run_pb2.ATTEMPT_STATE_SUCCEEDED,
                assign_time=at(due + timedelta(seconds=3)),
                start_time=at(due + timedelta(seconds=3)),
                end_time=at(due + timedelta(seconds=42)),
                output_tail="done\n",
            ),
        ],
    )
    return api


@contextmanager
def serving(api, port=0):
    """Serves it on 127.0.0.1; gives the address."""
    server = grpc.server(ThreadPoolExecutor(8), options=(("grpc.so_reuseport", 0),))
    for part in ("Job", "Run", "Mesh"):
        getattr(scheduler_pb2_grpc, f"add_{part}ServiceServicer_to_server")(api, server)
    backfill_pb2_grpc.add_BackfillServiceServicer_to_server(api, server)
    dead_letter_pb2_grpc.add_DeadLetterServiceServicer_to_server(api, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield f"127.0.0.1:{bound}"
    finally:
        server.stop(None).wait()
