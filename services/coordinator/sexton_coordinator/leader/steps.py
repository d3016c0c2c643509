"""One look at a job as one transaction: decide, and what the decision writes and compares. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from google.protobuf.message import Message

from sexton.internal.v1 import queue_pb2, records_pb2
from sexton.v1 import backfill_pb2, run_pb2, scheduler_pb2
from sexton_coordinator.jobs_store import LoadedJob
from sexton_coordinator.leader.filling import Filling
from sexton_coordinator.leader.machine import (
    Asked,
    Created,
    Filled,
    Known,
    StartFill,
    StopFill,
    Trigger,
)
from sexton_coordinator.requests import encode_request
from sexton_coordinator.writes import JobName, buffered_ops, decision_ops, state_ops
from sexton_core.ids import RunId, manual_run_id, requeued_run_id, retry_run_id
from sexton_core.instants import Duration, Instant
from sexton_core.policy import (
    AHEAD_NS,
    Admission,
    Handle,
    NewRun,
    Repeated,
    Verdict,
    Waiting,
    decide,
    decide_ahead,
    due_next,
    trigger,
)
from sexton_core.policy.state import make
from sexton_core.words import Ask, Decision, Overlap
from sexton_records import keys
from sexton_records.backfills import backfill_message, ended_record, new_backfill_record
from sexton_records.runs import encode_new, run_message
from sexton_records.state import OVERLAP_OF
from sexton_runtime.kv.types import (
    Compare,
    Delete,
    Limits,
    Op,
    Put,
    Target,
    Txn,
    absent,
    unchanged,
)

ROOM_OPS: Final = 1
"""What the lease adds to a transaction: its fence."""
_STARTS: Final = (24, 8, 2, 1)
"""Starts of one transaction, tried in this order until it fits: runs may be large."""

TRIGGER: Final = "TriggerJob"
RETRY: Final = "RetryRun"
"""The methods under which requests for a start are recorded."""

MODES: Final = {
    Ask.CANCEL: run_pb2.CANCEL_MODE_CANCEL,
    Ask.TERMINATE: run_pb2.CANCEL_MODE_TERMINATE,
}


class OversizedError(Exception):
    """What is to be decided about a job does not fit a transaction."""


class Step(NamedTuple):
    """What one look at a job does.

    txn: to be committed under the lease; None: nothing is to be written.
    requires: the runs that compares name, by the index of the compare.
    timer: when the timer then stands.
    ends: what is asked of live runs, by the shard of their queue.
    asked, answer: what somebody asked for, and what becomes of it.
    filled: what becomes of a backfill.
    again: whether there is more to do at once.
    size_bytes: of the values that it writes; its keys are short.
    """

    loaded: LoadedJob
    verdict: Verdict
    txn: Txn | None
    requires: dict[int, RunId]
    timer: Instant | None
    writes_state: bool
    created: tuple[Created, ...]
    ends: tuple[tuple[int, queue_pb2.EndRequest], ...]
    asked: Asked | None = None
    answer: Message | None = None
    filled: Filled | None = None
    again: bool = False
    size_bytes: int = 0

    def after(self, revision: int) -> LoadedJob:
        """Returns the job as it is once the step is committed at a revision."""
        if not self.writes_state:
            return self.loaded
        name, job, _, _, _, record, job_revision, versions, _ = self.loaded
        state = self.verdict.state
        return make(
            LoadedJob,
            (name, job, state, revision, self.timer, record, job_revision, versions, b""),
        )

    @property
    def state_value(self) -> bytes:
        """Returns the record of the state that the step writes; empty: it writes none."""
        if self.txn is None or not self.writes_state:
            return b""
        key = self.loaded.name.state_key
        return next(op.value for op in self.txn.then if isinstance(op, Put) and op.key == key)


class Planner:
    """Makes steps. `traceparent` makes the trace context of a new run."""

    def __init__(
        self,
        *,
        coordinator_shards: int,
        queue_shards: int,
        limits: Limits,
        traceparent: Callable[[RunId], str],
    ) -> None:
        self._coordinator_shards = coordinator_shards
        self._queue_shards = queue_shards
        self._limits = limits
        self._traceparent = traceparent

    def plan(
        self,
        loaded: LoadedJob,
        now: Instant,
        ended: set[RunId],
        asked: Asked | None = None,
        *,
        force: bool = False,
    ) -> Step:
        """Decides about a job and makes the transaction.

        Args:
            loaded: as read or committed last.
            now: mesh time, as estimated.
            ended: of its live runs, those that are known to have ended.
            asked: what somebody asks for; None: what is due is decided.
            force: writes the timer although it should stand.

        Raises:
            OversizedError: it does not fit a transaction, however little of it is decided.

        """
        if isinstance(asked, StartFill | StopFill):
            return self._backfill_step(loaded, asked, now)
        for starts in _STARTS:
            if asked is None:
                verdict = decide(loaded.job, loaded.state, now, ended, limit=starts)
                if verdict.is_one_start and not force:
                    step = self._start_step(loaded, verdict, now)
                else:
                    step = self._step(loaded, verdict, now, force=force)
            else:
                assert isinstance(asked, Trigger), "nothing else is asked for"
                verdict, admission = _start(loaded, now, asked, ended, starts)
                step = self._step(loaded, verdict, now, asked=asked, admission=admission)
            if self._fits(step):
                return step
        raise OversizedError

    def plan_ahead(self, loaded: LoadedJob, now: Instant, ended: set[RunId]) -> Step | None:
        """Decides about a job shortly before it is due; None: that can't be done.

        Raises:
            OversizedError: it does not fit a transaction.

        """
        if loaded.timer is None:
            return None
        verdict = decide_ahead(loaded.job, loaded.state, loaded.timer, now, ended)
        if verdict is None:
            return None
        step = self._start_step(loaded, verdict, now, AHEAD_NS)
        if not self._fits(step):
            raise OversizedError
        return step

    def plan_fill(self, known: Known, filling: Filling, now: Instant) -> Step | None:
        """Decides about a job's backfills and makes the transaction; None: none goes on now.

        Raises:
            OversizedError: it does not fit a transaction.

        """
        loaded = known.loaded
        assert loaded is not None, "it is decided about"
        for starts in _STARTS:
            fits = True
            for found, filled in filling.steps(known, now, starts):
                verdict = _unchanged(loaded) if found is None else found.verdict
                if filled is None and not verdict.changed and not verdict.asks:
                    continue
                more = found is None or found.waiting in {Waiting.NOTHING, Waiting.DONE}
                step = self._step(loaded, verdict, now, filled=filled, again=more)
                fits = self._fits(step)
                if fits:
                    return step
                break
            if fits:
                return None
        raise OversizedError

    def handle_key(self, uid: str, handle: Handle) -> bytes:
        """Returns the key of a run in flight."""
        return keys.handle_key(self._queue_shard(handle.queue), uid, handle)

    def proof_key(self, asked: Asked) -> bytes:
        """Returns the key that says whether something has had its effect.

        Of a backfill its own; of a start, its dead letter's or its request's. The request's shard
        is its own, not the job's: a job that is deleted and created again may be in another shard,
        and the request is still the same.
        """
        if isinstance(asked, StartFill | StopFill):
            shard = keys.shard_of(asked.ref.uid, self._coordinator_shards)
            return keys.backfill_key(shard, asked.ref.uid, asked.backfill_id)
        assert isinstance(asked, Trigger), "nothing else is asked for"
        request = asked.request
        if request.dead_letter:
            return request.dead_letter
        shard = keys.shard_of(request.request_id, self._coordinator_shards)
        method = RETRY if request.retry_of else TRIGGER
        return keys.request_key(shard, request.namespace, method, request.request_id)

    def end_request(
        self, uid: str, handle: Handle, ask: Ask, reason: str
    ) -> tuple[int, queue_pb2.EndRequest]:
        """Returns what asks for a run's end, and the queue shard whose owner is to be asked."""
        shard = self._queue_shard(handle.queue)
        key = keys.handle_key(shard, uid, handle)
        return shard, queue_pb2.EndRequest(handle=key, mode=MODES[ask], reason=reason)

    def _queue_shard(self, queue: str) -> int:
        return keys.shard_of(queue, self._queue_shards)

    def _fits(self, step: Step) -> bool:
        if step.txn is None:
            return True
        ops = len(step.txn.compares) + len(step.txn.then) + ROOM_OPS
        limits = self._limits
        most_bytes = limits.max_txn_bytes - ops * limits.max_key_bytes
        return ops <= limits.max_ops_per_txn and step.size_bytes <= most_bytes

    def _start_step(
        self, loaded: LoadedJob, verdict: Verdict, now: Instant, ahead_ns: Duration = 0
    ) -> Step:
        """Makes the step of a verdict that is one start: what `_step` makes, at half its cost.

        `ahead_ns`: how long before its time it may be committed.
        """
        name, _, _, revision, before, _, _, versions, _ = loaded
        (run,) = verdict.runs
        handle = run.handle
        shard = self._queue_shard(handle.queue)
        key = keys.handle_key(shard, name.uid, handle)
        record = versions[run.version].run_prefix(name)
        record += encode_new(run, now, self._traceparent(handle.run_id))
        timer = verdict.next_due
        put_state, *others = state_ops(name, verdict.state, timer, before)
        compares = (
            make(Compare, (name.state_key, Target.MOD_REVISION, revision)),
            make(Compare, (key, Target.MOD_REVISION, 0)),
        )
        then = (make(Put, (key, record)), put_state, *others)
        txn = make(Txn, (compares, then, (), _not_before(loaded, verdict) - ahead_ns, 0, False))
        created = (make(Created, (shard, key, record)),)
        size = _written_bytes(then)
        requires: dict[int, RunId] = {}
        about = loaded, verdict, txn, requires, timer, True, created, ()
        return make(Step, (*about, None, None, None, False, size))

    def _step(
        self,
        loaded: LoadedJob,
        verdict: Verdict,
        now: Instant,
        *,
        asked: Trigger | None = None,
        admission: Admission | None = None,
        filled: Filled | None = None,
        again: bool = False,
        force: bool = False,
    ) -> Step:
        name, uid, before = loaded.name, loaded.name.uid, loaded.timer
        compares = [make(Compare, (name.state_key, Target.MOD_REVISION, loaded.state_revision))]
        requires: dict[int, RunId] = {}
        for handle in verdict.requires:
            requires[len(compares)] = handle.run_id
            compares.append(Compare(self.handle_key(uid, handle), Target.EXISTS, operand=True))
        then: list[Op] = []
        created: list[Created] = []
        for run in verdict.runs:
            handle = run.handle
            shard = self._queue_shard(handle.queue)
            key = keys.handle_key(shard, uid, handle)
            record = self._record(loaded, run, now)
            compares.append(make(Compare, (key, Target.MOD_REVISION, 0)))
            then.append(make(Put, (key, record)))
            created.append(make(Created, (shard, key, record)))
        timer = verdict.next_due
        writes_state = verdict.changed or force or timer != before
        if writes_state:
            then += state_ops(name, verdict.state, timer, before)
            if verdict.ranges:
                then += decision_ops(uid, verdict.ranges)
            if verdict.buffered or verdict.unbuffered:
                then += buffered_ops(name, verdict.buffered, verdict.unbuffered)
        answer = None
        if asked is not None and admission is not None:
            answer = _answer(name, admission, created)
            self._write_proof(asked, answer, now, compares, then)
        if filled is not None:
            compares.append(filled.compare(name.shard))
            then.append(filled.put(name.shard))
        return Step(
            loaded,
            verdict,
            _txn(loaded, verdict, compares, then),
            requires,
            timer,
            writes_state,
            tuple(created),
            self._end_requests(uid, verdict) if verdict.asks else (),
            asked,
            answer,
            filled,
            again,
            _written_bytes(then),
        )

    def _end_requests(
        self, uid: str, verdict: Verdict
    ) -> tuple[tuple[int, queue_pb2.EndRequest], ...]:
        return tuple(
            [
                self.end_request(uid, handle, ask, f"overlap: {ask} for a newer start")
                for handle, ask in verdict.asks
            ]
        )

    def _backfill_step(self, loaded: LoadedJob, asked: StartFill | StopFill, now: Instant) -> Step:
        """Returns what begins or ends a backfill; it decides nothing about the job."""
        name, uid = loaded.name, loaded.name.uid
        if isinstance(asked, StartFill):
            assert asked.backfill is not None, "it was found to be possible"
            record = new_backfill_record(name.namespace, name.job, asked.backfill, asked.body, now)
            filled = Filled(uid, asked.backfill_id, record, 0)
        else:
            assert asked.standing is not None, "it was read"
            before = records_pb2.BackfillRecord.FromString(asked.standing.value)
            record = ended_record(before, backfill_pb2.BACKFILL_STATE_CANCELLED, now)
            filled = Filled(uid, asked.backfill_id, record, asked.standing.mod_revision)
        step = self._step(loaded, _unchanged(loaded), now, filled=filled, again=True)
        txn = step.txn
        if txn is not None and isinstance(asked, StopFill):
            txn = txn._replace(use_reserve=True)  # to stop something is possible in a full store
        answer = backfill_message(uid, asked.backfill_id, record)
        return step._replace(txn=txn, asked=asked, answer=answer)

    def _write_proof(
        self,
        asked: Trigger,
        answer: scheduler_pb2.TriggerJobResponse,
        now: Instant,
        compares: list[Compare],
        then: list[Op],
    ) -> None:
        """Adds what makes a start the only one of its request, or of its dead letter."""
        if asked.dead is None:
            key = self.proof_key(asked)
            compares.append(absent(key))
            then.append(Put(key, encode_request(asked.body, answer, now)))
        elif answer.run_name:  # else it stays on the list
            compares.append(unchanged(asked.dead))
            then.append(Delete(asked.dead.key))

    def _record(self, loaded: LoadedJob, run: NewRun, now: Instant) -> bytes:
        prefix = loaded.versions[run.version].run_prefix(loaded.name)
        return prefix + encode_new(run, now, self._traceparent(run.run_id))


