"""What an ask makes of a run: one change, which is one transaction, or an answer at once.

All rules about states and tokens are those of `sexton_core.runs`; this chooses the event, and the
record that goes with it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from sexton.v1 import run_pb2
from sexton_core.instants import Instant
from sexton_core.runs import WITH_WORKER, Judgement, Run, apply, assign, complete, overdue, report
from sexton_core.words import RunEvent, RunState
from sexton_queue import records
from sexton_queue.entries import Ask, Complete, End, Entry, GiveBack, Lose, TimeUp
from sexton_queue.pieces import Record
from sexton_queue.records import AttemptEnd
from sexton_queue.sessions import Session
from sexton_queue.streams import Ref, WorkerStream
from sexton_records.keys import session_key
from sexton_runtime.kv.types import Delete, Put, Txn

KEYS_BYTES: Final = 400
"""About what the keys of a change take, and what it writes besides the record."""


class Kind(Enum):
    """What a change does."""

    ASSIGN = "assign"  # out of the line, to a session
    STAY = "stay"  # remains with its session, asked to end
    LINE_UP = "line up"  # back into the line
    END = "end"
    OPEN = "open"  # a session's record is written
    CLOSE = "close"  # a session's record is deleted


_ASSIGN: Final = Kind.ASSIGN
_END: Final = Kind.END
_ACCEPTED: Final = Judgement.ACCEPTED
_make = tuple.__new__
"""Makes a named tuple of all its parts; its own constructor costs twice as much."""


class Change:
    """A transaction, and what memory becomes once it is durable."""

    __slots__ = ("ask", "entry", "kind", "record", "run", "session", "stream", "txn", "value")

    def __init__(  # noqa: PLR0917 - two are made for every run, and keywords cost as much again
        self,
        kind: Kind,
        txn: Txn,
        entry: Entry | None = None,
        run: Run | None = None,
        record: Record | None = None,
        value: bytes = b"",
        ask: Ask | None = None,
        session: Session | None = None,
        stream: WorkerStream | None = None,
    ) -> None:
        self.kind = kind
        self.txn = txn
        self.entry = entry
        self.run = run
        self.record = record
        self.value = value
        """The run's record, or the session's, as it is written."""
        self.ask = ask
        self.session = session
        self.stream = stream


def assignment(entry: Entry, session: Session, now: Instant) -> Change:
    """Gives the next attempt of a run to a session: of a ready one, or a moment before it is."""
    before, waiting = entry.record, entry.run
    run = assign(waiting, session.id, now)
    not_before = before.not_before_ns
    if run.not_before != not_before:  # the owner has put it off, by its own estimate
        run = run._replace(not_before=not_before)
    value, record = records.assign_record(before, run, session.worker, now)
    if waiting.not_before > now:
        not_before = waiting.assignable_at
    state_key = before.origin.template.state_key
    txn = records.assign_txn(entry.key, entry.revision, value, state_key, not_before)
    return Change(_ASSIGN, txn, entry, run, record, value, None, session, session.stream)


def opening(session: Session, shard: int) -> Change:
    """Makes a session durable."""
    value = session.record.SerializeToString()
    put = Put(session_key(shard, session.id), value)
    return Change(Kind.OPEN, Txn(then=(put,)), value=value, session=session)


def closing(session: Session, shard: int) -> Change:
    """Forgets a session under which nothing is left."""
    delete = Delete(session_key(shard, session.id))
    return Change(Kind.CLOSE, Txn(then=(delete,), use_reserve=True), session=session)


def judge(entry: Entry, ask: Ask, now: Instant) -> Change | None:
    """Decides about an ask; None: nothing is to be written, and whoever asked has been answered."""
    run = entry.run
    match ask:
        case Complete():
            return _completion(entry, ask, now)
        case GiveBack():
            settled = report(run, ask.token, RunEvent.GIVE_BACK, now)
            if settled.judgement is not Judgement.ACCEPTED:
                return None
            error = _end_of_returned(entry, settled.run) if settled.run.ended else None
            end = AttemptEnd(run_pb2.ATTEMPT_STATE_RETURNED, error)
            return _after_attempt(entry, settled.run, end, ask, now=now)
        case Lose():
            if run.state not in WITH_WORKER or run.session != ask.session:
                return None
            error = run_pb2.RunError(
                kind="session lost", message=f"the worker's session ended: {ask.cause}"
            )
            end = AttemptEnd(run_pb2.ATTEMPT_STATE_LOST, error=error, started_at=entry.started_at)
            if entry.unsure:  # it may have begun under the owner before
                run = apply(run, RunEvent.START, now)
            lost = apply(run, RunEvent.LOSE, now)
            return _after_attempt(entry, lost, end, ask, now=now)
        case End():
            return _end(entry, ask, now)
        case TimeUp():
            return _time_up(entry, ask, now)


def stop_sent(entry: Entry) -> None:
    """Tells the worker that an attempt is to be ended, where it can be reached."""
    session, run = entry.session, entry.run
    if session is None or not session.welcomed or entry.sent != run.token:
        return
    terminate = run.state is RunState.TERMINATING
    reason = "the run's deadline has passed" if run.deadline_passed else _asked_for(entry)
    assert session.stream is not None
    session.stream.stop(Ref(entry.key, run.token), reason, terminate=terminate)


def _completion(entry: Entry, ask: Complete, now: Instant) -> Change | None:
    settled = complete(entry.run, ask.token, ask.event, now, retry_after=ask.retry_after)
    if settled.judgement is not _ACCEPTED:
        ask.answer(settled.judgement is Judgement.REPEATED, entry.run.state)
        return None
    end = ask.end
    if entry.started_at and not (end.execution_ms or end.wait_ms):
        end = _make(AttemptEnd, (*end[:-1], entry.started_at))
    return _after_attempt(entry, settled.run, end, ask, now=now)


def _after_attempt(entry: Entry, run: Run, end: AttemptEnd, ask: Ask, *, now: Instant) -> Change:
    value, record = records.end_attempt_record(entry.record, run, entry.run.token, end, now)
    if run.ended:
        txn = records.end_txn(entry.key, entry.revision, value, record.origin, run)
        kind = _END
    else:
        txn = records.move_txn(entry.key, entry.revision, value)
        kind = Kind.LINE_UP
    return Change(kind, txn, entry, run, record, value, ask)


def _end(entry: Entry, ask: End, now: Instant) -> Change | None:
    run = entry.run
    moved = (
        run
        if run.ended
        else apply(run, RunEvent.TERMINATE if ask.terminate else RunEvent.CANCEL, now)
    )
    if moved.state is run.state:
        stop_sent(entry)  # whoever asks again may do so because the first request was lost
        if ask.answer is not None:
            ask.answer(run.state)
        return None
    if moved.ended:
        kind = "terminated" if ask.terminate else "cancelled"
        error = run_pb2.RunError(kind=kind, message=ask.reason)
        return _ended_in_line(entry, moved, error, ask)
    cancel = records.cancel_record(ask.reason, now, terminate=ask.terminate)
    value, record = records.move_record(entry.record, moved, cancel)
    txn = records.move_txn(entry.key, entry.revision, value)
    return Change(Kind.STAY, txn, entry=entry, run=moved, record=record, value=value, ask=ask)


def _time_up(entry: Entry, ask: TimeUp, now: Instant) -> Change | None:
    run = entry.run
    event = overdue(run, now)
    if event is None:
        return None
    moved = apply(run, event, now)
    if moved.ended:
        error = (
            run_pb2.RunError(kind="expired", message="nothing had started within start_within")
            if event is RunEvent.EXPIRE
            else run_pb2.RunError(kind="deadline", message="the run's deadline had passed")
        )
        return _ended_in_line(entry, moved, error, ask)
    value, record = records.move_record(entry.record, moved)
    txn = records.move_txn(entry.key, entry.revision, value)
    return Change(Kind.STAY, txn, entry=entry, run=moved, record=record, value=value, ask=ask)


def _ended_in_line(entry: Entry, run: Run, error: run_pb2.RunError, ask: Ask) -> Change:
    value, record = records.end_waiting_record(entry.record, run, error)
    txn = records.end_txn(entry.key, entry.revision, value, record.origin, run)
    return Change(Kind.END, txn, entry=entry, run=run, record=record, value=value, ask=ask)


def _end_of_returned(entry: Entry, run: Run) -> run_pb2.RunError:
    """Says why a run is over whose attempt has not begun."""
    if run.state is RunState.FAILED:
        message = f"it was given back after the last of {run.attempts} deliveries"
        return run_pb2.RunError(kind="returned", message=message)
    if run.deadline_passed:
        return run_pb2.RunError(kind="deadline", message="the run's deadline had passed")
    return run_pb2.RunError(kind=run.state.value, message=_asked_for(entry))


def _asked_for(entry: Entry) -> str:
    cancel = entry.record.cancel
    return "" if cancel is None else cancel.reason
