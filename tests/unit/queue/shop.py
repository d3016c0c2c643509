"""The real machine over a dictionary for a store, with owners that are replaced and model workers.

The moves are those of the exhaustive model (`tests/unit/core/models/test_queue_model.py`), made by
the code that runs in production: takeover, broken streams, kills, lost answers, cancel requests.
"""

from __future__ import annotations

from typing import Any

from unit.queue.lines import UID, T

from sexton.v1 import run_pb2
from sexton_core.instants import SECOND
from sexton_core.runs import WITH_WORKER
from sexton_core.words import RunEvent, RunState
from sexton_queue.changes import Change
from sexton_queue.entries import Complete, End, Now
from sexton_queue.machine import Machine
from sexton_queue.records import AttemptEnd, RunRecord, SessionRecord
from sexton_queue.streams import Ref, WorkerStream
from sexton_records import keys
from sexton_records.runs import STATE_OF
from sexton_runtime.kv.types import (
    Compare,
    KeyValue,
    Outcome,
    Put,
    Target,
    Txn,
    TxnResult,
)

_ENDS = {
    RunEvent.SUCCEED: run_pb2.ATTEMPT_STATE_SUCCEEDED,
    RunEvent.FAIL: run_pb2.ATTEMPT_STATE_FAILED,
    RunEvent.STOP: run_pb2.ATTEMPT_STATE_CANCELLED,
}


def said(event: RunEvent) -> AttemptEnd:
    """What a worker says of an attempt that ended so."""
    return AttemptEnd(_ENDS[event])


class Shop:
    """A store, the machine of its present owner, and the time."""

    def __init__(self) -> None:
        self.kvs: dict[bytes, KeyValue] = {}
        self.revision = 10
        self.boot = 1_000 * SECOND
        self.owner = 0
        self.sessions = 0
        self.machine: Machine
        self.put(keys.state_key(0, UID), b"")
        self.take_over()

    @property
    def now(self) -> Now:
        return Now(T + self.boot, self.boot)

    def put(self, key: bytes, value: bytes) -> None:
        self.revision += 1
        self._put(key, value)

    def kv(self, key: bytes) -> KeyValue:
        return self.kvs.get(key, KeyValue(key, b"", 0, 0, 0))

    def take_over(self) -> None:
        """Another owner: what the one before had in memory is gone."""
        self.owner += 1
        self.machine = Machine(shard=0, coordinator_shards=1)
        for key, kv in sorted(self.kvs.items()):
            if key.startswith(b"sessions/"):
                name = key.rpartition(b"/")[2].decode()
                self.machine.roster.load(name, SessionRecord.FromString(kv.value), self.now)
        for key, kv in sorted(self.kvs.items()):
            written_again = key.startswith(b"active/") and kv.version > 1
            if written_again and STATE_OF[RunRecord.FromString(kv.value).state] in WITH_WORKER:
                self.machine.table.observe([kv], self.now)
        for key in self.kvs:
            if key.startswith(b"active/"):
                parsed = keys.parse_handle_key(key)
                self.machine.table.line.discover(parsed.queue, parsed.priority)

    def pump(self, *, unknown: bool = False, applied: bool = True) -> None:
        """Lets the machine do what it can; `unknown`: the answers to its first commit are lost."""
        for _ in range(50):
            self.read()
            found = self.machine.decide(self.now)
            if not found:
                return
            results = [self.commit(change) for change in found if applied or not unknown]
            self.machine.settle(found, None if unknown else results, self.now)
            unknown = False
        raise AssertionError("the machine never comes to rest")

    def read(self) -> None:
        """Reads what the machine wants read."""
        table = self.machine.table
        for entry in list(table.stale.values()):
            ended = self.kv(entry.record.origin.run_key)
            table.reread(entry.key, self.kv(entry.key), ended, self.now)
        while table.questions:
            question = table.questions.popleft()
            handle = self.kv(question.key)
            if handle.create_revision:
                table.load(handle, self.now)
                table.ask(question.key, question.ask)
            elif isinstance(question.ask, Complete):
                question.ask.answer(False, None)
            elif question.ask.answer is not None:
                question.ask.answer(None)
        for refill in table.line.refills(10):
            page = [kv for key, kv in sorted(self.kvs.items()) if refill.start <= key < refill.end]
            table.refilled(refill, page[: refill.limit], self.now, more=len(page) > refill.limit)

    def commit(self, change: Change) -> TxnResult:
        txn: Txn = change.txn
        for index, compare in enumerate(txn.compares):
            if not self._holds(compare):
                found = self.kv(compare.key).mod_revision
                return TxnResult(Outcome.REFUSED, self.revision, index, found)
        if txn.not_before_ns > self.now.mesh:
            return TxnResult(Outcome.TOO_EARLY, self.revision)
        self.revision += 1
        for op in txn.then:
            if isinstance(op, Put):
                self._put(op.key, op.value)
            else:
                self.kvs.pop(op.key, None)
        return TxnResult(Outcome.COMMITTED, self.revision)

    def record(self, handle: bytes) -> RunRecord:
        """Reads a run wherever it is."""
        parsed = keys.parse_handle_key(handle)
        ended = keys.run_key("default", "nightly", parsed.uid, parsed.run_id)
        kv = self.kv(handle) if handle in self.kvs else self.kv(ended)
        assert kv.create_revision, "no run is lost"
        return RunRecord.FromString(kv.value)

    def state(self, handle: bytes) -> RunState:
        return STATE_OF[self.record(handle).state]

    def end(self, handle: bytes, *, terminate: bool = False) -> list[RunState | None]:
        """Asks for a run's end; gives the list in which the answer will stand."""
        answers: list[RunState | None] = []
        self.machine.table.ask_or_read(handle, End(terminate, "asked", answers.append))
        return answers

    def _holds(self, compare: Compare) -> bool:
        kv = self.kv(compare.key)
        if compare.target is Target.EXISTS:
            return (kv.create_revision > 0) is compare.operand
        assert compare.target is Target.MOD_REVISION
        return kv.mod_revision == compare.operand

    def _put(self, key: bytes, value: bytes) -> None:
        before = self.kv(key)
        created = before.create_revision or self.revision
        self.kvs[key] = KeyValue(key, value, created, self.revision, before.version + 1)


