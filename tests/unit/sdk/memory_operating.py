"""The rest of the API in memory: the ledger, backfills, dead letters, queues, the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sexton import errors
from sexton.v1 import (
    backfill_pb2,
    backfill_pb2_grpc,
    dead_letter_pb2,
    dead_letter_pb2_grpc,
    job_pb2,
    run_pb2,
    scheduler_pb2,
)
from sexton_core.instants import DAY, from_datetime
from sexton_core.schedules import JobIdentity, build, preview
from sexton_records.schedules import decode_schedules
from sexton_records.times import instant_of, timestamp

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
JOB = "namespaces/default/jobs/nightly"
DEAD_RUN = f"{JOB}/runs/t20261128T020000Z-0a1b2c3d"


def at(moment):
    return timestamp(from_datetime(moment))


def schedule_of(spec, uid="0a1b2c3d4e5f60718293a4b5"):
    identity = JobIdentity(namespace="default", name="a", uid=uid, since=from_datetime(NOW) - DAY)
    decoded = decode_schedules(spec.schedules)
    return None if decoded is None else build(decoded, identity)


class Operating(
    backfill_pb2_grpc.BackfillServiceServicer, dead_letter_pb2_grpc.DeadLetterServiceServicer
):
    """Mixed into `MemoryApi`, whose jobs and runs it uses."""

    def begin_operating(self):
        self.backfills = {}
        self.goes_on = False
        self.stays = ""
        self.decision = "fired"
        self.paused_queues = {}
        self.drained = []
        self.notices = {}
        self.pruned = []
        self.dead = [
            dead_letter_pb2.DeadLetter(
                run=run_pb2.Run(
                    name=DEAD_RUN,
                    state=run_pb2.RUN_STATE_FAILED,
                    origin=run_pb2.RUN_ORIGIN_SCHEDULE,
                    failures=3,
                    end_time=at(NOW - timedelta(hours=10)),
                    error=run_pb2.RunError(kind="exit 1", message="no space left on /srv"),
                ),
                fingerprint="5f0c2b6d",
            )
        ]

    # Jobs and runs

    def RetryRun(self, request, context):
        with self._answering("RetryRun", context):
            old = self._run(request.name)
            if old.state < run_pb2.RUN_STATE_SUCCEEDED:
                raise errors.IllegalState(f"run {request.name}", "RUNNING", ["SUCCEEDED", "FAILED"])
            job = request.name.partition("/runs/")[0]
            if request.overlap == job_pb2.OVERLAP_POLICY_SKIP:
                return scheduler_pb2.RetryRunResponse(decision="skipped", reason="overlap")
            new = run_pb2.Run(
                name=f"{job}/runs/m20261129T120000Z-{request.request_id[:8]}",
                state=run_pb2.RUN_STATE_WAITING,
                origin=run_pb2.RUN_ORIGIN_MANUAL,
                retry_of=request.name,
                nominal_time=old.nominal_time,
                due_time=at(NOW),
                create_time=at(NOW),
            )
            self.runs[new.name] = new
            return scheduler_pb2.RetryRunResponse(run=new)

    def PreviewJob(self, request, context):
        with self._answering("PreviewJob", context):
            spec = request.spec if request.HasField("spec") else self._job(request.name).spec
            schedule = schedule_of(spec)
            after = from_datetime(NOW)
            if request.HasField("after_time"):
                after = instant_of(request.after_time)
            answer = scheduler_pb2.PreviewJobResponse(complete=schedule is None)
            if schedule is None:
                return answer
            shown = preview(schedule, after, request.count or 20)
            for row in shown.rows:
                answer.times.add(
                    nominal_time=timestamp(row.nominal),
                    due_time=timestamp(row.due),
                    local_time=row.local.isoformat(),
                    note="; ".join(row.notes),
                )
            answer.descriptions.append(shown.explanation)
            answer.warnings.extend(each.message for each in shown.warnings)
            return answer

    def ListJobVersions(self, request, context):
        with self._answering("ListJobVersions", context):
            job = self._job(request.name)
            versions = [
                scheduler_pb2.JobVersion(
                    version=job.version, spec=job.spec, after_time=at(NOW), source="jobs.yaml"
                )
            ]
            if job.version > 1:
                old = self.before[job.name]
                versions.append(
                    scheduler_pb2.JobVersion(
                        version=job.version - 1,
                        spec=old,
                        after_time=at(NOW - timedelta(days=9)),
                        until_time=at(NOW),
                    )
                )
            return scheduler_pb2.ListJobVersionsResponse(versions=versions)

    def ListDecisions(self, request, context):
        with self._answering("ListDecisions", context):
            self._job(request.name)
            fired = next(
                run
                for name, run in self.runs.items()
                if name.startswith(f"{request.name}/") and run.origin == run_pb2.RUN_ORIGIN_SCHEDULE
            )
            entries = [
                scheduler_pb2.LedgerEntry(
                    nominal_time=fired.nominal_time,
                    decision=self.decision,
                    reason="on_time",
                    run=fired,
                    decide_time=fired.create_time,
                    job_version=1,
                )
            ]
            if request.HasField("end_time"):
                entries += [
                    scheduler_pb2.LedgerEntry(
                        nominal_time=at(datetime(2026, 11, 30, 2, 0, tzinfo=UTC)),
                        decision="forecast",
                        job_version=1,
                    )
                ]
            return scheduler_pb2.ListDecisionsResponse(entries=entries)

    def ForecastLoad(self, request, context):
        with self._answering("ForecastLoad", context):
            active = [job for job in self.jobs.values() if job.spec.schedules]
            return scheduler_pb2.ForecastLoadResponse(
                intervals=[
                    scheduler_pb2.LoadInterval(start_time=job.next_time, count=1, jobs=[job.name])
                    for job in active
                ],
                total=len(active),
                jobs=len(active),
            )

    # Backfills

    def CreateBackfill(self, request, context):
        with self._answering("CreateBackfill", context):
            job = self._job(request.parent)
            schedule = schedule_of(job.spec).nominal
            last, now = instant_of(request.end_time), instant_of(request.start_time) - 1
            times = []
            while (now := schedule.next_after(now)) is not None and now <= last:
                times.append(timestamp(now))
            if request.order == backfill_pb2.BACKFILL_ORDER_NEWEST_FIRST:
                times.reverse()
            made = backfill_pb2.Backfill(
                name=f"{request.parent}/backfills/0a1b2c3d",
                job_uid=job.uid,
                start_time=request.start_time,
                end_time=request.end_time,
                order=request.order,
                overlap=request.overlap,
                skip_succeeded=request.skip_succeeded,
                job_version=job.version,
                state=backfill_pb2.BACKFILL_STATE_STARTING,
                total=len(times),
                started=1,
                waits_for=f"{request.parent}/runs/b0a1b2c3d-20261122T020000Z",
                create_time=at(NOW),
            )
            if request.validate_only:
                return backfill_pb2.CreateBackfillResponse(backfill=made, times=times)
            self.backfills[made.name] = made
            return backfill_pb2.CreateBackfillResponse(backfill=made)

    def GetBackfill(self, request, context):
        with self._answering("GetBackfill", context):
            found = self._backfill(request.name)
            if self.goes_on:
                return backfill_pb2.GetBackfillResponse(backfill=found)
            found.state, found.started = backfill_pb2.BACKFILL_STATE_DONE, found.total
            found.waits_for = ""
            found.end_state_time.CopyFrom(at(NOW))
            return backfill_pb2.GetBackfillResponse(backfill=found)

    def ListBackfills(self, request, context):
        with self._answering("ListBackfills", context):
            self._job(request.parent)
            self._backfill(f"{request.parent}/backfills/0a1b2c3d")
            return backfill_pb2.ListBackfillsResponse(backfills=self.backfills.values())

    def CancelBackfill(self, request, context):
        with self._answering("CancelBackfill", context):
            found = self._backfill(request.name)
            found.state = backfill_pb2.BACKFILL_STATE_CANCELLED
            found.waits_for = ""
            found.end_state_time.CopyFrom(at(NOW))
            return backfill_pb2.CancelBackfillResponse(backfill=found)

    def _backfill(self, name):
        """The one of the examples exists from the start."""
        if name == f"{JOB}/backfills/0a1b2c3d" and name not in self.backfills:
            self.backfills[name] = backfill_pb2.Backfill(
                name=name,
                start_time=at(datetime(2026, 11, 22, tzinfo=UTC)),
                end_time=at(datetime(2026, 11, 28, tzinfo=UTC)),
                state=backfill_pb2.BACKFILL_STATE_STARTING,
                total=6,
                started=2,
                create_time=at(NOW),
            )
        if name not in self.backfills:
            raise errors.NotFound("backfill", name)
        return self.backfills[name]

    # Dead letters

    def ListDeadLetters(self, request, context):
        with self._answering("ListDeadLetters", context):
            return dead_letter_pb2.ListDeadLettersResponse(
                dead_letters=self._dead_of(request.filter)
            )

    def RequeueDeadLetters(self, request, context):
        with self._answering("RequeueDeadLetters", context):
            found = self._dead_of(request.filter)
            if not request.validate_only:
                self.dead = [each for each in self.dead if each not in found]
            answer = dead_letter_pb2.RequeueDeadLettersResponse()
            for each in found:
                job = each.run.name.partition("/runs/")[0]
                new = f"{job}/runs/m20261129T120000Z-0a1b2c3d"
                gone = request.validate_only or self.stays
                answer.requeued.add(
                    run=each.run.name, new_run="" if gone else new, reason=self.stays
                )
            return answer

    def PurgeDeadLetters(self, request, context):
        with self._answering("PurgeDeadLetters", context):
            found = self._dead_of(request.filter)
            if not request.validate_only:
                self.dead = [each for each in self.dead if each not in found]
            return dead_letter_pb2.PurgeDeadLettersResponse(purged=len(found))

    def _dead_of(self, wanted):
        return [
            each
            for each in self.dead
            if each.run.name.startswith(f"{wanted.parent}/" if wanted.parent else "")
            and (not wanted.runs or each.run.name in wanted.runs)
            and wanted.fingerprint in ("", each.fingerprint)
        ]

    # Mesh

    def ListQueues(self, request, context):
        with self._answering("ListQueues", context):
            return scheduler_pb2.ListQueuesResponse(
                queues=[
                    self._queue("default", ready=2, running=1, oldest_ready_ms=1500, slots=4),
                    self._queue("reports"),
                ],
                workers=[
                    scheduler_pb2.WorkerSession(
                        session="5e551011a0b1c2d3e4f5a6b7",
                        worker="one",
                        queues=["default"],
                        tasks=["refresh"],
                        kinds=["shell"],
                        slots=4,
                        runs=[f"{JOB}/runs/t20261129T110000Z-0a1b2c3d"],
                        running=1,
                        silent_ms=400,
                        connected=True,
                        draining="5e551011a0b1c2d3e4f5a6b7" in self.drained,
                        software_version="0.1.0",
                    )
                ],
            )

    def PauseQueue(self, request, context):
        with self._answering("PauseQueue", context):
            self.paused_queues.pop(request.queue, None)
            if request.paused:
                self.paused_queues[request.queue] = request.reason
            return scheduler_pb2.PauseQueueResponse(queue=self._queue(request.queue))

    def DrainWorker(self, request, context):
        with self._answering("DrainWorker", context):
            if request.session != "5e551011a0b1c2d3e4f5a6b7":
                raise errors.NotFound("worker session", request.session)
            self.drained.append(request.session)
            return scheduler_pb2.DrainWorkerResponse()

    def GetStoreStatus(self, request, context):
        with self._answering("GetStoreStatus", context):
            return scheduler_pb2.GetStoreStatusResponse(
                revision=4711,
                used_bytes=12 * 1024 * 1024,
                map_bytes=64 * 1024 * 1024,
                max_bytes=16 * 1024**3,
                disk_free_bytes=80 * 1024**3,
                watches=5,
                wall_skew_ms=-3,
                cluster_id="c1",
                incarnation="i1",
                leases=[
                    scheduler_pb2.LeaseInfo(
                        name="coordinator/000",
                        token=20,
                        holder="id-2",
                        address="127.0.0.1:7402",
                        ttl_ms=2_000,
                    )
                ],
            )

    def _queue(self, name, **fields):
        return scheduler_pb2.Queue(
            name=name,
            paused=name in self.paused_queues,
            pause_reason=self.paused_queues.get(name, ""),
            **fields,
        )
