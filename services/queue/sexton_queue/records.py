"""A run's record and the transactions that change it: the only place that writes them.

What is written is what the run's leader wrote and, behind it, what its owner has to say (`pieces`).

Each transaction carries the compares of docs/keys.md. The fence is added by the lease that commits
it. Times are mesh time in nanoseconds.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_core.instants import MILLISECOND, Instant
from sexton_core.runs import STATES as RULES
from sexton_core.runs import Run, RunPolicy
from sexton_core.words import RunState
from sexton_queue.pieces import Live, Origin, Record, live_of
from sexton_records import keys
from sexton_records.runs import MAX_ATTEMPTS_SHOWN, STATES, owner_part
from sexton_runtime.kv.types import Compare, Delete, Op, Put, Target, Txn

RunRecord = pb.RunRecord
SessionRecord = pb.SessionRecord
QueueRecord = pb.QueueRecord

MAX_RECORD_BYTES: Final = 512 * 1024
"""Half of what a value may hold: outputs and details of older attempts make room for the newest."""

_FEW_ATTEMPTS: Final = 8
"""So many can't make a record too large, whatever they printed."""


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


def assign_record(record: Record, run: Run, worker: str, now: Instant) -> tuple[bytes, Record]:
    """Writes the record of a run that is given to a session; gives it in pieces, too."""
    origin, past, not_before = record.origin, record.past, run.not_before
    if run.attempts == 1 and not_before == origin.not_before_ns and record.cancel is None:
        written, live = _first_attempt(run.session, worker, now)
        return origin.value + written, _make(Record, (origin, not_before, past, live, None))
    part = owner_part(run, origin.not_before_ns)
    live = live_of(_assigned(part, run, worker, now))
    if len(past) >= MAX_ATTEMPTS_SHOWN:
        past = past[:1] + past[2:]
    return _join(record, past, part), Record(origin, not_before, past, live, record.cancel)


def end_attempt_record(
    record: Record, run: Run, token: int, end: AttemptEnd, now: Instant
) -> tuple[bytes, Record]:
    """Writes the record after the attempt with this token has ended: in line again, or for ever.

    A run in line has no token; an ended one keeps that of its last attempt.
    """
    past, live = record.past, record.live
    if live is not None and _is_plain(record, run, end):
        started_at = _start_time(record, live, end)
        last = _varint(token)
        written = _success(
            live.piece, run.session, run.ever_started, started_at, end.execution_ms, now, len(last)
        )
        value = b"".join((record.origin.value, written, last, _TOKEN, last))
        if end.result_json:
            value += RunRecord(result_json=end.result_json).SerializeToString()
        return value, record
    part = owner_part(run, record.origin.not_before_ns)
    if run.ended:
        if end.result_json:
            part.result_json = end.result_json
        if end.error is not None:
            part.error.CopyFrom(end.error)
        if len(past) < _FEW_ATTEMPTS:
            if live is not None:
                _end_attempt(part, record, live, token, end=end, now=now)
            return _join(record, past, part), record
    if live is not None:
        piece = RunRecord()
        _end_attempt(piece, record, live, token, end=end, now=now)
        past += (piece.SerializeToString(),)
    if len(past) > _FEW_ATTEMPTS:
        past = _fit(past, len(record.origin.value) + part.ByteSize())
    value = _join(record, past, part)
    return value, Record(record.origin, run.not_before, past, None, record.cancel)


def end_waiting_record(record: Record, run: Run, error: run_pb2.RunError) -> tuple[bytes, Record]:
    """Writes the record of a run that ended in line."""
    part = owner_part(run, record.origin.not_before_ns)
    part.error.CopyFrom(error)
    return _join(record, record.past, part), record


def move_record(
    record: Record, run: Run, cancel: pb.CancelRecord | None = None
) -> tuple[bytes, Record]:
    """Writes the record of a run that stays with its session, the token copied into it.

    `cancel` is who asks for its end, and how; None: as it is recorded.
    """
    assert run.token > 0, "the revision that was the token is about to be gone"
    part = owner_part(run, record.origin.not_before_ns)
    live = record.live
    if live is not None:
        moved = part.attempts.add()
        moved.MergeFromString(live.piece)
        moved.token = run.token
        live = live_of(moved)
    if cancel is not None:
        record = record._replace(cancel=cancel)
    value = _join(record, record.past, part)
    return value, record._replace(not_before_ns=run.not_before, live=live)


