"""From messages of the API to the values that the SDK gives."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from sexton import jobs, mesh, runs
from sexton._spec_messages import spec_of
from sexton._values import EnumWords, datetime_of, parts_of, timedelta_of
from sexton.v1 import job_pb2, run_pb2, scheduler_pb2

RUN_STATES: Final = EnumWords(run_pb2.RunState, "RUN_STATE_")
RESUME_MODES: Final = EnumWords(scheduler_pb2.ResumeMode, "RESUME_MODE_")
JOB_ORDERS: Final = EnumWords(scheduler_pb2.JobOrder, "JOB_ORDER_")
_ORIGINS: Final = EnumWords(run_pb2.RunOrigin, "RUN_ORIGIN_")
_ATTEMPT_STATES: Final = EnumWords(run_pb2.AttemptState, "ATTEMPT_STATE_")
_CANCEL_MODES: Final = EnumWords(run_pb2.CancelMode, "CANCEL_MODE_")
_CHANGES: Final = EnumWords(scheduler_pb2.AppliedJob.Change, "CHANGE_")
_ROLES: Final = EnumWords(scheduler_pb2.Member.Role, "ROLE_")


Specs: TypeAlias = dict[bytes, jobs.JobSpec]
"""Definitions by their serialised messages: of an answer many jobs of which have the same one."""
Alike: TypeAlias = dict[bytes, tuple[dict[str, Any], dict[str, Any]]]
"""What several jobs of one apply are told alike, by its serialised message."""


def job_of(message: job_pb2.Job, specs: Specs | None = None) -> jobs.Job:
    """Gives a job; one whose task was left out (view BASIC) has no `spec`.

    Definitions that stand in `specs` are shared, others are added to it.
    """
    namespace, name = parts_of(message.name)
    told = _told_of(message, specs)
    return jobs.Job(namespace=namespace, name=name, uid=message.uid, etag=message.etag, **told)


def _told_of(message: job_pb2.Job, specs: Specs | None) -> dict[str, Any]:
    """Gives the fields of a job but for its name, uid and etag."""
    whole = message.HasField("spec") and message.spec.task.WhichOneof("kind") is not None
    return {
        "spec": _spec_of(message.spec, specs) if whole else None,
        "version": message.version,
        "paused": message.paused,
        "pause_reason": message.pause_reason,
        "create_time": time_of(message, "create_time"),
        "update_time": time_of(message, "update_time"),
        "next_time": time_of(message, "next_time"),
        "cursor_time": time_of(message, "cursor_time"),
        "live_runs": tuple(name.rpartition("/")[2] for name in message.live_runs),
        "warnings": tuple(message.warnings),
        "source": message.source,
        "notices": tuple(message.notices),
    }


def applied_of(message: scheduler_pb2.AppliedJob, alike: Alike, specs: Specs) -> jobs.Applied:
    """Gives what became of one job of an apply, and takes the message apart.

    What is told of new jobs with one definition is the same but for their name, uid and etag; it is
    read once, and kept in `alike`. Definitions are shared beyond that, as by `job_of`: jobs that
    are created one after the other are told other times.
    """
    job = message.job
    name, uid, etag = job.name, job.uid, job.etag
    job.ClearField("name")
    job.ClearField("uid")
    job.ClearField("etag")
    key = message.SerializeToString()
    known = alike.get(key)
    if known is None:
        known = alike[key] = _alike_of(message, specs)
    namespace, short = parts_of(name)
    of_all, rest = known
    return jobs.Applied(
        job=jobs.Job(namespace=namespace, name=short, uid=uid, etag=etag, **of_all), **rest
    )


def _alike_of(
    message: scheduler_pb2.AppliedJob, specs: Specs
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Gives the fields of a job but for name, uid and etag, and those of what became of it."""
    rest = {
        "change": _CHANGES.word(jobs.Change, message.change),
        "changed": tuple(message.changed_paths),
        "gained": message.gained,
        "lost": message.lost,
        "gained_times": tuple(datetime_of(each) for each in message.gained_times),
        "lost_times": tuple(datetime_of(each) for each in message.lost_times),
    }
    return _told_of(message.job, specs), rest


