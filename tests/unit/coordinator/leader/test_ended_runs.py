"""Ended runs go as their jobs' rules say, whatever is remembered of them."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import pytest

from sexton.errors import OutcomeUnknown
from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_coordinator.leader import ended_runs
from sexton_coordinator.leader.counters import Counters
from sexton_coordinator.leader.ended_runs import EndedRuns
from sexton_coordinator.leader.tally import NewestRules, Rules, Tally
from sexton_core.policy import Retention
from sexton_records import keys
from sexton_runtime.kv.types import Put, Txn, TxnResult, prefix_end
from sexton_runtime.randomness import SeededRandomness
from sexton_sim.loop import SimLoop
from sexton_store.contract import EngineConfig
from sexton_store.engine import EmbeddedEngine
from sexton_store.memory_disk import MemoryDisk

S = 1_000_000_000
SUCCEEDED, FAILED = run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_STATE_FAILED
JOBS = {"a": (1, 30), "b": (3, 70), "c": (5, 20), "d": (2, 5_000), "e": (30, 40), "f": (4, 4_000)}
"""How many runs of each job are kept, and for how many seconds."""


class Written(NamedTuple):
    end: int
    uid: str
    run_id: str
    dead: bool

    def is_kept(self, newer: int, now: int) -> bool:
        """Whether the rules keep it, where so many of its kind are newer."""
        most, keep_s = JOBS[self.uid]
        factor = 2 if self.dead else 1
        return newer < most * factor and now - self.end <= keep_s * factor * S


class Shard:
    """A shard of ended runs: the leader's mesh and lease, and what was written."""

    coordinator_shards = queue_shards = 1

    def __init__(self, loop: SimLoop, seed: int = 0) -> None:
        self.random = random.Random(seed)
        clock = loop.process("store").clock
        config = EngineConfig(tick_ms=250)
        self.store = EmbeddedEngine(MemoryDisk(), clock, SeededRandomness("store"), config)
        self.written: list[Written] = []
        self.unknown = 0.0
        """The part of the removals whose outcome stays unknown."""
        self.made = NewestRules()
        """Of some jobs it is known what their runs say."""

    def now(self) -> int:
        return self.store.clock().mesh_time_ns

    async def commit(self, txns: Sequence[Txn]) -> tuple[TxnResult, ...]:
        failing = self.random.random() < self.unknown
        if failing and self.random.random() < 0.5:
            raise OutcomeUnknown
        results = await self.store.commit(txns)
        if failing:
            raise OutcomeUnknown
        return results

    async def end(self, uid: str, *, dead: bool = False, ago_s: int = 0) -> None:
        """Ends a run, some time ago."""
        run = Written(self.now() - ago_s * S, uid, f"r{len(self.written):05}", dead)
        self.written.append(run)
        most, keep_s = JOBS[uid]
        if uid in {"a", "c", "d"}:
            self.made.note(uid, cast("Any", Rules(most, keep_s * S)))
        template = pb.RunTemplate(retain_runs=most, retain_ns=keep_s * S, queue="q", job_uid=uid)
        state = FAILED if dead else SUCCEEDED
        record = pb.RunRecord(run_id=run.run_id, state=state, template=template)
        entry = pb.EndedRecord(namespace="default", job=uid, state=state).SerializeToString()
        of = (0, run.end, uid, run.run_id)
        puts = [
            Put(keys.run_key("default", uid, uid, run.run_id), record.SerializeToString()),
            Put(keys.ended_key(*of), entry),
        ]
        if dead:
            puts.append(Put(keys.dead_key(*of), entry))
        await self.store.commit([Txn(then=tuple(puts))])

    async def found(self, prefix: bytes) -> set[str]:
        page = await self.store.scan(prefix, prefix_end(prefix), keys_only=True)
        assert not page.next_token
        return {kv.key.decode().rpartition("/")[2] for kv in page.kvs}

    def kept(self, *, by: int = 0) -> set[str]:
        """What the rules keep, by the time that it will be then."""
        newer: dict[tuple[str, bool], int] = defaultdict(int)
        kept = set()
        for run in sorted(self.written, reverse=True):
            if run.is_kept(newer[run.uid, run.dead], self.now() + by):
                kept.add(run.run_id)
            newer[run.uid, run.dead] += 1
        return kept

    async def assert_as_the_rules_say(self, *, late_s: int = 0) -> None:
        """Nothing is missing, and what is too old or too many for long is gone."""
        left = await self.found(b"runs/")
        assert self.kept() <= left
        assert await self.found(b"ended/") == left
        dead = {run.run_id for run in self.written if run.dead}
        assert await self.found(b"dead/") == left & dead
        if late_s:
            assert left <= self.kept(by=-late_s * S)