def cancel_record(reason: str, now: Instant, *, terminate: bool) -> pb.CancelRecord:
    """Returns that somebody has asked for a run's end, and how."""
    mode = run_pb2.CANCEL_MODE_TERMINATE if terminate else run_pb2.CANCEL_MODE_CANCEL
    return pb.CancelRecord(mode=mode, reason=reason, request_time_ns=now)


def assign_txn(
    key: bytes, revision: int, value: bytes, state_key: bytes, not_before: Instant
) -> Txn:
    """Makes a run RUNNING: only while its job exists, and not before its time."""
    unchanged = _make(Compare, (key, _MOD_REVISION, revision))
    compares = (unchanged, _make(Compare, (state_key, _EXISTS, True)))
    return _make(Txn, (compares, (_make(Put, (key, value)),), (), not_before, 0, False))


def move_txn(key: bytes, revision: int, value: bytes) -> Txn:
    """Changes a run in flight: its place in line, the key, is what it was."""
    return Txn((_unchanged(key, revision),), (Put(key, value),), use_reserve=True)


def end_txn(key: bytes, revision: int, value: bytes, origin: Origin, run: Run) -> Txn:
    """Ends a run: out of the line, into the job's history and the lists by time."""
    assert run.ended_at is not None, "an ended run has an end"
    template = origin.template
    summary = template.summary + _ended_part(run.state, origin.nominal_ns)
    run_id = origin.run_id.encode()
    ended = keys.ended_at(template.shard, run.ended_at) + template.name + run_id
    writes: tuple[Op, ...] = (
        _make(Delete, (key,)),
        _make(Put, (template.run_keys + run_id, value)),
        _make(Put, (ended, summary)),
    )
    if RULES[run.state].dead_letter:
        queue_shard = keys.parse_handle_key(key).shard
        dead = keys.dead_key(queue_shard, run.ended_at, template.uid, origin.run_id)
        writes += (Put(dead, summary),)
    return _make(Txn, ((_unchanged(key, revision),), writes, (), 0, 0, True))


def pause_txn(shard: int, queue: str, reason: str, now: Instant) -> Txn:
    """Records that a queue's assignments are stopped."""
    record = pb.QueueRecord(pause_reason=reason, pause_time_ns=now)
    return Txn(then=(Put(keys.queue_key(shard, queue), record.SerializeToString()),))


def unpause_txn(shard: int, queue: str) -> Txn:
    """Records that they go on."""
    return Txn(then=(Delete(keys.queue_key(shard, queue)),), use_reserve=True)


def job_of(state: bytes) -> tuple[str, str]:
    """Returns namespace and name of the job whose `state/` this is."""
    record = pb.StateRecord.FromString(state)
    return record.namespace, record.job


@lru_cache(maxsize=256)
def _ended_part(state: RunState, nominal: Instant) -> bytes:
    """Writes what the lists of ended runs say of a run itself: of many the same."""
    return pb.EndedRecord(state=STATES[state], nominal_ns=nominal).SerializeToString()


def _is_plain(record: Record, run: Run, end: AttemptEnd) -> bool:
    """Tells whether a run has succeeded at once, as most do."""
    return (
        run.state is _SUCCEEDED
        and run.attempts == 1
        and not (record.past or record.cancel or run.deadline_passed)
        and not (end.output_tail or end.error)
        and run.not_before == record.origin.not_before_ns
    )


