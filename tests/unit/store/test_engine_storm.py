"""Many callers at once over a slow disk: every answer is true of its own revision (S1, S4, S18).

The history file is the truth. Replayed in order of revision it must explain each answer: what was
committed stands there with exactly its writes, what was refused was so at the revision named, and
revisions respect real time. A watcher that was there all along has seen exactly the history.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass

import pytest
from unit.store.rig import Rig

from sexton.errors import DeadlineExceeded
from sexton_runtime.kv.types import (
    LEASE_PREFIX,
    Compare,
    Delete,
    LeaseRef,
    Op,
    Outcome,
    Put,
    RevisionEvents,
    Target,
    Txn,
    TxnResult,
)
from sexton_sim.loop import SimLoop
from sexton_store.contract import EngineConfig
from sexton_store.disk import Record, WriteBatch
from sexton_store.history import Commit, MemoryHistory, read_lines
from sexton_store.memory_disk import MemoryDisk

KEYS = [b"a/%d" % n for n in range(4)] + [b"b/%d" % n for n in range(3)]
State = dict[bytes, Record]


@dataclass
class Answer:
    """A transaction, its result, and the published revisions between which it was answered."""

    txn: Txn
    result: TxnResult
    before: int
    after: int


class Storm:
    """Callers that want the same few keys, some of them in bulk, some in a hurry."""

    def __init__(self, rig: Rig, chance: random.Random) -> None:
        self.rig = rig
        self.chance = chance
        self.answers: list[Answer] = []
        self.given_up = 0

    def txn(self) -> Txn:
        chance = self.chance
        keys = chance.sample(KEYS, k=chance.randint(1, 3))
        compares = tuple(
            Compare(key, Target.MOD_REVISION, chance.choice([0, 0, self.rig.revision]))
            for key in chance.sample(KEYS, k=chance.choice([0, 0, 1, 2]))
        )
        ops: list[Op] = [
            Put(key, b"%d" % chance.randrange(1_000)) if chance.random() < 0.7 else Delete(key)
            for key in keys
        ]
        return Txn(compares, tuple(ops), tuple(ops[:1]) if chance.random() < 0.2 else ())

    async def caller(self) -> None:
        chance, engine = self.chance, self.rig.engine
        for _ in range(12):
            await asyncio.sleep(chance.uniform(0, 0.05))
            txns = [self.txn() for _ in range(chance.choice([1, 1, 2, 30]))]
            before = self.rig.revision
            try:
                async with asyncio.timeout(chance.choice([None, 0.03])):
                    results = await engine.commit(txns, timeout_s=chance.choice([None, 0.02]))
            except (TimeoutError, DeadlineExceeded):
                self.given_up += 1
                continue
            after = self.rig.revision
            pairs = zip(txns, results, strict=True)
            self.answers += [Answer(txn, result, before, after) for txn, result in pairs]

    async def holder(self, name: str) -> None:
        chance, engine = self.chance, self.rig.engine
        for _ in range(10):
            acquired = await engine.acquire_lease("l", name, 100)
            await asyncio.sleep(chance.uniform(0, 0.2))
            if acquired.granted:
                await engine.renew_leases([LeaseRef("l", acquired.lease.token)])
                await asyncio.sleep(chance.uniform(0, 0.2))
                if chance.random() < 0.5:
                    await engine.release_lease("l", acquired.lease.token)


def replay(commits: list[Commit]) -> dict[int, State]:
    """Gives the state after every revision; each commit must follow from the one before."""
    states: dict[int, State] = {0: {}}
    state: State = {}
    for number, commit in enumerate(commits, start=1):
        assert commit.revision == number
        for change in commit.changes:
            assert state.get(change.key) == change.before
            if change.key.startswith(LEASE_PREFIX):
                assert (change.before is None) != (change.after is None), "S4"
            if change.after is None:
                state.pop(change.key)
            else:
                state[change.key] = change.after
        states[number] = dict(state)
    return states


def is_explained(answer: Answer, commits: list[Commit], states: dict[int, State]) -> bool:
    """Tells whether an answer is true at its revision: as that very commit, or as a mere look."""
    txn, result = answer.txn, answer.result
    if not answer.before <= result.revision <= answer.after:
        return False
    ops = txn.orelse if result.outcome is Outcome.REFUSED else txn.then
    here = states[result.revision]
    if not effects(ops, here) and is_true(answer, here):
        return True
    if result.revision == 0:
        return False
    before = states[result.revision - 1]
    changes = commits[result.revision - 1].changes
    written = [(change.key, change.after and change.after.value) for change in changes]
    return written == effects(ops, before) and is_true(answer, before)


def effects(ops: tuple[Op, ...], state: State) -> list[tuple[bytes, bytes | None]]:
    """Gives what the writes change in a state."""
    return [
        (op.key, op.value if isinstance(op, Put) else None)
        for op in ops
        if isinstance(op, Put) or op.key in state
    ]


def is_true(answer: Answer, state: State) -> bool:
    """Tells whether the outcome follows from the state that was compared."""
    compares, result = answer.txn.compares, answer.result
    found = [state[c.key].mod_revision if c.key in state else 0 for c in compares]
    held = [at == compare.operand for at, compare in zip(found, compares, strict=True)]
    if all(held):
        return result.outcome is Outcome.COMMITTED
    index = held.index(False)
    return result[2:] == (index, found[index]) and result.outcome is Outcome.REFUSED


@pytest.mark.parametrize("seed", range(6))
def test_the_history_explains_every_answer(seed: int) -> None:
    loop = SimLoop()

    async def main() -> None:
        chance = random.Random(seed)
        history = MemoryHistory()
        disk = MemoryDisk(history=history)
        rig = Rig(loop, disk=disk, config=EngineConfig(history=True, max_step_txns=40))
        await rig.start()
        watching = rig.engine.watch(b"")

        async def slow(batch: WriteBatch) -> None:
            await asyncio.sleep(chance.choice([0, 0, 0.005, 0.02, 0.3]))

        disk.before_durable = disk.before_return = slow
        storm = Storm(rig, chance)
        callers = [rig.begin(storm.caller()) for _ in range(12)]
        holders = [rig.begin(storm.holder(f"h{n}")) for n in range(3)]
        await asyncio.gather(*callers, *holders)
        await asyncio.sleep(2)
        commits = list(read_lines(history.lines))
        states = replay(commits)
        for answer in storm.answers:
            assert is_explained(answer, commits, states), answer
        seen: list[RevisionEvents] = []
        while not seen or seen[-1].revision < rig.revision:
            seen += (await anext(watching)).revisions
        assert [entry.revision for entry in seen] == list(range(1, rig.revision + 1))
        for entry, commit in zip(seen, commits, strict=True):
            assert [event.kv.key for event in entry.events] == [c.key for c in commit.changes]
            assert entry.mesh_time_ns == commit.mesh_time_ns
        times = [commit.mesh_time_ns for commit in commits]
        assert times == sorted(times)
        outcomes = Counter(answer.result.outcome for answer in storm.answers)
        assert min(outcomes[Outcome.COMMITTED], outcomes[Outcome.REFUSED], storm.given_up) > 10

    loop.run(main())
