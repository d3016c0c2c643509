"""Faults in the store and its clients that the checker must catch: PROOF's mutants, and more.

Each is a patch for the time of a test. What it breaks is a promise, so a rule of the checker names
it; a mutant that no seed of its budget catches means that the simulation looks away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sexton_runtime.kv.columns import Run, runs_of, txns_of
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.kv.types import LEASE_PREFIX, Outcome, Put, Renewal, Txn
from sexton_sim import workload
from sexton_sim.disks import SimDiskHandle
from sexton_sim.faults import FaultPlan
from sexton_sim.world import Plan
from sexton_store import engine, writer
from sexton_store.disk import DiskFullError
from sexton_store.engine import EmbeddedEngine
from sexton_store.leases import LeaseTable
from sexton_store.machine import Result, Space, Step, result_of
from sexton_store.mesh_clock import MeshClock
from sexton_store.timekeeper import Timekeeper
from sexton_store.watch import WatchHub
from sexton_store.writer import Writer

Patch = Callable[[pytest.MonkeyPatch], None]

SMALL = Plan(duration_s=12, quiet_s=3, clients=2, holders=3, watched=(b"",), pause_s=0.1)


PROOF = (
    "no fence compare",
    "run and cursor in two commits",
    "edit without the state compare",
    "run id without the uid",
    "acknowledged before the commit",
    "lease by wall clock",
    "completion without token compare",
    "a cancel request written without the token copied",
    "a renewal accepted while expiring",
    "a new attempt for an unlisted one before the session ended",
    "a settled notice as the only trigger of a buffered start",
    "catch-up outside the gate",
    "next computed from now after a failover",
    "a reader never closed",
)
"""What must be caught, whatever else is."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    name: str
    patch: Patch
    rules: frozenset[str]
    """Any of these is the right one."""
    proof: str = ""
    """As what PROOF lists it; empty: it does not."""
    plan: Plan = SMALL
    seeds: int = 10


def _fence_is_not_sent(patch: pytest.MonkeyPatch) -> None:
    async def commit(self: HeldLease, txns: Any, *, timeout_s: float | None = None) -> Any:
        return await self._keeper.store.commit(txns, timeout_s=timeout_s)

    patch.setattr(HeldLease, "commit", commit)


def _fence_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    run = Step.run

    def without_fence(self: Step, txns: Run, results: list[Result]) -> None:
        for txn in txns_of([txns]):
            compares = [it for it in txn.compares if not it.key.startswith(LEASE_PREFIX)]
            (unfenced,) = runs_of([txn._replace(compares=tuple(compares))]) or ()
            run(self, unfenced, results)

    patch.setattr(Step, "run", without_fence)


def _acknowledged_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    async def run_once(self: Writer) -> int:
        requests = self._gather()
        if requests:
            step, batch = await self._evaluate(requests, Space.AMPLE)
            self._publish(requests, step)
            if batch is not None:
                try:
                    await self._write(batch, use_reserve=True)
                except DiskFullError:
                    return 0
        return len(requests)

    patch.setattr(Writer, "run_once", run_once)


def _disk_does_not_wait_for_durability(patch: pytest.MonkeyPatch) -> None:
    write = SimDiskHandle.write
    running: set[asyncio.Task[None]] = set()

    async def lie(self: SimDiskHandle, batch: Any, *, use_reserve: bool) -> None:
        for task in list(running):
            if not task.done():
                await task
        running.add(asyncio.create_task(write(self, batch, use_reserve=use_reserve)))

    patch.setattr(SimDiskHandle, "write", lie)


def _lease_by_wall_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timekeeper, "awake_ns", lambda self: self._clock.wall_ns())


def _renewed_while_ending(patch: pytest.MonkeyPatch) -> None:
    def renew(self: LeaseTable, name: str, token: int, awake_ns: int) -> Renewal:
        held = self._held.get(name)
        if held is None or held.token != token:
            return Renewal(renewed=False, remaining_ms=0)
        held.deadline_ns = awake_ns + held.ttl_ms * 1_000_000
        return Renewal(renewed=True, remaining_ms=held.ttl_ms)

    patch.setattr(LeaseTable, "renew", renew)