class Hand:
    """A worker as the protocol wants it, one move at a time."""

    def __init__(
        self, shop: Shop, name: str, *, slots: int = 4, queues: tuple[str, ...] = ("default",)
    ) -> None:
        self.shop = shop
        self.queues = queues
        self.keeps = True
        """Whether it keeps what it is not to begin yet."""
        self.name = name
        self.slots = slots
        self.session = ""
        self.stream: WorkerStream | None = None
        self.received: set[Ref] = set()
        self.executing: set[Ref] = set()
        self.finished: set[Ref] = set()
        self.known: set[Ref] = set()
        self.answered = shop.boot
        self.alive = True
        self.refused_live = False

    def hello(self) -> None:
        shop = self.shop
        shop.sessions += 1
        self.received.clear()
        record = SessionRecord(
            worker=self.name,
            queues=self.queues,
            kinds=["shell"],
            slots=self.slots,
            keeps=self.keeps,
        )
        self.stream = WorkerStream(lambda: None)
        held = sorted(self.executing | self.finished)
        machine = shop.machine
        machine.roster.hello(
            self.session, record, held, self.stream, shop.now, new_id=f"s{shop.sessions}"
        )

    def read(self) -> None:
        """Takes what waits on the stream."""
        stream = self.stream
        if stream is None:
            return
        if stream.error is not None:
            self.cut()
            return
        if stream.welcome is not None:
            session, revoked = stream.welcome
            stream.welcome = None
            if session != self.session:
                self.executing.clear()
                self.finished.clear()
                self.session = session
            self.executing -= set(revoked)
            self.finished -= set(revoked)
            self.answered = self.shop.boot
            live = self.shop.machine.sessions.by_id[session]
            self.shop.machine.roster.grant(live, self.slots - len(self.executing))
        for assigned in stream.assignments:
            if assigned.ref not in self.known:
                self.received.add(assigned.ref)
        for answer in stream.answers:
            self.finished.discard(answer.ref)
        for stop in stream.stops:
            if stop.ref in self.executing | self.received:
                self.executing.discard(stop.ref)
                self.received.discard(stop.ref)
                self.known.add(stop.ref)
                self.complete(stop.ref, RunEvent.STOP)
        stream.assignments.clear()
        stream.answers.clear()
        stream.stops.clear()

    def beat(self) -> None:
        """Sends a heartbeat, which is answered at once."""
        if self.stream is not None and self._live():
            session = self.shop.machine.sessions.by_id[self.session]
            self.shop.machine.roster.hear(session, self.stream, 1, self.shop.now)
            self.answered = self.shop.boot

    def begin(self) -> None:
        for ref in sorted(self.received):
            self.received.discard(ref)
            self.executing.add(ref)
            self.known.add(ref)
            if self.stream is not None and self._live():
                self.shop.machine.roster.started(self.stream, ref, self.shop.now)

    def finish(self) -> None:
        for ref in sorted(self.executing):
            self.executing.discard(ref)
            self.complete(ref, RunEvent.SUCCEED)

    def complete(self, ref: Ref, event: RunEvent) -> None:
        self.finished.add(ref)
        self.report(ref, event)

    def report(self, ref: Ref, event: RunEvent = RunEvent.SUCCEED) -> None:
        stream = self.stream
        if stream is None or not self._live():
            return

        def answer(accepted: bool, state: RunState | None) -> None:  # noqa: FBT001 - a callback
            stream.answer(ref, state, accepted=accepted)

        ask = Complete(ref.token, event, said(event), answer)
        self.shop.machine.table.ask_or_read(ref.handle, ask)

    def cut(self) -> None:
        """Its stream ends, seen by the owner."""
        if self.stream is not None and self.session:
            session = self.shop.machine.sessions.by_id.get(self.session)
            if session is not None:
                roster = self.shop.machine.roster
                roster.disconnected(session, self.stream, self.shop.now)
        self.stream = None
        self.received.clear()

    def kill(self) -> None:
        self.cut()
        self.alive = False
        self.executing.clear()
        self.finished.clear()
        self.known.clear()

    def check_margin(self) -> None:
        """Ends everything where its session may be lost."""
        if self.shop.boot - self.answered > 24 * SECOND:
            self.cut()
            self.executing.clear()
            self.finished.clear()
            self.session = ""

    def _live(self) -> bool:
        session = self.shop.machine.sessions.by_id.get(self.session)
        return session is not None and session.stream is self.stream and session.greeting is None


def shop_with(*runs: KeyValue) -> Shop:
    shop = Shop()
    for run in runs:
        shop.put(run.key, run.value)
    shop.take_over()
    return shop


def welcomed(shop: Shop, name: str = "one", *, keeps: bool = True, **more: Any) -> Hand:
    """A worker that has been welcomed and has room."""
    hand = Hand(shop, name, **more)
    hand.keeps = keeps
    hand.hello()
    shop.pump()
    hand.read()
    return hand


def at_work(shop: Shop, name: str = "one", *, slots: int = 4) -> Hand:
    """A worker that has been welcomed and has got what there is."""
    hand = welcomed(shop, name, slots=slots)
    shop.pump()
    hand.read()
    return hand