def _written_bytes(ops: Iterable[Op]) -> int:
    size = 0
    for op in ops:
        if isinstance(op, Put):
            size += len(op.value)
    return size


def _txn(
    loaded: LoadedJob, verdict: Verdict, compares: list[Compare], then: list[Op]
) -> Txn | None:
    if not then:
        return None
    not_before = _not_before(loaded, verdict)
    return make(Txn, (tuple(compares), tuple(then), (), not_before, 0, False))


def _not_before(loaded: LoadedJob, verdict: Verdict) -> Instant:
    """Returns when a transaction may be committed: never before what it decides about is due."""
    timer = loaded.timer
    not_before = verdict.not_before or 0
    if timer is not None and timer > not_before and verdict.state.cursor != loaded.state.cursor:
        return timer
    return not_before


def _unchanged(loaded: LoadedJob) -> Verdict:
    """Returns a verdict that leaves a job as it is."""
    next_due = due_next(loaded.job, loaded.state)
    return Verdict(loaded.state, (), (), (), (), (), (), None, next_due, False)


def requeued_id(uid: str, asked: Trigger) -> RunId:
    """Returns the id of the run that takes a dead letter off the list."""
    ended_at, _, run_id = keys.parse_ended_key(asked.request.dead_letter)
    return requeued_run_id(uid, ended_at, run_id)


