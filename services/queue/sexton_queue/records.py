"""A run's record and the transactions that change it: the only place that writes them.

Each transaction carries the compares of docs/keys.md. The fence is added by the lease that commits
it. Times are mesh time in nanoseconds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_core.instants import MILLISECOND, Instant
from sexton_core.runs import STATES, Run, RunPolicy
from sexton_records import keys
from sexton_records.runs import add_attempt, decode_run, update_record
from sexton_runtime.kv.types import Compare, Delete, Op, Put, Target, Txn

RunRecord = pb.RunRecord
SessionRecord = pb.SessionRecord
QueueRecord = pb.QueueRecord

MAX_RECORD_BYTES: Final = 512 * 1024
"""Half of what a value may hold: outputs and details of older attempts make room for the newest."""

_FEW_ATTEMPTS: Final = 8
"""So many can't make a record too large, whatever they printed."""

MAX_POLICIES: Final = 1_000
"""Policies that are remembered."""


class AttemptEnd(NamedTuple):
    """How an attempt ended, as its record keeps it."""

    state: run_pb2.AttemptState.ValueType
    error: run_pb2.RunError | None = None
    result_json: str = ""
    output_tail: str = ""
    wait_ms: int = 0
    execution_ms: int = 0
    started_at: Instant = 0
    """When it was reported as begun; 0: it was not, `wait_ms` tells it if anything does."""


def requirement_of(record: RunRecord) -> str:
    """Returns what a worker must be able to do for this run: a kind, or a task of Python."""
    task = record.template.task
    kind = task.WhichOneof("kind")
    return f"python:{task.python.task}" if kind == "python" else str(kind)


class RunReader:
    """Reads runs, remembering policies: many jobs share one."""

    def __init__(self) -> None:
        self._policies: dict[tuple[object, ...], RunPolicy] = {}

    def read(self, record: RunRecord, revision: int) -> Run:
        """Returns the run of a record as it stood at a revision."""
        key = _policy_key(record.template)
        policy = self._policies.get(key)
        run = decode_run(record, revision, policy)
        if policy is None:
            if len(self._policies) >= MAX_POLICIES:
                self._policies.clear()
            self._policies[key] = run.policy
        return run


def assign_record(record: RunRecord, run: Run, worker: str, now: Instant) -> RunRecord:
    """Returns the record of a run that is given to a session."""
    changed = RunRecord()
    changed.CopyFrom(record)
    update_record(changed, run)
    add_attempt(
        changed,
        pb.AttemptRecord(
            number=run.attempts,
            session=run.session,
            worker=worker,
            state=run_pb2.ATTEMPT_STATE_ASSIGNED,
            assign_time_ns=now,
        ),
    )
    return changed


def end_attempt_record(
    record: RunRecord, run: Run, token: int, end: AttemptEnd, now: Instant
) -> RunRecord:
    """Returns the record after the attempt with this token has ended: in line again, or for ever.

    A run in line has no token; an ended one keeps that of its last attempt.
    """
    changed = RunRecord()
    changed.CopyFrom(record)
    update_record(changed, run)
    if changed.attempts:
        attempt = changed.attempts[-1]
        attempt.token = token
        attempt.state = end.state
        attempt.end_time_ns = now
        attempt.execution_ms = end.execution_ms
        attempt.output_tail = end.output_tail
        attempt.start_time_ns = end.started_at
        if end.execution_ms or end.wait_ms:
            attempt.start_time_ns = attempt.assign_time_ns + end.wait_ms * MILLISECOND
        if end.error is not None:
            attempt.error.CopyFrom(end.error)
    if run.ended:
        changed.result_json = end.result_json
        if end.error is not None:
            changed.error.CopyFrom(end.error)
    _fit(changed)
    return changed


def end_waiting_record(record: RunRecord, run: Run, error: run_pb2.RunError) -> RunRecord:
    """Returns the record of a run that ended in line."""
    changed = RunRecord()
    changed.CopyFrom(record)
    update_record(changed, run)
    changed.error.CopyFrom(error)
    return changed


def move_record(record: RunRecord, run: Run) -> RunRecord:
    """Returns the record of a run that stays with its session, the token copied into it."""
    assert run.token > 0, "the revision that was the token is about to be gone"
    changed = RunRecord()
    changed.CopyFrom(record)
    update_record(changed, run)
    if changed.attempts:
        changed.attempts[-1].token = run.token
    return changed


