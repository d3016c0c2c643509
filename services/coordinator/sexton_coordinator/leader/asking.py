"""What is asked of jobs: whether it has had its effect already, and what becomes of the answers.

What is asked for makes itself once only: a start by the record of its request or by the dead letter
that it takes off the list, each compared in the start's own commit. That record is read only once
a commit was not made, or where a start would be refused: most requests come once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from google.protobuf.message import Message

from sexton.errors import IllegalState, InvalidArgument, NotFound, SextonError, StaleRevision
from sexton.internal.v1 import records_pb2
from sexton.v1 import backfill_pb2, scheduler_pb2
from sexton_coordinator.jobs_store import LoadedJob, get_all
from sexton_coordinator.leader.counters import Counters
from sexton_coordinator.leader.filling import MAX_AT_ONCE, Filling
from sexton_coordinator.leader.machine import Asked, Known, StartFill, StopFill, Trigger
from sexton_coordinator.leader.steps import Planner, requeued_id, run_named
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.requests import recorded_answer, refused_backfill
from sexton_core.errors import PolicyError
from sexton_core.policy import request_backfill
from sexton_records import keys
from sexton_records.backfills import ASKED_ORDERS, ASKED_OVERLAPS, backfill_message
from sexton_records.runs import run_message
from sexton_records.state import OVERLAP_OF
from sexton_records.times import instant_of
from sexton_runtime.kv.types import KeyValue

Answers: TypeAlias = "dict[Known, tuple[Asked, Message | SextonError]]"
"""What is asked for next and needs no decision any more, with its answer."""


class Asking:
    """Reads and answers, for one tenure."""

    def __init__(
        self, *, mesh: Mesh, planner: Planner, filling: Filling, counters: Counters
    ) -> None:
        self._mesh = mesh
        self._filling = filling
        self._planner = planner
        self._counters = counters

    def prepare(self, batch: Sequence[Known]) -> None:
        """Has jobs read anew where a start would be refused for what is known about them."""
        for known in batch:
            if known.loaded is not None:
                for asked in known.asked:
                    if not asked.proof_first and _refusal(known.loaded, asked) is not None:
                        asked.proof_first = True
                        known.loaded = None
                        break

    async def read(self, batch: Sequence[Known]) -> Answers:
        """Reads whether what is asked for next has had its effect, or can't have it."""
        asked = [
            (known, asked)
            for known in batch
            if known.loaded is not None
            and (asked := next_asked(known)) is not None
            and (asked.proof_first or _refusal(known.loaded, asked) is not None)
        ]
        kvs = await get_all(self._mesh.store, [self._planner.proof_key(one) for _, one in asked])
        answers: Answers = {}
        for (known, one), kv in zip(asked, kvs, strict=True):
            if known.loaded is None:
                continue
            try:
                answer = await self._found(known.loaded, one, kv)
            except SextonError as error:
                answers[known] = (one, error)
            else:
                if answer is not None:
                    answers[known] = (one, answer)
        return answers

    def answer(self, asked: Asked, answer: Message | SextonError) -> None:
        """Gives an answer to whoever still waits for it."""
        self._counters.triggers += 1
        if asked.answer.done():
            return
        if isinstance(answer, SextonError):
            asked.answer.set_exception(answer)
        else:
            asked.answer.set_result(answer)

    def fail_all(self, known: Known) -> None:
        """Answers that a job is not there."""
        while known.asked:
            asked = known.asked.pop(0)
            self.answer(asked, NotFound("job", f"{asked.ref.namespace}/{asked.ref.job}"))

    async def _found(self, loaded: LoadedJob, asked: Asked, kv: KeyValue) -> Message | None:
        """Returns the answer that stands already.

        Raises:
            InvalidArgument: it can't be asked for like this.
            NotFound: what it is about is not there.

        """
        if isinstance(asked, StartFill):
            return self._begun(loaded, asked, kv)
        if isinstance(asked, StopFill):
            return _stopped(asked, kv)
        assert isinstance(asked, Trigger), "nothing else is asked for"
        if asked.request.dead_letter:
            asked.dead = kv if kv.create_revision else None
            return None if asked.dead is not None else await self._requeued(loaded, asked)
        empty = scheduler_pb2.TriggerJobResponse()
        answer = recorded_answer(kv, asked.body, asked.request.request_id, empty)
        if answer is None and (refusal := _refusal(loaded, asked)) is not None:
            raise refusal
        return answer

    def _begun(self, loaded: LoadedJob, asked: StartFill, kv: KeyValue) -> Message | None:
        """Returns a backfill that has begun; else finds out whether it can.

        Raises:
            InvalidArgument: the request's id had another body, or the range can't be used.
            StaleRevision: the range was counted for another version of the definition.
            IllegalState: the job has no schedule, or too many go on.

        """
        uid, request, job = loaded.name.uid, asked.request, loaded.job
        if kv.create_revision:
            record = records_pb2.BackfillRecord.FromString(kv.value)
            if record.body_hash != asked.body:
                expected = "one that no other backfill of this job had"
                raise InvalidArgument("request_id", request.request_id, expected)
            return backfill_message(uid, asked.backfill_id, record)
        if job.current.version != asked.version:
            raise StaleRevision(f"version of {request.parent}", asked.version, job.current.version)
        going_on = self._filling.count(uid)
        if going_on >= MAX_AT_ONCE:
            raise IllegalState(
                request.parent, f"at work on {going_on} backfills", [f"fewer than {MAX_AT_ONCE}"]
            )
        try:
            asked.backfill = request_backfill(
                job,
                self._mesh.now(),
                request.request_id,
                first=instant_of(request.start_time),
                last=instant_of(request.end_time),
                overlap=ASKED_OVERLAPS[request.overlap],
                order=ASKED_ORDERS[request.order],
                skip_succeeded=request.skip_succeeded,
                total=asked.total,
            )
        except PolicyError as error:
            raise refused_backfill(error, request.parent) from None
        return None

    async def _requeued(
        self, loaded: LoadedJob, asked: Trigger
    ) -> scheduler_pb2.TriggerJobResponse:
        """Answers with the run that has taken a dead letter off the list.

        Raises:
            NotFound: there is none: it was purged.

        """
        name = loaded.name
        run_id = requeued_id(name.uid, asked)
        answer = scheduler_pb2.TriggerJobResponse(run_name=run_named(name, run_id))
        if any(start.run_id == run_id for start in loaded.state.buffered):
            answer.decision = "buffered"
            return answer
        wanted = [keys.run_key(name.namespace, name.job, name.uid, run_id)]
        wanted += [
            self._planner.handle_key(name.uid, handle)
            for handle in loaded.state.live
            if handle.run_id == run_id
        ]
        for kv in await get_all(self._mesh.store, wanted):
            if kv.create_revision:
                record = records_pb2.RunRecord.FromString(kv.value)
                answer.run.CopyFrom(run_message(record, kv.mod_revision, full=True))
                return answer
        raise NotFound("dead letter", run_named(name, asked.request.retry_of))


