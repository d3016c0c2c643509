"""The workers: hello, what they report, silence, and to whom the next run goes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from sexton.errors import Conflict, Overloaded
from sexton_core.instants import MILLISECOND, Instant
from sexton_core.runs import WITH_WORKER, Judgement, report
from sexton_core.words import RunEvent, RunState
from sexton_queue.changes import stop_sent
from sexton_queue.entries import Complete, Entry, GiveBack, Lose, Now
from sexton_queue.records import SessionRecord
from sexton_queue.sessions import (
    MAX_SESSIONS,
    Overdue,
    Session,
    Sessions,
    waits_full_time,
)
from sexton_queue.streams import Assigned, Greeting, Ref, WorkerStream
from sexton_queue.table import RunTable

_ENDS_KEPT: Final = 1_000

_RUNNING: Final = RunState.RUNNING
_make = tuple.__new__
"""Makes a named tuple of all its parts; its own constructor costs twice as much."""

Pick: TypeAlias = Callable[[str, Collection[str]], Entry | None]
"""Gives a run of a queue for somebody who can do certain things."""


class SessionEnd(NamedTuple):
    """The end of a session, for people. `runs`: how many it held."""

    session: str
    worker: str
    runs: int
    cause: str


class Roster:
    """The sessions of a shard and their runs."""

    def __init__(self, table: RunTable, sessions: Sessions) -> None:
        self.table = table
        self.sessions = sessions
        self.opening: dict[str, Session] = {}
        """Sessions whose record is to be written."""
        self.closing: dict[str, Session] = {}
        """Ended sessions whose record is to be deleted once nothing is left under them."""
        self.ended: deque[SessionEnd] = deque(maxlen=_ENDS_KEPT)
        """Ends that nobody has been told of yet."""
        self.hands_out_early = True
        """Whether runs go to workers before their time: not while mesh time is slewed, which
        workers would measure by clocks that are not."""
        self._greeting: dict[str, Session] = {}
        self._takers: dict[str, Session] = {}

    # Coming and going

    def load(self, session: str, record: SessionRecord, now: Now) -> None:
        """Takes a session that stood in the store: it gets its full time."""
        added = self.sessions.add(session, record, now.boot)
        added.durable = True
        self.table.line.offer(added.queues, added.offers)

    def hello(
        self,
        named: str,
        record: SessionRecord,
        held: Sequence[Ref],
        stream: WorkerStream,
        now: Now,
        *,
        new_id: str,
    ) -> Session:
        """Takes a worker's stream, for the session that it names or a new one.

        It is welcomed when everything outstanding about its runs is settled. A session that has
        ended is not resumed: the worker gets a new one.

        Raises:
            Overloaded: there are too many sessions.
        """
        session = self.sessions.live(named) if named else None
        if session is None:
            if len(self.sessions.by_id) >= MAX_SESSIONS:
                raise Overloaded(f"this queue has {MAX_SESSIONS:,} sessions; try again later")
            record.open_time_ns = now.mesh
            session = self.sessions.add(new_id, record, now.boot)
            self.opening[session.id] = session
            self.table.counters.sessions_opened += 1
        else:
            record.open_time_ns = session.record.open_time_ns
            self.table.line.withdraw(session.queues, session.offers)
            if record != session.record:
                session.describe(record)
                session.durable = False
                self.opening[session.id] = session
            self.table.counters.sessions_resumed += 1
        if session.stream is not None:
            session.stream.end(Conflict("this session goes on on another stream"))
        self.table.line.offer(session.queues, session.offers)
        self.sessions.connect(session, stream, now.boot)
        stream.session = session.id
        session.greeting = tuple(held)
        self._greeting[session.id] = session
        return session

    def welcome_ready(self) -> None:
        """Welcomes whoever waits for nothing any more."""
        for session in [
            session
            for session in self._greeting.values()
            if session.greeting is None or (session.durable and not session.outstanding)
        ]:
            del self._greeting[session.id]
            if session.greeting is not None and session.stream is not None:
                self._welcome(session, session.stream, session.greeting)

    def disconnected(self, session: Session, stream: WorkerStream, now: Now) -> None:
        """Notes that the owner has seen a stream end."""
        self.sessions.disconnect(session, stream, now.boot)

    def wake(self, now: Now) -> None:
        """Ends what has waited long enough for its worker."""
        counters = self.table.counters
        for session, why in self.sessions.overdue(now.boot):
            if why is Overdue.FULL_TIME:
                counters.sessions_expired += 1
                if session.stream is not None:
                    session.stream.end(Conflict("this session has ended: nothing was heard of it"))
                self.end(session, "its worker was not heard for the session's full time")
                continue
            counters.sessions_in_grace += 1
            taken = [entry for entry in session.runs.values() if not waits_full_time(entry)]
            if len(taken) == len(session.runs):
                self.end(session, "its stream ended and its worker did not come back in time")
                continue
            for entry in taken:
                lose = Lose(session.id, "its stream ended and its worker did not come back in time")
                self.table.ask(entry.key, lose)

    def end(self, session: Session, cause: str) -> None:
        """Ends a session: its runs are lost to it, and no hello resumes it."""
        session.ended = True
        self.ended.append(SessionEnd(session.id, session.record.worker, len(session.runs), cause))
        self.table.line.withdraw(session.queues, session.offers)
        for entry in list(session.runs.values()):
            self.table.ask(entry.key, Lose(session.id, cause))
        self.closing[session.id] = session

    # What workers say

    def hear(self, session: Session, stream: WorkerStream, heartbeat: int, now: Now) -> None:
        """Takes a heartbeat and answers it."""
        self.sessions.hear(session, now.boot)
        stream.heartbeat = heartbeat
        stream.drain = session.drain_asked and not session.draining
        stream.wake()

    def grant(self, session: Session, room: int) -> None:
        """Takes room for further assignments."""
        if session.draining:
            return
        session.credits += room
        self._takers[session.id] = session

    def ask_to_drain(self, session: Session) -> None:
        """Has a worker told to drain and end, with each heartbeat until it says that it drains."""
        session.drain_asked = True
        if session.welcomed and session.stream is not None and not session.draining:
            session.stream.drain = True
            session.stream.wake()

    def drain(self, session: Session) -> None:
        """Takes back all room: the worker wants nothing more on this stream."""
        session.draining = True
        session.credits = 0

    def started(self, stream: WorkerStream, ref: Ref, now: Now) -> None:
        """Takes that an attempt has begun; one that is no longer this worker's is stopped."""
        entry = self._held(stream, ref)
        if entry is None:
            self._refuse(stream, ref)
        else:
            self._begin(entry, now.mesh)

    def completed(self, ask: Complete, ref: Ref) -> None:
        """Takes that an attempt has ended."""
        self.table.ask_or_read(ref.handle, ask)

    def returned(self, ref: Ref) -> None:
        """Takes an attempt back."""
        self.table.ask(ref.handle, GiveBack(ref.token))

    def progressed(self, stream: WorkerStream, ref: Ref, fraction: float, message: str) -> None:
        """Takes what a task says about itself; in memory only."""
        entry = self._held(stream, ref)
        if entry is not None:
            entry.progress = (fraction, message)

    # Handing out

    def send_unsent(self, now: Now) -> None:
        """Sends again, as credits allow, what workers did not list."""
        for session in list(self._takers.values()):
            while session.unsent and session.credits > 0 and session.welcomed:
                entry = next(iter(session.unsent.values()))
                del session.unsent[entry.key]
                session.credits -= 1
                self.table.counters.resent += 1
                self.send(entry, now)

    def can_hand_out(self) -> bool:
        """Tells whether a run is ready for which some worker has room."""
        line = self.table.line
        if not line.ready:
            return False
        return any(
            line.pick(queue, taker.offers) is not None
            for taker in self._takers.values()
            if taker.welcomed and taker.credits > 0
            for queue in taker.queues
        )

    def takers(self) -> Iterator[tuple[Session, Entry]]:
        """Gives runs and who takes them, one after the other, workers in turn.

        First those that are ready; then, with half of a worker's slots at most taken, those that
        will be in a moment.
        """
        line = self.table.line
        if line.ready:
            yield from self._in_turn(line.pick, early=False)
        if line.early and self.hands_out_early:
            yield from self._in_turn(line.pick_early, early=True)

    def _in_turn(self, pick: Pick, *, early: bool) -> Iterator[tuple[Session, Entry]]:
        takers = self._takers
        round_ = deque(takers.values())
        while round_:
            session = round_.popleft()
            if session.credits <= 0 or not session.welcomed:
                del takers[session.id]
                continue
            if early and not session.may_keep_one_more:
                continue
            entry = self._pick(session, pick)
            if entry is None:
                continue
            session.credits -= 1
            if len(takers) > 1:
                del takers[session.id]  # to the end: others come first next time
                takers[session.id] = session
            yield session, entry
            round_.append(session)

    def send(self, entry: Entry, now: Now) -> None:
        """Puts an attempt on its session's stream."""
        session, run, record = entry.session, entry.run, entry.record
        assert session is not None
        stream = session.stream
        assert stream is not None
        policy, token, not_before = run.policy, run.token, run.not_before
        timeout, start_timeout = policy.timeout_ns, 0
        deadline_at = None if policy.deadline_ns is None else run.deadline_at
        if deadline_at is not None:
            timeout = max(min(timeout, deadline_at - max(now.mesh, not_before)), MILLISECOND)
        expires_at = None if policy.start_within_ns is None else run.expires_at
        if expires_at is not None:
            start_timeout = max(expires_at - now.mesh, MILLISECOND)
        live = record.live
        early = live is not None and live.assign_time_ns < not_before
        ref = _make(Ref, (entry.key, token))
        parts = (ref, run.attempts, record.origin, timeout, start_timeout)
        stream.assignments.append(_make(Assigned, (*parts, not_before if early else 0)))
        entry.sent = token
        if run.state is not _RUNNING:
            stop_sent(entry)
        stream.wake()

    # Inside

    def _welcome(self, session: Session, stream: WorkerStream, held: Sequence[Ref]) -> None:
        session.greeting = None
        session.unsent = dict(session.runs)
        for entry in session.runs.values():
            entry.unsure = False  # what the worker does not list has not begun
            entry.sent = 0
        revoked: list[Ref] = []
        listed: list[Entry] = []
        for ref in held:
            its = session.runs.get(ref.handle)
            if its is None or its.run.token != ref.token:
                revoked.append(ref)
                continue
            session.unsent.pop(its.key, None)
            self._begin(its, its.started_at)
            its.sent = ref.token
            listed.append(its)
        stream.welcome = Greeting(session.id, tuple(revoked))
        for entry in listed:
            if entry.run.state is not RunState.RUNNING:
                stop_sent(entry)
        self._takers[session.id] = session
        stream.wake()

    def _pick(self, session: Session, pick: Pick) -> Entry | None:
        """Gives the first run of its queues in turn, so that none of them starves."""
        queues = session.queues
        if len(queues) == 1:
            return pick(queues[0], session.offers)
        for step in range(len(queues)):
            at = (session.offset + step) % len(queues)
            entry = pick(queues[at], session.offers)
            if entry is not None:
                session.offset = (at + 1) % len(queues)
                return entry
        return None

    def _held(self, stream: WorkerStream, ref: Ref) -> Entry | None:
        entry = self.table.by_key.get(ref.handle)
        if entry is None or entry.session is None or entry.session.stream is not stream:
            return None
        if entry.run.token != ref.token or entry.run.state not in WITH_WORKER:
            return None
        return entry

    def _begin(self, entry: Entry, at: Instant) -> None:
        settled = report(entry.run, entry.run.token, RunEvent.START, at)
        if settled.judgement is Judgement.ACCEPTED:
            entry.run = settled.run
            entry.started_at = at

    def _refuse(self, stream: WorkerStream, ref: Ref) -> None:
        self.table.counters.refused += 1
        stream.stop(ref, "this attempt is no longer this worker's", terminate=True)
