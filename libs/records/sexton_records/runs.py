"""Between a run in the core and its record, and the record as the API shows it."""

from typing import Final

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_core.ids import RunId
from sexton_core.instants import Instant
from sexton_core.policy.state import Handle, NewRun
from sexton_core.runs.completion import live_token
from sexton_core.runs.machine import Run
from sexton_core.runs.policy import RunPolicy
from sexton_core.runs.table import WITH_WORKER
from sexton_core.words import Reason, RunState
from sexton_records._bytes import field, text, varint
from sexton_records.spec import template_policy
from sexton_records.state import ORIGINS
from sexton_records.times import timestamp

MAX_ATTEMPTS_SHOWN: Final = 21
"""The first and the newest 20: a record stays small however often its run fails."""

STATES: Final[dict[RunState, run_pb2.RunState.ValueType]] = {
    RunState.WAITING: run_pb2.RUN_STATE_WAITING,
    RunState.RETRYING: run_pb2.RUN_STATE_RETRYING,
    RunState.RUNNING: run_pb2.RUN_STATE_RUNNING,
    RunState.CANCELLING: run_pb2.RUN_STATE_CANCELLING,
    RunState.TERMINATING: run_pb2.RUN_STATE_TERMINATING,
    RunState.SUCCEEDED: run_pb2.RUN_STATE_SUCCEEDED,
    RunState.FAILED: run_pb2.RUN_STATE_FAILED,
    RunState.TIMED_OUT: run_pb2.RUN_STATE_TIMED_OUT,
    RunState.CANCELLED: run_pb2.RUN_STATE_CANCELLED,
    RunState.TERMINATED: run_pb2.RUN_STATE_TERMINATED,
    RunState.EXPIRED: run_pb2.RUN_STATE_EXPIRED,
    RunState.LOST: run_pb2.RUN_STATE_LOST,
}
STATE_OF: Final = {value: word for word, value in STATES.items()}


_ORIGIN_BYTES: Final = {origin: field(3, number) for origin, number in ORIGINS.items()}
_REASON_BYTES: Final = {reason: text(6, reason.value) for reason in Reason}
_WAITING: Final = field(10, run_pb2.RUN_STATE_WAITING)


def new_record(new: NewRun, now: Instant, traceparent: str) -> pb.RunRecord:
    """Returns what a fired run's record holds besides its template.

    The leader appends its bytes to those of the version's template (field `template`), serialised
    once: concatenated protobuf messages are one message.
    """
    handle, origin, nominal, due, _, reason, retry_of = new
    # Field by field, once per run: keywords cost twice as much.
    record = pb.RunRecord()
    record.run_id = handle.run_id
    record.origin = ORIGINS[origin]
    record.nominal_ns = nominal
    record.due_ns = due
    record.reason = reason
    record.create_time_ns = now
    record.traceparent = traceparent
    record.state = run_pb2.RUN_STATE_WAITING
    record.not_before_ns = record.handle_not_before_ns = handle.not_before
    record.retry_of = retry_of
    return record


def encode_new(new: NewRun, now: Instant, traceparent: str) -> bytes:
    """Returns the bytes of `new_record`: by hand, for most runs are alike in what they have."""
    (run_id, _, _, not_before), origin, nominal, due, _, reason, retry_of = new
    if retry_of or not (nominal and due and not_before and now and traceparent):
        return new_record(new, now, traceparent).SerializeToString()
    until = varint(not_before)
    # The fields in their order; the lengths of both texts are below 128, and in one byte.
    return b"\x12%c%b%b\x20%b\x28%b%b\x38%b\x42%c%b%b\x58%b\xb0\x01%b" % (
        len(run_id),
        run_id.encode(),
        _ORIGIN_BYTES[origin],
        varint(nominal),
        varint(due),
        _REASON_BYTES[reason],
        varint(now),
        len(traceparent),
        traceparent.encode(),
        _WAITING,
        until,
        until,
    )


def handle_in(record: pb.RunRecord) -> Handle:
    """Returns the handle under which a record lives, or lived."""
    template = record.template
    return Handle(record.run_id, template.queue, template.priority, record.handle_not_before_ns)


