"""Faults in coordinator, queue and their rules that the checker must catch: PROOF's mutants.

Each is a patch for the time of a test. What it breaks is a promise, so a rule of the checker names
it; a mutant that no seed of its budget catches means that the simulation looks away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from simulation.mesh.mutant_plans import (
    REPAIRED,
    SMALL,
    Mutant,
    buffering,
    failing,
    lasting,
    often,
)
from simulation.mesh.mutants_ahead import AHEAD

from sexton_coordinator import writes
from sexton_coordinator.api import editing
from sexton_coordinator.leader import steps, tenure
from sexton_coordinator.leader.firing import Firing
from sexton_coordinator.leader.lookout import Lookout
from sexton_coordinator.leader.steps import Planner
from sexton_core import ids
from sexton_core.policy import _one_start, _plan
from sexton_core.policy._gate import Gate
from sexton_core.policy.timeline import Timeline
from sexton_core.words import Reason, RunState
from sexton_queue import changes, records
from sexton_queue.entries import Lose
from sexton_queue.roster import Roster
from sexton_runtime.kv.held_lease import HeldLease, LostBecause
from sexton_runtime.kv.types import Txn
from sexton_sim.mesh.executor import VirtualExecutor
from sexton_store.timekeeper import Timekeeper
from sexton_worker.contract import Ended
from sexton_worker.machine import Machine as WorkerMachine


def _run_and_cursor_in_two_commits(patch: pytest.MonkeyPatch) -> None:
    _commit_runs_first(patch, b"state/")


def _backfill_and_run_in_two_commits(patch: pytest.MonkeyPatch) -> None:
    _commit_runs_first(patch, b"backfills/")


def _commit_runs_first(patch: pytest.MonkeyPatch, rest_of: bytes) -> None:
    commit = HeldLease.commit

    async def twice(self: HeldLease, txns: Any, *, timeout_s: float | None = None) -> Any:
        runs = [_only(txn, lambda key: key.startswith(b"active/")) for txn in txns]
        if not any(txn.then for txn in runs) or rest_of not in b"".join(_keys(txns)):
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
    for module in (decide, _one_start):
        patch.setattr(
            module,
            "scheduled_run_id",
            lambda _uid, nominal: ids.scheduled_run_id("a" * 24, nominal),
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
        changes,
        "complete",
        lambda run, _token, event, now, **more: complete(run, run.token, event, now, **more),
    )


def _cancel_without_token(patch: pytest.MonkeyPatch) -> None:
    right = records.owner_part

    def forget(run: Any, not_before: int) -> records.RunRecord:
        part = right(run, not_before)
        if run.state in (RunState.CANCELLING, RunState.TERMINATING):
            part.token = 0
        return part

    patch.setattr(records, "owner_part", forget)


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


def _late_is_on_time(patch: pytest.MonkeyPatch) -> None:
    for module in (_plan, _one_start):
        patch.setattr(module, "ON_TIME_NS", 1 << 62)


def _next_from_now_after_a_failover(patch: pytest.MonkeyPatch) -> None:
    take = Firing._take_loaded

    def forget(self: Firing, known: Any, loaded: Any) -> None:
        now, state = self._mesh.now(), loaded.state
        if state.paused_at is None and state.armed is not None and state.armed < now:
            armed = Timeline(loaded.job, state.rules).next_after(now)
            state = state._replace(cursor=max(now, state.cursor), armed=armed)
        take(self, known, loaded._replace(state=state))

    patch.setattr(Firing, "_take_loaded", forget)


def _another_body_is_answered(patch: pytest.MonkeyPatch) -> None:
    """Whoever asks under an id again gets the first answer, whatever is asked for."""
    same = b"\0" * 32
    patch.setattr(editing, "body_hash", lambda _request: same)
    patch.setattr(tenure, "body_hash", lambda _request: same)


def _timer_is_left_behind(patch: pytest.MonkeyPatch) -> None:
    delete = writes.Delete

    def keep(key: bytes) -> Any:
        return delete(key + b"/kept") if key.startswith(b"timers/") else delete(key)

    patch.setattr(writes, "Delete", keep)


def _lease_is_not_given_back(patch: pytest.MonkeyPatch) -> None:
    async def forget(self: HeldLease) -> bool:
        self.end(LostBecause.RELEASED)
        return False

    patch.setattr(HeldLease, "release", forget)


def _killed_tasks_live_on(patch: pytest.MonkeyPatch) -> None:
    """Whoever kills a task believes that it is dead, and it goes on to its end."""
    end = VirtualExecutor._end
    alive: set[int] = set()

    def kill(self: VirtualExecutor, token: int) -> None:
        if token in self._running and token not in alive:
            alive.add(token)
            dead = Ended.failure("exit 3", "it was killed")
            context = self._worker.context.copy()
            self._worker.loop.call_soon(self._listener.ended, token, dead, context=context)

    def kill_all(self: VirtualExecutor, _how: str) -> None:
        for token in list(self._running):
            kill(self, token)

    def finish(self: VirtualExecutor, token: int, how: str) -> None:
        if token in alive:
            self._note("ended", self._running.pop(token).order, how=how)
        else:
            end(self, token, how)

    patch.setattr(VirtualExecutor, "kill", kill)
    patch.setattr(VirtualExecutor, "_kill_all", kill_all)
    patch.setattr(VirtualExecutor, "_end", finish)


def _lease_by_wall_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timekeeper, "awake_ns", lambda self: self._clock.wall_ns())


def _assigned_without_its_job(patch: pytest.MonkeyPatch) -> None:
    assign = records.assign_txn

    def unguarded(*args: Any, **kwargs: Any) -> Txn:
        txn = assign(*args, **kwargs)
        return txn._replace(compares=txn.compares[:1])

    patch.setattr(records, "assign_txn", unguarded)


def _letter_stays(patch: pytest.MonkeyPatch) -> None:
    write = Planner._write_proof

    def keep(self: Planner, *args: Any) -> None:
        write(self, *args)
        then = args[-1]
        then[:] = [op for op in then if not op.key.startswith(b"dead/")]

    patch.setattr(Planner, "_write_proof", keep)


def _repeat_forgets(patch: pytest.MonkeyPatch) -> None:
    encode_new = steps.encode_new
    patch.setattr(
        steps, "encode_new", lambda new, *rest: encode_new(new._replace(retry_of=""), *rest)
    )


def _backfill_leaves_out(patch: pytest.MonkeyPatch) -> None:
    backfill = import_module("sexton_core.policy.backfill")
    upcoming = backfill.upcoming
    patch.setattr(backfill, "upcoming", lambda *args: upcoming(*args)[1:])


def _request_in_a_commit_of_its_own(patch: pytest.MonkeyPatch) -> None:
    commit = HeldLease.commit

    async def twice(self: HeldLease, txns: Any, *, timeout_s: float | None = None) -> Any:
        effects = [
            txn._replace(then=tuple(op for op in txn.then if not op.key.startswith(b"requests/")))
            for txn in txns
        ]
        results = await commit(self, effects, timeout_s=timeout_s)
        records = [_only(txn, lambda key: key.startswith(b"requests/")) for txn in txns]
        records = [txn._replace(compares=()) for txn in records if txn.then]
        if records:
            await commit(self, records, timeout_s=timeout_s)
        return results

    patch.setattr(HeldLease, "commit", twice)


MUTANTS = (
    Mutant(
        name="run and cursor in two commits",
        proof="run and cursor in two commits",
        patch=_run_and_cursor_in_two_commits,
        rules=frozenset({"S8"}),
    ),
    Mutant(
        name="a request is recorded in a commit of its own",
        patch=_request_in_a_commit_of_its_own,
        rules=frozenset({"S12"}),
    ),
    Mutant(
        name="a requeued dead letter stays on its list",
        patch=_letter_stays,
        rules=frozenset({"S24"}),
        plan=REPAIRED,
    ),
    Mutant(
        name="a repeat does not say what it repeats",
        patch=_repeat_forgets,
        rules=frozenset({"S24"}),
        plan=REPAIRED,
    ),
    Mutant(
        name="a backfill's run and its progress in two commits",
        patch=_backfill_and_run_in_two_commits,
        rules=frozenset({"S25"}),
        plan=REPAIRED,
    ),
    Mutant(
        name="a backfill passes over a time",
        patch=_backfill_leaves_out,
        rules=frozenset({"S25"}),
        plan=REPAIRED,
    ),
    Mutant(
        name="no fence is sent",
        proof="no fence compare",
        patch=_fence_is_not_sent,
        rules=frozenset({"S5"}),
    ),
    Mutant(
        name="edit without the state",
        proof="edit without the state compare",
        patch=_edit_without_state,
        rules=frozenset({"S5"}),
    ),
    Mutant(
        name="run id without the uid",
        proof="run id without the uid",
        patch=_run_id_without_uid,
        rules=frozenset({"S6"}),
    ),
    Mutant(
        name="completion without the token",
        proof="completion without token compare",
        patch=_completion_without_token,
        rules=frozenset({"S11"}),
        plan=replace(
            SMALL,
            duration_s=30,
            session_ms=60_000,
            jobs=3,
            users=1,
            pause_s=2.0,
            spec=failing,
            faults=replace(often(cut_one_way=1, half_open=1), mean_pause_s=1.5),
        ),
        seeds=40,
    ),
    Mutant(
        name="cancel without the token",
        proof="a cancel request written without the token copied",
        patch=_cancel_without_token,
        rules=frozenset({"S11"}),
    ),
    Mutant(
        name="a new attempt for an unlisted one",
        proof="a new attempt for an unlisted one before the session ended",
        patch=_new_attempt_for_an_unlisted_one,
        rules=frozenset({"S9", "S10"}),
        plan=replace(
            SMALL,
            duration_s=20,
            session_ms=20_000,
            pause_s=0.1,
            faults=replace(often(half_open=1, cut_one_way=1, reset=1), mean_pause_s=0.7),
        ),
        seeds=20,
    ),
    Mutant(
        name="a notice is the only trigger of a buffered start",
        proof="a settled notice as the only trigger of a buffered start",
        patch=_notice_is_the_only_trigger,
        rules=frozenset({"L3"}),
        plan=replace(
            SMALL,
            duration_s=10,
            quiet_s=25,
            jobs=12,
            users=1,
            pause_s=0.7,
            spec=buffering,
            faults=replace(often(crash_owner_before_notice=1), mean_pause_s=0.5),
        ),
    ),
    Mutant(
        name="catch-up outside the gate",
        proof="catch-up outside the gate",
        patch=_catch_up_outside_the_gate,
        rules=frozenset({"S14"}),
        plan=replace(SMALL, duration_s=15, faults=often(crash_store=1)),
        seeds=20,
    ),
    Mutant(
        name="what starts late says that it is on time",
        patch=_late_is_on_time,
        rules=frozenset({"S26"}),
        plan=replace(SMALL, duration_s=15, faults=often(crash_store=1)),
    ),
    Mutant(
        name="next computed from now after a failover",
        proof="next computed from now after a failover",
        patch=_next_from_now_after_a_failover,
        rules=frozenset({"S8"}),
        plan=replace(SMALL, duration_s=15, faults=often(crash_member=1)),
    ),
    Mutant(
        name="a request under another body is answered",
        patch=_another_body_is_answered,
        rules=frozenset({"S12"}),
        plan=replace(SMALL, duration_s=15, users=3, pause_s=0.1),
    ),
    Mutant(
        name="an old timer is left behind",
        patch=_timer_is_left_behind,
        rules=frozenset({"S21"}),
    ),
    Mutant(
        name="a lease is not given back at SIGTERM",
        patch=_lease_is_not_given_back,
        rules=frozenset({"L7"}),
        plan=replace(
            SMALL, duration_s=60, jobs=2, faults=replace(often(stop_member=1), mean_pause_s=10)
        ),
    ),
    Mutant(
        name="killed tasks live on",
        patch=_killed_tasks_live_on,
        rules=frozenset({"S10"}),
        plan=replace(
            SMALL,
            duration_s=40,
            jobs=4,
            spec=lasting,
            faults=replace(often(cut_both_ways=1), mean_pause_s=2),
        ),
    ),
    Mutant(
        name="the mesh's leases by wall clock",
        proof="lease by wall clock",
        patch=_lease_by_wall_clock,
        rules=frozenset({"S4"}),
        plan=replace(SMALL, duration_s=15, faults=often(jump_wall=1)),
    ),
    Mutant(
        name="assigned without its job",
        patch=_assigned_without_its_job,
        rules=frozenset({"S5", "S13"}),
    ),
    *AHEAD,
)