def request_end(record: RunRecord, reason: str, now: Instant, *, terminate: bool) -> None:
    """Writes into a changed record who asked for its end, and how."""
    mode = run_pb2.CANCEL_MODE_TERMINATE if terminate else run_pb2.CANCEL_MODE_CANCEL
    cancel = pb.CancelRecord(mode=mode, reason=reason, request_time_ns=now)
    record.cancel.CopyFrom(cancel)


def assign_txn(
    key: bytes, revision: int, record: RunRecord, *, coordinator_shards: int, not_before: Instant
) -> Txn:
    """Makes a run RUNNING: only while its job exists, and not before its time."""
    uid = record.template.job_uid
    state = keys.state_key(keys.shard_of(uid, coordinator_shards), uid)
    return Txn(
        compares=(_unchanged(key, revision), Compare(state, Target.EXISTS, operand=True)),
        then=(Put(key, record.SerializeToString()),),
        not_before_ns=not_before,
    )


def move_txn(key: bytes, revision: int, record: RunRecord) -> Txn:
    """Changes a run that stays with its session."""
    return Txn(
        compares=(_unchanged(key, revision),),
        then=(Put(key, record.SerializeToString()),),
        use_reserve=True,
    )


def line_up_txn(key: bytes, revision: int, record: RunRecord) -> Txn:
    """Puts a run back into the line; its place, the key, is what it was."""
    return Txn(
        compares=(_unchanged(key, revision),),
        then=(Put(key, record.SerializeToString()),),
        use_reserve=True,
    )


def end_txn(key: bytes, revision: int, record: RunRecord, run: Run, *, shards: int) -> Txn:
    """Ends a run: out of the line, into the job's history and the lists by time."""
    assert run.ended_at is not None, "an ended run has an end"
    template = record.template
    uid = template.job_uid
    summary = pb.EndedRecord(
        namespace=template.namespace,
        job=template.job,
        state=record.state,
        nominal_ns=record.nominal_ns,
    ).SerializeToString()
    shard = keys.shard_of(uid, shards)
    writes: list[Op] = [
        Delete(key),
        Put(ended_run_key(record), record.SerializeToString()),
        Put(keys.ended_key(shard, run.ended_at, uid, record.run_id), summary),
    ]
    if STATES[run.state].dead_letter:
        queue_shard = keys.parse_handle_key(key).shard
        dead = keys.dead_key(queue_shard, run.ended_at, uid, record.run_id)
        writes.append(Put(dead, summary))
    return Txn(compares=(_unchanged(key, revision),), then=tuple(writes), use_reserve=True)


def pause_txn(shard: int, queue: str, reason: str, now: Instant) -> Txn:
    """Records that a queue's assignments are stopped."""
    record = pb.QueueRecord(pause_reason=reason, pause_time_ns=now)
    return Txn(then=(Put(keys.queue_key(shard, queue), record.SerializeToString()),))


def unpause_txn(shard: int, queue: str) -> Txn:
    """Records that they go on."""
    return Txn(then=(Delete(keys.queue_key(shard, queue)),), use_reserve=True)


def ended_run_key(record: RunRecord) -> bytes:
    """Returns where a run's record is once it has ended."""
    template = record.template
    return keys.run_key(template.namespace, template.job, template.job_uid, record.run_id)


def job_of(state: bytes) -> tuple[str, str]:
    """Returns namespace and name of the job whose `state/` this is."""
    record = pb.StateRecord.FromString(state)
    return record.namespace, record.job


def _policy_key(template: pb.RunTemplate) -> tuple[object, ...]:
    """Returns all of a template that its policy is made of."""
    return (
        template.queue,
        template.priority,
        template.timeout_ns,
        template.deadline_ns,
        template.start_within_ns,
        template.at_most_once,
        template.exclusive,
        template.max_attempts,
        template.max_deliveries,
        template.initial_backoff_ns,
        template.multiplier,
        template.max_backoff_ns,
        template.backoff_jitter,
    )


def only_waits(record: RunRecord) -> bool:
    """Tells whether a run only waits: no session holds it and no timer of its own runs."""
    template = record.template
    return record.state in _WAITING and not (template.deadline_ns or template.start_within_ns)


def _unchanged(key: bytes, revision: int) -> Compare:
    return Compare(key, Target.MOD_REVISION, revision)


def _fit(record: RunRecord) -> None:
    if len(record.attempts) <= _FEW_ATTEMPTS:
        return
    for attempt in record.attempts:
        if record.ByteSize() <= MAX_RECORD_BYTES:
            return
        attempt.output_tail = ""
        attempt.error.detail = ""


_WAITING: Final = frozenset({run_pb2.RUN_STATE_WAITING, run_pb2.RUN_STATE_RETRYING})