@lru_cache(maxsize=1_024)
def _success(  # noqa: PLR0917 - of a cache, which keywords make twice as slow
    live: bytes,
    session: str,
    ever_started: bool,  # noqa: FBT001 - as above
    started_at: Instant,
    execution_ms: int,
    now: Instant,
    token_bytes: int,
) -> bytes:
    """Writes what an owner has to say of a run that succeeds at once, up to its attempt's token.

    That is the same for all that are handed out, and settled, together: only tokens differ.
    """
    run = Run("", RunPolicy(), 0, 0, 0, _SUCCEEDED, attempts=1, session=session)
    run = run._replace(ever_started=ever_started, completed=True, ended_at=now)
    attempt = pb.AttemptRecord.FromString(live)
    attempt.state = run_pb2.ATTEMPT_STATE_SUCCEEDED
    attempt.execution_ms = execution_ms
    attempt.start_time_ns = started_at
    attempt.end_time_ns = now
    attempt.ClearField("token")
    piece = attempt.SerializeToString() + _ATTEMPT_TOKEN
    size = _varint(len(piece) + token_bytes)
    return b"".join((owner_part(run, 0).SerializeToString(), _ATTEMPT, size, piece))


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


@lru_cache(maxsize=256)
def _first_attempt(session: str, worker: str, now: Instant) -> tuple[bytes, Live]:
    """Writes what an owner has to say of a run's first attempt.

    That is the same for all that go to one session at one instant, usually many.
    """
    run = Run("", RunPolicy(), 0, 0, 0, RunState.RUNNING, attempts=1, session=session)
    part = owner_part(run, 0)
    live = live_of(_assigned(part, run, worker, now))
    return part.SerializeToString(), live


def _assigned(part: RunRecord, run: Run, worker: str, now: Instant) -> pb.AttemptRecord:
    """Writes an attempt that begins behind those that a part of a record has."""
    live = part.attempts.add()
    live.number = run.attempts
    live.session = run.session
    live.worker = worker
    live.state = run_pb2.ATTEMPT_STATE_ASSIGNED
    live.assign_time_ns = now
    return live


def _start_time(record: Record, live: Live, end: AttemptEnd) -> Instant:
    """Returns when an attempt that has ended had begun; 0: that is not known."""
    if end.execution_ms or end.wait_ms:
        possible = max(live.assign_time_ns, record.not_before_ns)
        return possible + end.wait_ms * MILLISECOND
    return end.started_at


def _end_attempt(
    part: RunRecord, record: Record, live: Live, token: int, *, end: AttemptEnd, now: Instant
) -> None:
    """Writes the live attempt, which has ended, behind those that a part of a record has."""
    attempt = part.attempts.add()
    attempt.MergeFromString(live.piece)
    attempt.token = token
    attempt.state = end.state
    attempt.end_time_ns = now
    attempt.execution_ms = end.execution_ms
    attempt.start_time_ns = _start_time(record, live, end)
    if end.output_tail:
        attempt.output_tail = end.output_tail
    if end.error is not None:
        attempt.error.CopyFrom(end.error)


def _join(record: Record, past: tuple[bytes, ...], part: RunRecord) -> bytes:
    if record.cancel is not None:
        part.cancel.CopyFrom(record.cancel)
    return b"".join((record.origin.value, *past, part.SerializeToString()))


def _fit(past: tuple[bytes, ...], beside: int) -> tuple[bytes, ...]:
    """Takes outputs and details from the oldest attempts until a record is small enough."""
    fitting = [*past]
    size_bytes = beside + sum(map(len, past))
    for index, piece in enumerate(past):
        if size_bytes <= MAX_RECORD_BYTES:
            break
        smaller = RunRecord.FromString(piece)
        smaller.attempts[0].output_tail = ""
        smaller.attempts[0].error.detail = ""
        fitting[index] = smaller.SerializeToString()
        size_bytes -= len(piece) - len(fitting[index])
    return tuple(fitting)


def _unchanged(key: bytes, revision: int) -> Compare:
    return _make(Compare, (key, _MOD_REVISION, revision))


_make = tuple.__new__
"""Makes a named tuple of all its parts; its own constructor costs twice as much."""
_SUCCEEDED: Final = RunState.SUCCEEDED
_TOKEN: Final = bytes((0x80, 0x01))
"""What a run's token begins with, serialised: field 16, a number."""
_ATTEMPT: Final = bytes((0x92, 0x01))
"""What an attempt begins with in a run's record: field 18, of a length that follows."""
_ATTEMPT_TOKEN: Final = bytes((0x10,))
"""What an attempt's token begins with: field 2, a number."""
_MOD_REVISION: Final = Target.MOD_REVISION
_EXISTS: Final = Target.EXISTS