def triggered_of(message: scheduler_pb2.TriggerJobResponse) -> jobs.Triggered:
    """Gives what became of a start that was asked for."""
    return jobs.Triggered(
        run=run_of(message.run) if message.HasField("run") else None,
        decision=message.decision,
        reason=message.reason,
    )


def explanation_of(message: scheduler_pb2.ExplainJobResponse) -> jobs.Explanation:
    """Gives an explanation."""
    return jobs.Explanation(
        nominal_time=time_of(message, "nominal_time"),
        summary=message.summary,
        gates=tuple(
            jobs.Gate(name=gate.name, passed=gate.passed, detail=gate.detail)
            for gate in message.gates
        ),
        decision=message.decision,
        forecast=message.forecast,
        previous_time=time_of(message, "previous_time"),
        following_time=time_of(message, "following_time"),
        run=run_of(message.run) if message.HasField("run") else None,
    )


def run_of(message: run_pb2.Run) -> runs.Run:
    """Gives a run."""
    namespace, job, run = parts_of(message.name)
    return runs.Run(
        namespace=namespace,
        job=job,
        id=run,
        job_uid=message.job_uid,
        state=RUN_STATES.word(runs.RunState, message.state),
        origin=_ORIGINS.word(runs.Origin, message.origin),
        nominal_time=time_of(message, "nominal_time"),
        due_time=time_of(message, "due_time"),
        create_time=time_of(message, "create_time"),
        end_time=time_of(message, "end_time"),
        job_version=message.job_version,
        queue=message.queue,
        priority=message.priority,
        failures=message.failures,
        attempts=tuple(_attempt_of(each) for each in message.attempts),
        error=_error_of(message.error) if message.HasField("error") else None,
        cancel_request=_request_of(message.cancel_request)
        if message.HasField("cancel_request")
        else None,
        not_before_time=time_of(message, "not_before_time"),
        retry_of="/".join(parts_of(message.retry_of)),
        traceparent=message.traceparent,
        result_json=message.result_json,
        progress=_progress_of(message.progress) if message.HasField("progress") else None,
    )


def mesh_of(message: scheduler_pb2.ListMembersResponse) -> mesh.Mesh:
    """Gives the members."""
    return mesh.Mesh(
        mesh_time=time_of(message, "mesh_time"),
        members=tuple(_member_of(each) for each in message.members),
    )


def _attempt_of(message: run_pb2.Attempt) -> runs.Attempt:
    return runs.Attempt(
        number=message.number,
        token=message.token,
        session=message.session,
        worker=message.worker,
        state=_ATTEMPT_STATES.word(runs.AttemptState, message.state),
        assign_time=time_of(message, "assign_time"),
        start_time=time_of(message, "start_time"),
        end_time=time_of(message, "end_time"),
        execution=timedelta_of(message.execution_duration)
        if message.HasField("execution_duration")
        else None,
        error=_error_of(message.error) if message.HasField("error") else None,
        output_tail=message.output_tail,
    )


def _error_of(message: run_pb2.RunError) -> runs.RunError:
    return runs.RunError(kind=message.kind, message=message.message, detail=message.detail)


def _progress_of(message: run_pb2.RunProgress) -> runs.Progress:
    known = message.fraction >= 0
    return runs.Progress(fraction=message.fraction if known else None, message=message.message)


def _request_of(message: run_pb2.CancelRequest) -> runs.CancelRequest:
    return runs.CancelRequest(
        mode=_CANCEL_MODES.word(runs.CancelMode, message.mode, runs.CancelMode.CANCEL),
        reason=message.reason,
        request_time=time_of(message, "request_time"),
    )


def _member_of(message: scheduler_pb2.Member) -> mesh.Member:
    return mesh.Member(
        role=_ROLES.word(mesh.Role, message.role),
        id=message.id,
        address=message.address,
        shard=message.shard,
        leading=message.leading,
        token=message.token,
        skew=timedelta(milliseconds=message.skew_ms),
        software_version=message.software_version,
        details=dict(message.details),
    )


def _spec_of(message: job_pb2.JobSpec, specs: Specs | None) -> jobs.JobSpec:
    if specs is None:
        return spec_of(message)
    key = message.SerializeToString()
    spec = specs.get(key)
    if spec is None:
        spec = specs[key] = spec_of(message)
    return spec


def time_of(message: Any, field: str) -> datetime | None:
    return datetime_of(getattr(message, field)) if message.HasField(field) else None