def _stopped(asked: StopFill, kv: KeyValue) -> Message | None:
    """Returns a backfill that has ended, or notes as what it stands.

    Raises:
        NotFound: there is none.

    """
    if not kv.create_revision:
        ref = asked.ref
        name = f"namespaces/{ref.namespace}/jobs/{ref.job}/backfills/{asked.backfill_id}"
        raise NotFound("backfill", name)
    record = records_pb2.BackfillRecord.FromString(kv.value)
    if record.state != backfill_pb2.BACKFILL_STATE_STARTING:
        return backfill_message(asked.ref.uid, asked.backfill_id, record)
    asked.standing = kv
    return None


def next_asked(known: Known) -> Asked | None:
    """Returns the next thing that somebody still waits for."""
    while known.asked and known.asked[0].answer.done():
        known.asked.pop(0)
    return known.asked[0] if known.asked else None


def _refusal(loaded: LoadedJob, asked: Asked) -> InvalidArgument | None:
    """Returns why a start contradicts the job; None: it does not.

    That is looked at before it is decided about together with all that is due.
    """
    overlap = OVERLAP_OF.get(asked.request.overlap) if isinstance(asked, Trigger) else None
    if overlap is None:
        return None
    try:
        loaded.job.check_overlap(overlap)
    except PolicyError as error:
        return InvalidArgument(error.field, error.value, error.expected)
    return None