def decode_run(record: pb.RunRecord, mod_revision: int, policy: RunPolicy | None = None) -> Run:
    """Returns the run of a record that was read at a revision.

    Making the policy costs more than all the rest; who reads many runs of few templates hands in
    the one of an equal template.

    Whether a live attempt has begun is in the owner's memory only. Read from the record alone, as
    after a takeover, it counts as begun.
    """
    state = STATE_OF[record.state]
    held = state in WITH_WORKER
    return Run(
        run_id=record.run_id,
        policy=policy or template_policy(record.template),
        created_at=record.create_time_ns,
        due=record.due_ns,
        not_before=record.not_before_ns,
        state=state,
        attempts=record.deliveries,
        failures=record.failures,
        token=live_token(record.token, mod_revision) if held else record.token,
        session=record.session,
        started=held,
        ever_started=record.started or held,
        completed=record.completed,
        deadline_passed=record.deadline_passed,
        ended_at=record.end_time_ns or None,
    )


def owner_part(run: Run, not_before: Instant) -> pb.RunRecord:
    """Returns what the state machine says of a run, to be appended to what its leader wrote.

    The token is copied wherever there is one, so that the next write does not lose it; the
    assignment itself writes none, its token being the revision of that very commit.

    Args:
        run: as it is to stand.
        not_before: as the leader's part has it; written where the run's is another.

    """
    assert run.not_before or not not_before, "an appended zero is not written"
    part = pb.RunRecord()
    part.state = STATES[run.state]
    part.deliveries = run.attempts
    if run.not_before != not_before:
        part.not_before_ns = run.not_before
    if run.failures:
        part.failures = run.failures
    if run.token:
        part.token = run.token
    if run.session:
        part.session = run.session
    if run.ever_started:
        part.started = True
    if run.completed:
        part.completed = True
    if run.deadline_passed:
        part.deadline_passed = True
    if run.ended_at:
        part.end_time_ns = run.ended_at
    return part


def run_name(record: pb.RunRecord) -> str:
    """Returns the run's resource name."""
    return _name(record.template, record.run_id)


def _name(template: pb.RunTemplate, run_id: RunId) -> str:
    return f"namespaces/{template.namespace}/jobs/{template.job}/runs/{run_id}"


def run_message(record: pb.RunRecord, mod_revision: int, *, full: bool) -> run_pb2.Run:
    """Returns a run as the API shows it; not `full`: without task, results, details and output."""
    template = record.template
    message = run_pb2.Run(
        name=run_name(record),
        job_uid=template.job_uid,
        origin=record.origin,
        nominal_time=timestamp(record.nominal_ns),
        due_time=timestamp(record.due_ns),
        state=record.state,
        job_version=template.version,
        queue=template.queue,
        priority=template.priority,
        failures=record.failures,
        attempts=[_attempt(attempt, mod_revision, full=full) for attempt in record.attempts],
        create_time=timestamp(record.create_time_ns),
        end_time=timestamp(record.end_time_ns) if record.end_time_ns else None,
        error=_error(record.error, full=full) if record.HasField("error") else None,
        not_before_time=timestamp(record.not_before_ns),
        retry_of=_name(template, record.retry_of) if record.retry_of else "",
        traceparent=record.traceparent,
    )
    if record.HasField("cancel"):
        message.cancel_request.CopyFrom(
            run_pb2.CancelRequest(
                mode=record.cancel.mode,
                reason=record.cancel.reason,
                request_time=timestamp(record.cancel.request_time_ns),
            )
        )
    if full:
        message.result_json = record.result_json
        message.task.CopyFrom(template.task)
    return message


def _attempt(attempt: pb.AttemptRecord, mod_revision: int, *, full: bool) -> run_pb2.Attempt:
    message = run_pb2.Attempt(
        number=attempt.number,
        token=attempt.token or mod_revision,
        session=attempt.session,
        worker=attempt.worker,
        state=attempt.state,
        assign_time=timestamp(attempt.assign_time_ns),
        start_time=timestamp(attempt.start_time_ns) if attempt.start_time_ns else None,
        end_time=timestamp(attempt.end_time_ns) if attempt.end_time_ns else None,
        error=_error(attempt.error, full=full) if attempt.HasField("error") else None,
        output_tail=attempt.output_tail if full else "",
    )
    message.execution_duration.FromMilliseconds(attempt.execution_ms)
    return message


def _error(error: run_pb2.RunError, *, full: bool) -> run_pb2.RunError:
    return run_pb2.RunError(
        kind=error.kind, message=error.message, detail=error.detail if full else ""
    )