def _restart_gives_leases_no_time(patch: pytest.MonkeyPatch) -> None:
    load = engine._load_leases

    def forget(disk: Any, time: Any) -> LeaseTable:
        leases = load(disk, time)
        for held in leases._held.values():
            held.deadline_ns = time.awake_ns()
        leases._no_deadline_before_ns = 0
        return leases

    patch.setattr(engine, "_load_leases", forget)


def _holder_counts_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    def extend(self: HeldLease, sent_ns: int) -> None:
        now_ns = self._keeper.clock.boot_ns()
        self._deadline_ns = now_ns + 2 * self._ttl_ns
        self.next_renewal_ns = now_ns + self._ttl_ns // 3

    patch.setattr(HeldLease, "extend", extend)


def _counter_is_written_uncompared(patch: pytest.MonkeyPatch) -> None:
    async def count(self: Any) -> None:
        (kv,) = (await self._store.get([b"count/0"])).kvs
        value = b"%d" % (int(kv.value or b"0") + 1)
        await self._store.commit([Txn(then=(Put(b"count/0", value),))])

    patch.setattr(workload._Client, "_count", count)


def _refused_is_written_all_the_same(patch: pytest.MonkeyPatch) -> None:
    run = Step.run

    def apply(self: Step, txns: Run, results: list[Result]) -> None:
        for piece in txns.pieces(1):
            run(self, piece, results)
            refused = result_of(results[-1]).outcome is Outcome.REFUSED
            if refused and piece.values and b"#" in (piece.values[0][0] or b""):
                keys = [column[0] for column in piece.written]
                values = [column[0] for column in piece.values]
                self._write(keys, values, (), use_reserve=False)

    patch.setattr(Step, "run", apply)


def _reads_are_one_behind(patch: pytest.MonkeyPatch) -> None:
    get = EmbeddedEngine.get
    last: dict[tuple[bytes, ...], Any] = {}

    async def stale(self: EmbeddedEngine, keys: Any, *, keys_only: bool = False) -> Any:
        found = await get(self, keys, keys_only=keys_only)
        earlier, last[tuple(keys)] = last.get(tuple(keys), found), found
        return earlier

    patch.setattr(EmbeddedEngine, "get", stale)


def _unpublished_is_read(patch: pytest.MonkeyPatch) -> None:
    """A snapshot under the revision of before the step that it shows already."""
    patch.setattr(engine._Running, "revision_of", lambda self, _view: self.writer.revision)


def _watch_has_gaps(patch: pytest.MonkeyPatch) -> None:
    publish = WatchHub.publish
    patch.setattr(
        WatchHub,
        "publish",
        lambda self, entries, *more: publish(self, [it for it in entries if it[0] % 23], *more),
    )


def _watch_splits_revisions(patch: pytest.MonkeyPatch) -> None:
    publish = WatchHub.publish

    def half(self: WatchHub, entries: Any, *more: Any) -> None:
        halves = [(revision, mesh_ns, changes[:1]) for revision, mesh_ns, changes in entries]
        publish(self, halves, *more)

    patch.setattr(WatchHub, "publish", half)


def _mesh_time_is_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MeshClock, "now", lambda self, boot_ns, wall_ns: wall_ns)


def _reader_is_never_closed(patch: pytest.MonkeyPatch) -> None:
    get = EmbeddedEngine.get

    leaked: list[Any] = []

    async def leak(self: EmbeddedEngine, keys: Any, *, keys_only: bool = False) -> Any:
        leaked.append(self._disk.view())
        leaked[-1].__enter__()
        return await get(self, keys, keys_only=keys_only)

    patch.setattr(EmbeddedEngine, "get", leak)


