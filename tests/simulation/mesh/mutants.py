"""Faults in coordinator, queue and their rules that the checker must catch: PROOF's mutants.

Each is a patch for the time of a test. What it breaks is a promise, so a rule of the checker names
it; a mutant that no seed of its budget catches means that the simulation looks away.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from sexton.v1 import job_pb2
from sexton_coordinator.api import editing
from sexton_coordinator.leader.firing import Firing
from sexton_coordinator.leader.lookout import Lookout
from sexton_core import ids
from sexton_core.policy._gate import Gate
from sexton_core.policy.timeline import Timeline
from sexton_core.words import Reason
from sexton_queue import changes, records
from sexton_queue.entries import Lose
from sexton_queue.roster import Roster
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.kv.types import Txn
from sexton_sim.mesh.executor import Behaviour
from sexton_sim.mesh.plan import MeshFaults, MeshPlan
from sexton_worker.machine import Machine as WorkerMachine

Patch = Callable[[pytest.MonkeyPatch], None]

CALM = MeshFaults(mean_pause_s=0)
SMALL = MeshPlan(duration_s=8, quiet_s=4, pause_s=0.2, session_ms=2_000, jobs=6, faults=CALM)


def often(**weights: float) -> MeshFaults:
    """A plan with these faults alone, and often."""
    none = {name: 0.0 for name in MeshFaults.__dataclass_fields__ if name != "mean_pause_s"}
    return replace(MeshFaults(mean_pause_s=1.0), **{**none, **weights})


def buffering(_rng: random.Random) -> job_pb2.JobSpec:
    """A job that is only triggered, its starts one after the other."""
    command = Behaviour(lasts_s=2.0).command()
    return job_pb2.JobSpec(
        task=job_pb2.Task(shell=job_pb2.ShellTask(command=command)),
        overlap=job_pb2.OVERLAP_POLICY_BUFFER_ALL,
    )


def failing(_rng: random.Random) -> job_pb2.JobSpec:
    """A job whose attempts mostly fail, and are made again at once."""
    command = Behaviour(lasts_s=0.3, fails_p=0.8).command()
    return job_pb2.JobSpec(
        schedules=[job_pb2.Schedule(every=job_pb2.Every(period=Duration(seconds=1)))],
        task=job_pb2.Task(shell=job_pb2.ShellTask(command=command)),
        overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL,
        retry=job_pb2.Retry(max_attempts=10, initial_backoff=Duration(nanos=100_000_000)),
    )


@dataclass(frozen=True, kw_only=True)
class Mutant:
    name: str
    patch: Patch
    rules: frozenset[str]
    """Any of these is the right one."""
    plan: MeshPlan = SMALL
    seeds: int = 10


def _run_and_cursor_in_two_commits(patch: pytest.MonkeyPatch) -> None:
    commit = HeldLease.commit

    async def twice(self: HeldLease, txns: Any, *, timeout_s: float | None = None) -> Any:
        runs = [_only(txn, lambda key: key.startswith(b"active/")) for txn in txns]
        if not any(txn.then for txn in runs) or b"state/" not in b"".join(_keys(txns)):
            return await commit(self, txns, timeout_s=timeout_s)
        await commit(self, [txn for txn in runs if txn.then], timeout_s=timeout_s)
        rest = [_only(txn, lambda key: not key.startswith(b"active/")) for txn in txns]
        return await commit(self, rest, timeout_s=timeout_s)

    patch.setattr(HeldLease, "commit", twice)


def _keys(txns: Any) -> list[bytes]:
    return [op.key for txn in txns for op in txn.then]


def _only(txn: Txn, wanted: Callable[[bytes], bool]) -> Txn:
    return txn._replace(
        compares=tuple(it for it in txn.compares if not it.key.startswith(b"active/")),
        then=tuple(op for op in txn.then if wanted(op.key)),
    )


def _fence_is_not_sent(patch: pytest.MonkeyPatch) -> None:
    async def commit(self: HeldLease, txns: Any, *, timeout_s: float | None = None) -> Any:
        return await self._keeper.store.commit(txns, timeout_s=timeout_s)

    patch.setattr(HeldLease, "commit", commit)


def _edit_without_state(patch: pytest.MonkeyPatch) -> None:
    compares = editing.compares
    patch.setattr(editing, "compares", lambda job: compares(job)[:1])


def _run_id_without_uid(patch: pytest.MonkeyPatch) -> None:
    decide = import_module("sexton_core.policy.decide")  # the package has a function of that name
    patch.setattr(
        decide, "scheduled_run_id", lambda _uid, nominal: ids.scheduled_run_id("a" * 24, nominal)
    )


def _completion_without_token(patch: pytest.MonkeyPatch) -> None:
    """With a worker that goes on reporting what it has been told is no longer its own."""
    complete, revoke = changes.complete, WorkerMachine._revoke

    def keep(self: WorkerMachine, ref: Any) -> None:
        attempt = self.attempts.get(ref.token)
        if attempt is None or attempt.completion is None:
            revoke(self, ref)

    patch.setattr(WorkerMachine, "_revoke", keep)
    patch.setattr(
        changes, "complete", lambda run, _token, event, now: complete(run, run.token, event, now)
    )


def _cancel_without_token(patch: pytest.MonkeyPatch) -> None:
    def move(record: Any, run: Any) -> Any:
        changed = records.RunRecord()
        changed.CopyFrom(record)
        records.update_record(changed, run._replace(token=0))
        return changed

    patch.setattr(records, "move_record", move)


def _new_attempt_for_an_unlisted_one(patch: pytest.MonkeyPatch) -> None:
    welcome = Roster._welcome

    def lose(self: Roster, session: Any, stream: Any, held: Any) -> None:
        welcome(self, session, stream, held)
        for entry in session.unsent.values():
            entry.asks.append(Lose(session.id, "it was not listed"))
            self.table.todo[entry.key] = entry
        session.unsent.clear()

    patch.setattr(Roster, "_welcome", lose)


def _notice_is_the_only_trigger(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Lookout) -> Any:
        return set()

    patch.setattr(Lookout, "find_waiting", nothing)


def _catch_up_outside_the_gate(patch: pytest.MonkeyPatch) -> None:
    admit = Gate.admit

    def past(self: Gate, start: Any) -> Any:
        if start.reason is Reason.CAUGHT_UP:
            return self._fire(start)
        return admit(self, start)

    patch.setattr(Gate, "admit", past)


def _next_from_now_after_a_failover(patch: pytest.MonkeyPatch) -> None:
    take = Firing._take_loaded

    def forget(self: Firing, known: Any, loaded: Any) -> None:
        now, state = self._mesh.now(), loaded.state
        if state.paused_at is None and state.armed is not None and state.armed < now:
            armed = Timeline(loaded.job, state.rules).next_after(now)
            state = state._replace(cursor=max(now, state.cursor), armed=armed)
        take(self, known, loaded._replace(state=state))

    patch.setattr(Firing, "_take_loaded", forget)


def _assigned_without_its_job(patch: pytest.MonkeyPatch) -> None:
    assign = records.assign_txn

    def unguarded(*args: Any, **kwargs: Any) -> Txn:
        txn = assign(*args, **kwargs)
        return txn._replace(compares=txn.compares[:1])

    patch.setattr(records, "assign_txn", unguarded)


MUTANTS = (
    Mutant(
        name="run and cursor in two commits",
        patch=_run_and_cursor_in_two_commits,
        rules=frozenset({"S8"}),
    ),
    Mutant(name="no fence is sent", patch=_fence_is_not_sent, rules=frozenset({"S5"})),
    Mutant(name="edit without the state", patch=_edit_without_state, rules=frozenset({"S5"})),
    Mutant(name="run id without the uid", patch=_run_id_without_uid, rules=frozenset({"S6"})),
    Mutant(
        name="completion without the token",
        patch=_completion_without_token,
        rules=frozenset({"S11"}),
        plan=replace(
            SMALL,
            session_ms=30_000,
            spec=failing,
            faults=replace(often(reset=1, sever=1), mean_pause_s=0.2),
        ),
    ),
    Mutant(name="cancel without the token", patch=_cancel_without_token, rules=frozenset({"S11"})),
    Mutant(
        name="a new attempt for an unlisted one",
        patch=_new_attempt_for_an_unlisted_one,
        rules=frozenset({"S9", "S10"}),
        plan=replace(SMALL, duration_s=20, faults=often(reset=1, rough_network=1)),
        seeds=20,
    ),
    Mutant(
        name="a notice is the only trigger of a buffered start",
        patch=_notice_is_the_only_trigger,
        rules=frozenset({"L3"}),
        plan=replace(
            SMALL,
            duration_s=15,
            quiet_s=40,
            jobs=12,
            pause_s=1.0,
            spec=buffering,
            faults=replace(often(crash_member=1), mean_pause_s=0.5),
        ),
    ),
    Mutant(
        name="catch-up outside the gate",
        patch=_catch_up_outside_the_gate,
        rules=frozenset({"S14"}),
        plan=replace(SMALL, duration_s=15, faults=often(crash_store=1)),
        seeds=20,
    ),
    Mutant(
        name="next computed from now after a failover",
        patch=_next_from_now_after_a_failover,
        rules=frozenset({"S8"}),
        plan=replace(SMALL, duration_s=15, faults=often(crash_member=1)),
    ),
    Mutant(
        name="assigned without its job",
        patch=_assigned_without_its_job,
        rules=frozenset({"S5", "S13"}),
    ),
)
