"""The engine against a simple model of its own, with restarts, in random order (hypothesis).

The model knows nothing of steps, overlays, groups or windows: a dictionary, a list of all changes,
one number. It is stated here independently of `sexton_store.machine`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from unit.examples import examples
from unit.store.rig import Gate, Rig

from sexton_runtime.kv.types import (
    Compare,
    Delete,
    KeyValue,
    LeaseRef,
    Op,
    Outcome,
    Put,
    Target,
    Txn,
    TxnResult,
    lease_key,
)
from sexton_sim.loop import SimLoop
from sexton_store.cluster import encode_lease
from sexton_store.watch import Watcher

T = TypeVar("T")
KEYS = [b"a/1", b"a/2", b"b/1", b"b"]
NAMES = ["l/1", "l/2"]
HOLDERS = ["x", "y"]
TTL_MS = 1_000


@dataclass
class Model:
    """What the store must be."""

    revision: int = 0
    kvs: dict[bytes, KeyValue] = field(default_factory=dict)
    log: list[tuple[int, tuple[tuple[bytes, KeyValue | None], ...]]] = field(default_factory=list)

    def get(self, key: bytes) -> KeyValue:
        return self.kvs.get(key, KeyValue(key, b"", 0, 0, 0))

    def holds(self, compare: Compare) -> bool:
        kv = self.get(compare.key)
        actual: dict[Target, object] = {
            Target.CREATE_REVISION: kv.create_revision,
            Target.MOD_REVISION: kv.mod_revision,
            Target.VERSION: kv.version,
            Target.EXISTS: compare.key in self.kvs,
            Target.VALUE: kv.value if compare.key in self.kvs else None,
        }
        return actual[compare.target] == compare.operand

    def write(self, ops: tuple[Op, ...]) -> None:
        ops = tuple(op for op in ops if isinstance(op, Put) or op.key in self.kvs)
        if not ops:
            return
        self.revision += 1
        changes: list[tuple[bytes, KeyValue | None]] = []
        for op in ops:
            if isinstance(op, Put):
                old = self.get(op.key)
                created = old.create_revision or self.revision
                kv = KeyValue(op.key, op.value, created, self.revision, old.version + 1)
                self.kvs[op.key] = kv
                changes.append((op.key, kv))
            else:
                del self.kvs[op.key]
                changes.append((op.key, None))
        self.log.append((self.revision, tuple(changes)))

    def commit(self, txn: Txn) -> TxnResult:
        for index, compare in enumerate(txn.compares):
            if not self.holds(compare):
                found = self.get(compare.key).mod_revision
                self.write(txn.orelse)
                return TxnResult(Outcome.REFUSED, self.revision, index, found)
        self.write(txn.then)
        return TxnResult(Outcome.COMMITTED, self.revision)


values = st.sampled_from([b"", b"1", b"2"])
puts = st.builds(Put, st.sampled_from(KEYS), values)
deletes = st.builds(Delete, st.sampled_from(KEYS))
branches = st.lists(puts | deletes, max_size=3, unique_by=lambda op: op.key).map(tuple)


@st.composite
def compares(draw: st.DrawFn) -> Compare:
    key = draw(st.sampled_from([*KEYS, lease_key(NAMES[0])]))
    target = draw(st.sampled_from(Target))
    if target is Target.EXISTS:
        return Compare(key, target, draw(st.booleans()))
    if target is Target.VALUE:
        return Compare(key, target, draw(values))
    if target is Target.VERSION:
        return Compare(key, target, draw(st.integers(0, 3)))
    return Compare(key, target, draw(st.integers(0, 40)))


conditions = st.lists(compares(), max_size=2).map(tuple)
txns = st.tuples(conditions, branches, branches).map(lambda parts: Txn(*parts))


class EngineAgainstModel(RuleBasedStateMachine):
    """Every rule does the same to both and compares the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = SimLoop()
        self.rig = Rig(self.loop)
        self.run(self.rig.start())
        self.model = Model()
        self.tokens: dict[str, int] = {}
        self.issued: list[int] = []
        self.watchers: list[tuple[Watcher, bytes, int]] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        result: T = self.loop.run_until_complete(work)
        return result

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return self.run(self.rig.do(work))

    @rule(batch=st.lists(txns, min_size=1, max_size=4))
    def commit(self, batch: list[Txn]) -> None:
        expected = tuple(map(self.model.commit, batch))
        assert self.call(self.rig.engine.commit(batch)) == expected

    @rule(batch=st.lists(txns, min_size=2, max_size=6))
    def commit_at_once(self, batch: list[Txn]) -> None:
        """Callers that do not wait for each other: taken in the order in which they came."""

        async def all_at_once() -> list[tuple[TxnResult, ...]]:
            calls = [self.rig.begin(self.rig.engine.commit([txn])) for txn in batch]
            return await asyncio.gather(*calls)

        expected = [(self.model.commit(txn),) for txn in batch]
        assert self.run(all_at_once()) == expected

    @rule(name=st.sampled_from(NAMES), holder=st.sampled_from(HOLDERS), replace=st.booleans())
    def acquire(self, name: str, holder: str, *, replace: bool) -> None:
        standing = self.tokens.get(name, 0)
        replaces = standing if replace else 0
        asked = self.rig.engine.acquire_lease(name, holder, TTL_MS, replaces=replaces)
        acquired = self.call(asked)
        assert acquired.granted == (not standing or replace)
        if acquired.granted:
            if standing:
                self.model.write((Delete(lease_key(name)),))
            self.model.write((Put(lease_key(name), encode_lease(holder, TTL_MS, b"")),))
            self.tokens[name] = self.model.revision
            assert all(token < acquired.lease.token for token in self.issued)
            self.issued.append(acquired.lease.token)
        assert acquired.lease.token == self.tokens[name]

    @rule(name=st.sampled_from(NAMES), off=st.integers(-1, 1))
    def release(self, name: str, off: int) -> None:
        token = max(1, self.tokens.get(name, 1) + off)
        is_own = self.tokens.get(name) == token
        if is_own:
            self.model.write((Delete(lease_key(name)),))
            del self.tokens[name]
        released = self.call(self.rig.engine.release_lease(name, token))
        assert released == (self.model.revision if is_own else 0)

    @rule(name=st.sampled_from(NAMES), off=st.integers(-1, 1))
    def renew(self, name: str, off: int) -> None:
        token = max(1, self.tokens.get(name, 1) + off)
        (renewal,) = self.call(self.rig.engine.renew_leases([LeaseRef(name, token)]))
        assert renewal.renewed == (self.tokens.get(name) == token)

    @precondition(lambda self: self.tokens)
    @rule()
    def let_leases_expire(self) -> None:
        self.run(asyncio.sleep(TTL_MS / 1_000 + 0.06))
        for name in sorted(self.tokens):  # virtual time stood still: all are due at once
            self.model.write((Delete(lease_key(name)),))
        self.tokens.clear()

    @rule()
    def kill(self) -> None:
        self.run(self.rig.kill())
        self.watchers.clear()

    @rule(batch=st.lists(txns, min_size=1, max_size=3), durable=st.booleans())
    def kill_in_the_middle(self, batch: list[Txn], *, durable: bool) -> None:
        """S2: the commit is not answered; all of it is there afterwards, or nothing."""

        async def commit_and_kill() -> None:
            gate = Gate()
            if durable:
                self.rig.disk.before_return = gate
            else:
                self.rig.disk.before_durable = gate
            call = self.rig.begin(self.rig.engine.commit(batch))
            reached = asyncio.ensure_future(gate.reached.wait())
            await asyncio.wait([call, reached], return_when=asyncio.FIRST_COMPLETED)
            reached.cancel()
            await self.rig.kill()

        self.run(commit_and_kill())
        if durable:
            for txn in batch:
                self.model.commit(txn)
        self.watchers.clear()

    @rule(batch=st.lists(txns, min_size=1, max_size=3))
    def commit_without_space(self, batch: list[Txn]) -> None:
        """Whatever would write is refused, the rest is answered as ever."""
        self.rig.disk.jammed = True
        results = self.call(self.rig.engine.commit(batch))
        self.rig.disk.jammed = False
        for txn, result in zip(batch, results, strict=True):
            fresh = copy.deepcopy(self.model)
            expected = fresh.commit(txn)
            if fresh.revision > self.model.revision:
                expected = TxnResult(Outcome.NO_SPACE, self.model.revision)
            assert result == expected

    @rule(prefix=st.sampled_from([b"", b"a/", b"b", b"leases/", b"a/1"]))
    def watch(self, prefix: bytes) -> None:
        watcher = self.rig.engine.watch(prefix)
        batch = self.call(anext(watcher))
        assert (batch.revisions, batch.progress_revision) == ((), self.model.revision)
        self.watchers.append((watcher, prefix, self.model.revision))

    @precondition(lambda self: self.watchers)
    @rule()
    def read_watches(self) -> None:
        """S18: everything below the prefix, in order, whole, once."""
        for index, (watcher, prefix, since) in enumerate(self.watchers):
            self.rig.engine._live.writer.hub.remind()
            batch = self.call(anext(watcher))
            assert batch.progress_revision == self.model.revision
            seen = [
                (entry.revision, [(e.kv.key, e.kv if e.kv.version else None) for e in entry.events])
                for entry in batch.revisions
            ]
            expected = [
                (revision, [c for c in changes if c[0].startswith(prefix)])
                for revision, changes in self.model.log
                if revision > since
            ]
            assert seen == [entry for entry in expected if entry[1]]
            self.watchers[index] = (watcher, prefix, self.model.revision)

    @rule(reverse=st.booleans(), limit=st.integers(1, 3))
    def scan(self, limit: int, *, reverse: bool) -> None:
        found: list[KeyValue] = []
        token = b""
        while True:
            page = self.call(self.rig.engine.scan(limit=limit, reverse=reverse, page_token=token))
            assert page.revision == self.model.revision
            found += page.kvs
            token = page.next_token
            if not token:
                break
        assert found == sorted(self.model.kvs.values(), reverse=reverse)

    @invariant()
    def the_revision_and_the_leases_are_the_models(self) -> None:
        assert self.rig.revision == self.model.revision
        leases = self.call(self.rig.engine.list_leases())
        assert {lease.name: lease.token for lease in leases} == self.tokens


TestEngineAgainstModel = pytest.mark.slow(EngineAgainstModel.TestCase)
TestEngineAgainstModel.settings = settings(
    max_examples=examples(20),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
