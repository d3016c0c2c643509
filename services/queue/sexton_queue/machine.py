"""The queue's machine: from what was asked to what is to be committed, and from results to memory.

It has no I/O and no clock. Whoever drives it calls `decide` for the next changes, commits them, and
tells each one's result to `settle`. What it wants read stands in `table.stale`, `table.questions`
and `table.line.refills()`; messages gather in the streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sexton_core.instants import MAX_INSTANT, MILLISECOND, SECOND, Instant
from sexton_core.runs import STATES, Run, assigned
from sexton_core.words import RunState
from sexton_queue import changes
from sexton_queue.changes import KEYS_BYTES, Change, Kind
from sexton_queue.counters import Counters
from sexton_queue.entries import Ask, Complete, End, Entry, GiveBack, Lose, Now, Place
from sexton_queue.pieces import Record
from sexton_queue.roster import Roster
from sexton_queue.sessions import Session, Sessions, SessionTimes
from sexton_queue.spans import Ended
from sexton_queue.table import RunTable, answer_ended
from sexton_runtime.kv.types import Outcome, TxnResult

MAX_CHANGES: Final = 400
"""Transactions of one commit: enough to make its cost per run small, few enough to be quick."""
MAX_CHANGE_BYTES: Final = 1024 * 1024
"""Written by one commit, unless a single transaction is larger."""

_EARLY_PAUSE: Final = 5 * MILLISECOND
"""A run that the store found too early is tried again after this."""
_ENDS_PAUSE: Final = 50 * MILLISECOND
"""While runs can be handed out, ends and the like are gathered for so long: a run that starts now
is worth more than one that is settled now, and many together cost less."""
_FULL_PAUSE: Final = SECOND
"""While the store is full, nothing new is written for this long at a time."""


_NOWHERE: Final = Place.NOWHERE
_COMMITTED: Final = Outcome.COMMITTED
_ASSIGN: Final = Kind.ASSIGN
_STAY: Final = Kind.STAY
_END: Final = Kind.END


class Machine:
    """Everything that the owner of one shard knows and decides, from its takeover on."""

    def __init__(
        self,
        *,
        shard: int,
        coordinator_shards: int,
        times: SessionTimes | None = None,
        max_running: Mapping[str, int] | None = None,
        counters: Counters | None = None,
        window: int | None = None,
        ended: Ended | None = None,
    ) -> None:
        """`ended` is given the record of each run whose end is durable."""
        self.counters = counters or Counters()
        self.sessions = Sessions(times or SessionTimes())
        self.table = RunTable(
            shard,
            self.sessions,
            self.counters,
            coordinator_shards=coordinator_shards,
            max_running=max_running,
            window=window,
        )
        self.roster = Roster(self.table, self.sessions)
        self.frozen = False
        """The lease is about to be given back: nothing new is decided."""
        self._shard = shard
        self._ended = ended
        self._hold_until = 0
        self._asked_at = 0  # boot time at which what was asked was looked at last

    def next_wake(self) -> tuple[Instant, int]:
        """Tells the mesh time and the boot time at which there is something to decide."""
        if self.frozen:
            return MAX_INSTANT, MAX_INSTANT
        if self._hold_until:
            return MAX_INSTANT, self._hold_until
        mesh = min(self.table.timers.next_due(), self.table.line.next_wake())
        boot = self.sessions.next_due()
        if self.table.todo:
            boot = min(boot, self._asked_at + _ENDS_PAUSE)
        return mesh, boot

    def decide(self, now: Now) -> list[Change]:
        """Gives the next changes. Each must be followed by its `settle`."""
        found: list[Change] = []
        if self.frozen or now.boot < self._hold_until:
            return found
        self._hold_until = 0
        self.table.wake(now)
        self.roster.wake(now)
        budget = MAX_CHANGE_BYTES
        for change in self._due(now):
            found.append(change)
            budget -= KEYS_BYTES + len(change.value)
            if len(found) >= MAX_CHANGES or budget <= 0:
                break
        return found

    def settle(
        self, committed: Sequence[Change], results: Sequence[TxnResult] | None, now: Now
    ) -> None:
        """Takes what became of changes; None: that is not known."""
        answers = [None] * len(committed) if results is None else results
        for change, result in zip(committed, answers, strict=True):
            outcome = None if result is None else result.outcome
            if result is not None and outcome is _COMMITTED and change.entry is not None:
                self._committed(change, change.entry, result.revision, now)
                continue
            if outcome is not _COMMITTED:
                self._count(outcome, now)
            if change.entry is None:
                assert change.session is not None
                durable = outcome is _COMMITTED
                self._settle_session(change.kind, change.session, durable=durable)
            elif change.kind is _ASSIGN:
                self._not_assigned(change, change.entry, result, now)
            else:
                self._not_changed(change, change.entry, outcome)
        self.roster.welcome_ready()
        self.roster.send_unsent(now)

    # Deciding

    def _due(self, now: Now) -> Iterator[Change]:
        waited = now.boot >= self._asked_at + _ENDS_PAUSE
        if waited or self.table.pressing or not self.roster.can_hand_out():
            yield from self._asked(now)
            # Not reached where they fill the commit: the next one goes on with them, since workers
            # have room for the next run before the end of the last is written.
            self._asked_at = now.boot
            self.table.pressing = False
        yield from self._session_changes()
        self.roster.welcome_ready()
        self.roster.send_unsent(now)
        assignment, hold, mesh = changes.assignment, self.table.hold, now.mesh
        for session, entry in self.roster.takers():
            change = assignment(entry, session, mesh)
            entry.busy = True
            hold(entry, session)
            yield change

    def _asked(self, now: Now) -> Iterator[Change]:
        todo = self.table.todo
        while todo:
            _, entry = todo.popitem(last=False)
            while entry.asks and not entry.busy:
                change = changes.judge(entry, entry.asks.pop(0), now.mesh)
                if change is not None:
                    entry.busy = True
                    self.table.line.leave(entry)
                    yield change
            if not entry.busy and entry.place is _NOWHERE:
                self.table.drop(entry)

    def _session_changes(self) -> Iterator[Change]:
        opening, closing = self.roster.opening, self.roster.closing
        while opening:
            yield changes.opening(opening.pop(next(iter(opening))), self._shard)
        for session in [session for session in closing.values() if not session.runs]:
            del closing[session.id]
            yield changes.closing(session, self._shard)

    # Settling

    def _count(self, outcome: Outcome | None, now: Now) -> None:
        if outcome is Outcome.NO_SPACE:
            self.counters.no_space += 1
            self._hold_until = now.boot + _FULL_PAUSE
        elif outcome is Outcome.REFUSED:
            self.counters.refused_commits += 1
        elif outcome is None:
            self.counters.unknown_commits += 1

    def _settle_session(self, kind: Kind, session: Session, *, durable: bool) -> None:
        if kind is Kind.OPEN:
            if durable:
                session.durable = True
            else:
                self.roster.opening[session.id] = session
        elif durable:
            self.sessions.by_id.pop(session.id, None)
        else:
            self.roster.closing[session.id] = session

    def _committed(self, change: Change, entry: Entry, revision: int, now: Now) -> None:
        kind, run, record = change.kind, change.run, change.record
        assert run is not None
        assert record is not None
        entry.busy = False
        entry.revision = revision
        entry.record = record
        if kind is _ASSIGN:
            entry.run = assigned(run, revision)
            self._assigned(change, entry, now)
        elif kind is _END:
            entry.run = run
            self._over(change, entry, run, record, revision)
            return
        elif kind is _STAY:
            self._count_ask(change.ask)
            if entry.run.started and not run.started:
                run = run._replace(started=True, ever_started=True)
            entry.run = run
            self.table.timers.set(entry.key, run)
            changes.stop_sent(entry)
            _answer(change.ask, run.state)
        else:
            self._count_ask(change.ask)
            self.counters.retried += run.state is RunState.RETRYING
            entry.run = run
            entry.started_at = 0
            self.table.take_out(entry)
            _answer(change.ask, run.state)
        if entry.asks:
            self.table.put_up(entry)
        if kind is Kind.LINE_UP:
            self.table.line_up(entry, now)

    def _assigned(self, change: Change, entry: Entry, now: Now) -> None:
        self.counters.assigned += 1
        entry.started_at = 0
        entry.progress = None
        entry.unsure = False
        session = change.session
        assert session is not None
        if session.ended:
            entry.asks.append(Lose(session.id, "it had ended when the assignment was committed"))
        elif session.stream is change.stream and session.welcomed:
            self.roster.send(entry, now)
        else:
            session.unsent[entry.key] = entry

    def _over(self, change: Change, entry: Entry, run: Run, record: Record, revision: int) -> None:
        counters, ask = self.counters, change.ask
        counters.settled += 1
        counters.dead_letters += STATES[run.state].dead_letter
        self._count_ask(ask)
        self.table.take_out(entry)
        _answer(ask, run.state)
        self.table.forget(entry, revision, change.value)
        if self._ended is not None:
            self._ended(change.value, record.origin.traceparent, run.state, entry.arrived_at)
        while entry.asks:
            answer_ended(run, entry.asks.pop(0))

    def _not_assigned(
        self, change: Change, entry: Entry, result: TxnResult | None, now: Now
    ) -> None:
        session = change.session
        assert session is not None
        self.table.take_out(entry)
        if session.welcomed and session.stream is change.stream:
            self.roster.grant(session, 1)
        if result is None or (result.outcome is Outcome.REFUSED and result.failed_compare != 1):
            self.table.mark_unknown(entry, maybe_assigned=True)
            return
        entry.busy = False
        if result.outcome is Outcome.REFUSED:
            deleted = End(terminate=False, reason="the job has been deleted")
            self.table.ask(entry.key, deleted)
            return
        if result.outcome is Outcome.TOO_EARLY:
            entry.too_early = True
        if result.outcome is Outcome.TOO_EARLY and entry.run.not_before <= now.mesh:
            entry.run = entry.run._replace(not_before=now.mesh + _EARLY_PAUSE)
        if entry.asks:
            self.table.put_up(entry)
        self.table.line_up(entry, now)

    def _not_changed(self, change: Change, entry: Entry, outcome: Outcome | None) -> None:
        assert change.ask is not None
        entry.asks.insert(0, change.ask)
        if outcome is Outcome.NO_SPACE:
            entry.busy = False
            self.table.put_up(entry)
        else:
            self.table.mark_unknown(entry)

    def _count_ask(self, ask: Ask | None) -> None:
        counters = self.counters
        if type(ask) is Complete:
            counters.completed += 1
        elif type(ask) is GiveBack:
            counters.returned += 1
        elif type(ask) is Lose:
            counters.lost += 1


def _answer(ask: Ask | None, state: RunState) -> None:
    """Tells whoever asked that it is durable."""
    if type(ask) is Complete:
        ask.answer(True, state)
    elif isinstance(ask, End) and ask.answer is not None:
        ask.answer(state)
