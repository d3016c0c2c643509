"""The runs in memory: in line, with sessions, or looked at for a moment; and who has just ended.

A run comes in by a push, by a page of the line, or because something is asked of it; what the store
says of a newer revision wins. It leaves when it has ended, or when memory has no room for it and
nobody holds it: it is then found again by reading.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from sexton.errors import Fenced
from sexton_core.runs import WITH_WORKER, Run, overdue
from sexton_core.words import RunState
from sexton_queue.changes import stop_sent
from sexton_queue.counters import Counters
from sexton_queue.entries import Ask, Complete, End, Entry, Lose, Now, Place, TimeUp
from sexton_queue.line import Line, Refill
from sexton_queue.pieces import Record, RecordReader, only_waits
from sexton_queue.records import SessionRecord
from sexton_queue.sessions import Session, Sessions
from sexton_queue.streams import MAX_TOLD_BYTES, LeaderStream, Settled
from sexton_queue.timers import Timers
from sexton_records.keys import active_prefix
from sexton_runtime.kv.types import KeyValue

MAX_HANDLE_BYTES: Final = 480
_HANDLE: Final = re.compile(rb"active/\d{3}/[!-.0-~]+/\d{3}/\d{20}/[!-.0-~]+/[!-.0-~]+")
"""As `sexton_records.keys.handle_key` makes them: names and ids are printable and have no slash."""
MAX_RECENT: Final = 50_000
"""Ended runs whose repeated completions are answered without reading."""
MAX_QUESTIONS: Final = 10_000
"""Completions and hints about runs that have to be read first; more are left to be repeated."""


# Members of an Enum take a function call each in CPython 3.11: those of every run are kept here.
_NOWHERE: Final = Place.NOWHERE
_HELD: Final = Place.HELD
_make = tuple.__new__
"""Makes a named tuple of all its parts; its own constructor costs twice as much."""


class Question(NamedTuple):
    """An ask about a run that is not in memory."""

    key: bytes
    ask: Complete | End


class RunTable:
    """Runs by handle."""

    def __init__(
        self,
        shard: int,
        sessions: Sessions,
        counters: Counters,
        *,
        coordinator_shards: int,
        max_running: Mapping[str, int] | None = None,
        window: int | None = None,
    ) -> None:
        bounds: dict[str, Any] = {} if window is None else {"window": window}
        self.line = Line(shard, max_running=max_running, on_dropped=self.drop, **bounds)
        self.by_key: dict[bytes, Entry] = {}
        self.todo: OrderedDict[bytes, Entry] = OrderedDict()
        """Runs of which something is asked and no commit is under way, the first asked first."""
        self.pressing = False
        """Whether something of `todo` is not to wait until starts are written."""
        self.stale: dict[bytes, Entry] = {}
        """Runs whose record has to be read: what became of a commit is not known."""
        self._maybe_assigned: set[bytes] = set()  # of the stale ones
        self.questions: deque[Question] = deque()
        self.leaders: list[LeaderStream] = []
        self._leader_tokens: dict[int, int] = {}
        self.timers = Timers()
        self.counters = counters
        self._sessions = sessions
        self._reader = RecordReader(coordinator_shards)
        self._prefix = active_prefix(shard)
        self._recent: OrderedDict[bytes, tuple[int, RunState]] = OrderedDict()
        self._gone: dict[bytes, int] = {}
        self._reading = 0

    # Coming in

    def is_handle(self, key: bytes) -> bool:
        """Tells whether a key can be that of a run in flight of this shard."""
        if not key.startswith(self._prefix) or len(key) > MAX_HANDLE_BYTES:
            return False
        return _HANDLE.fullmatch(key) is not None

    def arrive(self, key: bytes, revision: int, value: bytes, now: Now) -> Entry | None:
        """Takes a run as it was at a revision; gives its entry where it is in memory."""
        entry = self.by_key.get(key)
        if entry is not None:
            if not entry.busy and revision > entry.revision:
                self._mark_stale(entry)  # nobody but this owner writes it: find out
            return entry
        if self._gone and self._gone.get(key, 0) >= revision:
            return None
        try:
            record, run = self._reader.read(value, revision)
        except (DecodeError, ValueError, KeyError):
            return None
        template = record.origin.template
        if only_waits(run) and not self.line.covers(template.queue, template.priority, key):
            return None
        entry = _entry(key, revision, record, run)
        self._place(entry, now)
        return self.by_key.get(key)

    def load(self, kv: KeyValue, now: Now) -> Entry | None:
        """Takes a run that something is asked of, whether or not memory has room for it.

        None: it can't be read, and nobody can be told what becomes of it.
        """
        entry = self.arrive(kv.key, kv.mod_revision, kv.value, now)
        if entry is None and kv.create_revision:
            try:
                record, run = self._reader.read(kv.value, kv.mod_revision)
            except (DecodeError, ValueError, KeyError):
                return None
            entry = _entry(kv.key, kv.mod_revision, record, run)
            self.by_key[kv.key] = entry
        return entry

    def begin_reading(self) -> None:
        """Begins to remember who ends, so that a page that is older does not bring them back."""
        self._reading += 1

    def end_reading(self) -> None:
        """Ends one reading."""
        self._reading -= 1
        if not self._reading:
            self._gone.clear()

    def observe(self, kvs: Iterable[KeyValue], now: Now) -> None:
        """Takes a page of handles that was asked for after `begin_reading`."""
        for kv in kvs:
            entry = self.by_key.get(kv.key)
            if entry is not None and (entry.busy or entry.revision >= kv.mod_revision):
                continue
            self.arrive(kv.key, kv.mod_revision, kv.value, now)

    def refilled(self, refill: Refill, kvs: Sequence[KeyValue], now: Now, *, more: bool) -> None:
        """Takes the page that a lane has asked for."""
        self.observe(kvs, now)
        self.line.refilled(refill, kvs[-1].key if more and kvs else b"")

    def reread(self, key: bytes, handle: KeyValue, ended: KeyValue, now: Now) -> None:
        """Takes what has become of a stale entry: its handle, or its record under `runs/`."""
        entry = self.stale.pop(key, None)
        if entry is None:
            return
        if key in self._maybe_assigned:
            self._maybe_assigned.remove(key)
            self.line.running[entry.queue] -= 1
        entry.busy = False
        before = entry.run
        self.take_out(entry)
        if handle.create_revision:
            entry.revision = handle.mod_revision
            entry.record, run = self._reader.read(handle.value, handle.mod_revision)
            if run.state in WITH_WORKER:
                entry.unsure = entry.unsure and run.token == before.token
            if run.token == before.token and run.state in WITH_WORKER:
                run = run._replace(started=before.started, ever_started=before.ever_started)
            entry.run = run
            self._place(entry, now)
            if run.state in (RunState.CANCELLING, RunState.TERMINATING):
                stop_sent(entry)  # whoever committed it may not have come to tell
            if entry.asks:
                self.by_key[key] = entry
                self.put_up(entry)
            return
        if ended.create_revision:
            entry.record, entry.run = self._reader.read(ended.value, ended.mod_revision)
            self.forget(entry, max(handle.mod_revision, ended.mod_revision))
        else:
            self.by_key.pop(key, None)
        if entry.asks:
            self._answer_gone(entry)

    # Leaders

    def follow(self, stream: LeaderStream) -> None:
        """Takes a leader's stream; a later leader of the same shard ends those of earlier ones.

        Raises:
            Fenced: a later leader has been here.
        """
        newest = self._leader_tokens.get(stream.shard, 0)
        if stream.token < newest:
            raise Fenced(f"a leader with token {newest} has been here; {stream.token} is replaced")
        self._leader_tokens[stream.shard] = stream.token
        for other in self.leaders:
            if other.shard == stream.shard:
                other.end(Fenced("another stream of this shard's leader has been opened"))
        self.leaders.append(stream)

    def unfollow(self, stream: LeaderStream) -> None:
        """Forgets a leader's stream. Idempotent."""
        if stream in self.leaders:
            self.leaders.remove(stream)

    # Being asked

    def ask(self, key: bytes, ask: Ask) -> bool:
        """Asks something of a run in memory; tells whether it is there."""
        entry = self.by_key.get(key)
        if entry is None:
            return False
        entry.asks.append(ask)
        if not entry.busy:
            self.put_up(entry)
        return True

    def put_up(self, entry: Entry) -> None:
        """Has worked off what is asked of a run of which no commit is under way.

        It presses where the run could be handed out meanwhile, whose end is perhaps asked for, and
        where others can be handed out only afterwards.
        """
        self.todo[entry.key] = entry
        if not self.pressing:
            self.pressing = entry.session is None or self.line.is_full(entry.queue)

    def ask_or_read(self, key: bytes, ask: Complete | End) -> None:
        """Asks something of any run; what is not in memory is read first."""
        entry = self.by_key.get(key)
        if entry is not None:
            entry.asks.append(ask)
            if not entry.busy:
                self.put_up(entry)
            return
        recent = self._recent.get(key)
        if recent is not None:
            token, state = recent
            if isinstance(ask, Complete):
                ask.answer(ask.token == token, state)
            elif ask.answer is not None:
                ask.answer(state)
        elif len(self.questions) < MAX_QUESTIONS or (isinstance(ask, End) and ask.answer):
            self.questions.append(Question(key, ask))  # whoever waits in a call is bounded by it

    def wake(self, now: Now) -> None:
        """Has come up what is due by mesh time."""
        self.line.wake(now.mesh)
        for key in self.timers.due(now.mesh):
            entry = self.by_key.get(key)
            if entry is None:
                continue
            if overdue(entry.run, now.mesh) is not None:
                self.ask(key, TimeUp())
            else:
                self.timers.set(key, entry.run)

    # Changing places

    def hold(self, entry: Entry, session: Session) -> None:
        """Gives a run to a session."""
        assert entry.session is None, "a run has one session"
        self.line.leave(entry)
        entry.place = _HELD
        entry.session = session
        session.runs[entry.key] = entry
        self.line.running[entry.queue] += 1

    def take_out(self, entry: Entry) -> None:
        """Takes a run from wherever it is: its session, or the line."""
        session = entry.session
        if session is None:
            self.line.leave(entry)
            return
        session.runs.pop(entry.key, None)
        if session.unsent:
            session.unsent.pop(entry.key, None)
        entry.session = None
        entry.place = _NOWHERE
        self.line.running[entry.queue] -= 1

    def line_up(self, entry: Entry, now: Now) -> None:
        """Puts a run that nobody holds into the line."""
        self.by_key[entry.key] = entry
        self.timers.set(entry.key, entry.run)
        if not self.line.arrive(entry, now.mesh):
            self.drop(entry)

    def drop(self, entry: Entry) -> None:
        """Forgets a run for which the line has no room, unless something is asked of it."""
        if not entry.busy and not entry.asks:
            self.by_key.pop(entry.key, None)

    def forget(self, entry: Entry, revision: int, record: bytes = b"") -> None:
        """Forgets a run that has ended at a revision, as `record` if known, and was taken out.

        Leaders are told.
        """
        key, run = entry.key, entry.run
        self.by_key.pop(key, None)
        self.todo.pop(key, None)
        if self._reading:
            self._gone[key] = revision
        self._recent[key] = (run.token if run.completed else 0, run.state)
        if len(self._recent) > MAX_RECENT:
            self._recent.popitem(last=False)
        told = entry.tells_record and 0 < len(record) <= MAX_TOLD_BYTES
        brought = (record, revision) if told else (b"", 0)
        notice = _make(Settled, (key, entry.uid, run.state, *brought))
        for leader in self.leaders:
            leader.notify(notice)

    def mark_unknown(self, entry: Entry, *, maybe_assigned: bool = False) -> None:
        """Has a run's record read, no commit of it being under way.

        One that may be assigned counts as such until it is read: the bound of its queue holds.
        """
        if maybe_assigned:
            self._maybe_assigned.add(entry.key)
            self.line.running[entry.queue] += 1
        self._mark_stale(entry)

    # Inside

    def _mark_stale(self, entry: Entry) -> None:
        entry.busy = True
        self.todo.pop(entry.key, None)
        self.line.leave(entry)
        self.stale[entry.key] = entry

    def _place(self, entry: Entry, now: Now) -> None:
        run = entry.run
        if run.state not in WITH_WORKER:
            self.line_up(entry, now)
            if not only_waits(run) and overdue(run, now.mesh) is not None:
                self.by_key[entry.key] = entry
                self.ask(entry.key, TimeUp())
            return
        self.by_key[entry.key] = entry
        self.timers.set(entry.key, run)
        session = self._sessions.by_id.get(run.session)
        if session is None:  # its record is gone: nobody knows for how long
            session = self._sessions.add(run.session, SessionRecord(), now.boot)
            session.durable = True
        self.hold(entry, session)
        if session.ended:
            self.ask(entry.key, Lose(session.id, "it had ended"))
        elif entry.sent != run.token:
            session.unsent[entry.key] = entry

    def _answer_gone(self, entry: Entry) -> None:
        """Answers what was asked of a run that is no more; nothing is written."""
        asks, entry.asks = entry.asks, []
        for ask in asks:
            answer_ended(entry.run, ask)


def _entry(key: bytes, revision: int, record: Record, run: Run) -> Entry:
    """Makes an entry of what the store holds.

    Whether a live attempt has begun was known to the owner before: taken for unbegun while its
    worker may still tell, and for begun where it is lost.
    """
    entry = Entry(key, revision, record, run)
    entry.unsure = run.state in WITH_WORKER
    return entry


def answer_ended(run: Run, ask: Ask) -> None:
    """Answers an ask about a run that has ended, or (as memory last knew it) no longer exists."""
    if isinstance(ask, Complete):
        counted = run.ended and run.completed and run.token == ask.token > 0
        ask.answer(counted, run.state if run.ended else None)
    elif isinstance(ask, End) and ask.answer is not None:
        ask.answer(run.state if run.ended else None)