def run(scenario: Any, seed: int = 0, **bounds: int) -> None:
    loop = SimLoop()

    async def main() -> None:
        shard = Shard(loop, seed)
        await shard.store.start()
        retention = EndedRuns(
            mesh=cast("Any", shard),
            lease=cast("Any", shard),
            shard=0,
            counters=Counters(),
            made=shard.made,
            **bounds,
        )
        removing = asyncio.create_task(retention.run())
        await scenario(shard)
        removing.cancel()
        await asyncio.gather(removing, return_exceptions=True)
        await shard.store.stop()

    loop.run(main())


@pytest.mark.parametrize(
    ("bounds", "unknown"),
    [
        pytest.param({}, 0.0, id="all is remembered"),
        pytest.param({"most_recent": 4}, 0.0, id="most is found by reading"),
        pytest.param({"most_recent": 30}, 0.3, id="removals fail"),
        pytest.param({"most_jobs": 2}, 0.0, id="too many jobs at once"),
    ],
)
def test_what_the_rules_keep_is_kept_and_the_rest_goes(
    bounds: dict[str, int], unknown: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_runs, "_ENOUGH", 20)
    monkeypatch.setattr(ended_runs, "_BATCH", 15)
    monkeypatch.setattr(ended_runs, "_PAGE", 10)

    async def scenario(shard: Shard) -> None:
        for _ in range(40):  # before its leader's tenure
            await shard.end(shard.random.choice("abcdef"), dead=shard.random.random() < 0.2)
        shard.unknown = unknown
        for second in range(60):
            for _ in range(shard.random.choice((0, 1, 5))):
                await shard.end(shard.random.choice("abcdef"), dead=shard.random.random() < 0.2)
            await asyncio.sleep(1)
            if second % 6 == 0:
                await shard.assert_as_the_rules_say()
        shard.unknown = 0.0
        await asyncio.sleep(45)
        await shard.assert_as_the_rules_say(late_s=45)

    run(scenario, **bounds)


def test_a_run_written_behind_the_counting_takes_none_along_and_goes_when_all_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ended_runs, "_RECOUNT_S", 40.0)

    async def scenario(shard: Shard) -> None:
        await asyncio.sleep(6)
        for _ in range(6):
            await shard.end("f")
        await asyncio.sleep(10)
        await shard.end("f", ago_s=12)
        await shard.end("f", ago_s=5)
        for _ in range(2):
            await shard.end("f")
            await asyncio.sleep(10)
            await shard.assert_as_the_rules_say()
        await asyncio.sleep(30)
        await shard.assert_as_the_rules_say(late_s=30)

    run(scenario)


def test_each_job_is_of_one_share() -> None:
    shares = [Tally(share, 4) for share in range(4)]
    for number in range(100):
        uid = b"job%d" % number
        assert [tally.covers(uid) for tally in shares].count(True) == 1


def test_the_rules_of_what_was_made_are_given_once_and_only_so_many_are_kept() -> None:
    made = NewestRules(most=2)
    for number, uid in enumerate("abcb", 1):
        made.note(uid, Retention(max_runs=number))
    assert made.take("a") is None
    assert made.take("b") == Rules(4, Retention().max_age_ns)
    assert made.take("b") is None
    assert made.take("c") == Rules(3, Retention().max_age_ns)