def _full_disk_is_not_rolled_back(patch: pytest.MonkeyPatch) -> None:
    """A step without space is acknowledged as if it had been written."""
    write = Writer._write

    async def swallow(self: Writer, batch: Any, *, use_reserve: bool) -> None:
        try:
            await write(self, batch, use_reserve=use_reserve)
        except DiskFullError:
            return

    patch.setattr(writer.Writer, "_write", swallow)


def _often(**weights: float) -> FaultPlan:
    """A plan with these faults alone, and often."""
    none = {name: 0.0 for name in FaultPlan.__dataclass_fields__ if name != "mean_pause_s"}
    return replace(FaultPlan(mean_pause_s=1.0), **{**none, **weights})


MUTANTS = (
    Mutant(
        name="no fence is sent",
        proof="no fence compare",
        patch=_fence_is_not_sent,
        rules=frozenset({"S5"}),
    ),
    Mutant(
        name="the fence is not compared",
        proof="no fence compare",
        patch=_fence_is_not_compared,
        rules=frozenset({"S5"}),
        plan=replace(SMALL, faults=_often(suspend_member=1, cut_both_ways=1, crash_store=1)),
        seeds=20,
    ),
    Mutant(
        name="acknowledged before the commit",
        proof="acknowledged before the commit",
        patch=_acknowledged_before_the_commit,
        rules=frozenset({"S23", "S2"}),
    ),
    Mutant(
        name="the disk does not wait for durability",
        patch=_disk_does_not_wait_for_durability,
        rules=frozenset({"S23", "S2"}),
    ),
    Mutant(
        name="lease by wall clock",
        proof="lease by wall clock",
        patch=_lease_by_wall_clock,
        rules=frozenset({"S4"}),
        plan=replace(SMALL, faults=_often(jump_wall=1)),
    ),
    Mutant(
        name="renewed while ending",
        proof="a renewal accepted while expiring",
        patch=_renewed_while_ending,
        rules=frozenset({"S4"}),
        plan=replace(SMALL, faults=_often(slow_disk=1, cut_both_ways=1, suspend_member=1)),
        seeds=30,
    ),
    Mutant(
        name="a restart gives leases no time",
        patch=_restart_gives_leases_no_time,
        rules=frozenset({"S4"}),
        plan=replace(SMALL, faults=_often(crash_store=1)),
    ),
    Mutant(
        name="the holder counts from the answer",
        patch=_holder_counts_from_the_answer,
        rules=frozenset({"S4"}),
        plan=replace(SMALL, faults=_often(cut_both_ways=1)),
        seeds=20,
    ),
    Mutant(
        name="a counter is written uncompared",
        patch=_counter_is_written_uncompared,
        rules=frozenset({"S1", "S5"}),
    ),
    Mutant(
        name="what is refused is written all the same",
        patch=_refused_is_written_all_the_same,
        rules=frozenset({"S22"}),
        plan=replace(SMALL, clients=5),
    ),
    Mutant(name="reads are one behind", patch=_reads_are_one_behind, rules=frozenset({"S19"})),
    Mutant(
        name="what is not published is read",
        patch=_unpublished_is_read,
        rules=frozenset({"S1", "S18"}),
        plan=replace(SMALL, faults=_often(slow_disk=1)),
    ),
    Mutant(name="a watch has gaps", patch=_watch_has_gaps, rules=frozenset({"S18"})),
    Mutant(
        name="a watch splits revisions", patch=_watch_splits_revisions, rules=frozenset({"S18"})
    ),
    Mutant(
        name="mesh time is the wall clock",
        patch=_mesh_time_is_the_wall_clock,
        rules=frozenset({"S20"}),
        plan=replace(SMALL, faults=_often(jump_wall=1)),
    ),
    Mutant(
        name="a reader is never closed",
        proof="a reader never closed",
        patch=_reader_is_never_closed,
        rules=frozenset({"L9"}),
    ),
    Mutant(
        name="a full disk is not rolled back",
        patch=_full_disk_is_not_rolled_back,
        rules=frozenset({"S2"}),
        plan=replace(SMALL, faults=_often(full_disk=1)),
    ),
)