def run_named(name: JobName, run_id: RunId) -> str:
    """Returns the resource name of a run."""
    return f"namespaces/{name.namespace}/jobs/{name.job}/runs/{run_id}"


def _start(
    loaded: LoadedJob, now: Instant, asked: Trigger, ended: set[RunId], limit: int
) -> tuple[Verdict, Admission]:
    """Decides about a start that somebody asks for."""
    request, uid = asked.request, loaded.name.uid
    overlap = OVERLAP_OF.get(request.overlap)
    repeats = Repeated(request.nominal_ns, request.retry_of) if request.retry_of else None
    if request.dead_letter:
        run_id = requeued_id(uid, asked)
        # A dead letter must not be dropped for another: what can't start now waits.
        together = loaded.job.current.overlap is Overlap.ALLOW_ALL
        overlap = Overlap.ALLOW_ALL if together else Overlap.BUFFER_ALL
    elif request.retry_of:
        run_id = retry_run_id(uid, now, request.request_id)
    else:
        run_id = manual_run_id(uid, now, request.request_id)
    return trigger(
        loaded.job,
        loaded.state,
        now,
        run_id,
        overlap=overlap,
        repeats=repeats,
        ended=ended,
        limit=limit,
    )


def _answer(
    name: JobName, admission: Admission, created: list[Created]
) -> scheduler_pb2.TriggerJobResponse:
    answer = scheduler_pb2.TriggerJobResponse()
    if admission.decision in {Decision.FIRED, Decision.BUFFERED}:
        answer.run_name = run_named(name, admission.run_id)
    if admission.decision is not Decision.FIRED:
        answer.decision = admission.decision.value
        answer.reason = admission.reason.value
        return answer
    for run in created:
        record = records_pb2.RunRecord.FromString(run.record)
        if record.run_id == admission.run_id:
            answer.run.CopyFrom(run_message(record, 0, full=True))
            return answer
    raise AssertionError("a start that was let through has a run")
