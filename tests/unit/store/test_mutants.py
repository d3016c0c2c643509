"""The tests are tested: each of these faults, put into the engine, must be caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conformance.engine import test_leases as leases
from conformance.engine import test_transactions as transactions
from conformance.engine import test_watch as watches
from conformance.engine.worlds import MemoryWorld
from unit.store import test_engine as engine
from unit.store import test_engine_leases as engine_leases
from unit.store import test_engine_storm as engine_storm
from unit.store import test_mesh_clock as mesh_clock

from sexton.errors import SextonError
from sexton_runtime.kv.columns import Run, runs_of, txns_of
from sexton_runtime.kv.types import Target
from sexton_store.leases import AwakeClock, LeaseTable
from sexton_store.machine import Step
from sexton_store.mesh_clock import MeshClock
from sexton_store.requests import AcquireRequest, CommitRequest
from sexton_store.timekeeper import Timekeeper
from sexton_store.watch import WatchHub
from sexton_store.writer import Writer

Patch = pytest.MonkeyPatch
Mutation = Callable[[Patch], None]


def acknowledged_before_the_commit(patch: Patch) -> None:
    evaluate = CommitRequest.evaluate

    def settle_at_once(self: Any, step: Step) -> bool:
        done = evaluate(self, step)
        self.settle()
        return done

    patch.setattr(CommitRequest, "evaluate", settle_at_once)


def watchers_told_before_the_commit(patch: Patch) -> None:
    write = Writer._write
    batch = Writer._batch

    def remember(self: Any, step: Step) -> Any:
        made = batch(self, step)
        self.early = step.entries, step.keys, step.size_bytes
        return made

    async def tell(self: Any, *arguments: Any, **options: Any) -> None:
        self.hub.publish(*self.early)
        await write(self, *arguments, **options)

    patch.setattr(Writer, "early", ([], [], 0), raising=False)
    patch.setattr(Writer, "_batch", remember)
    patch.setattr(Writer, "_write", tell)


def reads_do_not_wait_for_publication(patch: Patch) -> None:
    async def at_once(self: Any, revision: int) -> None:
        return

    patch.setattr(Writer, "published", at_once)


def a_renewal_accepted_while_expiring(patch: Patch) -> None:
    patch.setattr(LeaseTable, "end", lambda self, name, token: None)


def a_token_is_not_compared_when_renewing(patch: Patch) -> None:
    renew = LeaseTable.renew

    def any_token(self: Any, name: str, token: int, awake_ns: int) -> Any:
        held = self._held.get(name)
        return renew(self, name, held.token if held else token, awake_ns)

    patch.setattr(LeaseTable, "renew", any_token)


def leases_by_the_wall_clock(patch: Patch) -> None:
    patch.setattr(Timekeeper, "awake_ns", lambda self: self._clock.wall_ns())


def suspended_time_is_counted(patch: Patch) -> None:
    def count_all(self: Any, monotonic_ns: int) -> int:
        self._awake_ns += max(0, monotonic_ns - self._seen_ns)
        self._seen_ns = monotonic_ns
        return int(self._awake_ns)

    patch.setattr(AwakeClock, "look", count_all)


def a_lease_granted_although_held(patch: Patch) -> None:
    evaluate = AcquireRequest.evaluate

    def replace_whatever_stands(self: Any, step: Step) -> bool:
        self.replaces = step.header(b"leases/" + self._wanted.name.encode())[0]
        return evaluate(self, step)

    patch.setattr(AcquireRequest, "evaluate", replace_whatever_stands)


def no_fence_compare(patch: Patch) -> None:
    run = Step.run

    def without_fence(self: Any, txns: Run, results: Any) -> None:
        for txn in txns_of([txns]):
            compares = [it for it in txn.compares if it.target is not Target.CREATE_REVISION]
            (unfenced,) = runs_of([txn._replace(compares=tuple(compares))]) or ()
            run(self, unfenced, results)

    patch.setattr(Step, "run", without_fence)


def a_refused_transaction_takes_a_revision(patch: Patch) -> None:
    run = Step.run

    def take_one(self: Any, txns: Run, results: Any) -> None:
        for piece in txns.pieces(1):
            before = self.revision
            run(self, piece, results)
            self.revision = max(self.revision, before + 1)

    patch.setattr(Step, "run", take_one)


def a_transaction_does_not_see_its_predecessors(patch: Patch) -> None:
    run = Step.run

    def forgetful(self: Any, txns: Run, results: Any) -> None:
        for piece in txns.pieces(1):
            seen, self.last = self.last, {}
            run(self, piece, results)
            self.last = seen | self.last

    patch.setattr(Step, "run", forgetful)


def a_revision_is_split_for_watchers(patch: Patch) -> None:
    publish = WatchHub.publish

    def split(self: Any, entries: Any, *more: Any) -> None:
        parts = [(at, ns, (change,)) for at, ns, written in entries for change in written]
        publish(self, parts, *more)

    patch.setattr(WatchHub, "publish", split)


def a_watch_from_the_past_starts_now(patch: Patch) -> None:
    start = WatchHub.open

    def start_now(self: Any, prefix: bytes, start_revision: int, *, keys_only: bool) -> Any:
        return start(self, prefix, 0, keys_only=keys_only)

    patch.setattr(WatchHub, "open", start_now)


def late_requests_are_applied(patch: Patch) -> None:
    patch.setattr(Writer, "_drop", lambda self, request: None)
    gather = Writer._gather

    def without_deadlines(self: Any) -> Any:
        for lane in self.lanes._lanes:
            for request in lane:
                request.deadline_s = None
        return gather(self)

    patch.setattr(Writer, "_gather", without_deadlines)


def mesh_time_follows_the_wall_clock_back(patch: Patch) -> None:
    patch.setattr(MeshClock, "now", lambda self, boot_ns, wall_ns: wall_ns)


def on_memory(test: Callable[..., Any]) -> Callable[[], None]:
    return lambda: test(MemoryWorld(None))  # type: ignore[arg-type]


CAUGHT_BY: list[tuple[Mutation, Callable[[], Any]]] = [
    (
        acknowledged_before_the_commit,
        engine.test_nothing_is_told_before_its_commit_has_returned,
    ),
    (
        watchers_told_before_the_commit,
        engine.test_nothing_is_told_before_its_commit_has_returned,
    ),
    (
        reads_do_not_wait_for_publication,
        engine.test_a_read_waits_for_what_its_snapshot_shows_to_be_known,
    ),
    (
        a_renewal_accepted_while_expiring,
        engine_leases.test_no_renewal_once_the_expiry_is_on_its_way,
    ),
    (
        a_token_is_not_compared_when_renewing,
        on_memory(leases.test_replacing_releases_and_acquires_in_two_revisions),
    ),
    (leases_by_the_wall_clock, engine_leases.test_a_jump_of_the_wall_clock_takes_nobodys_lease),
    (suspended_time_is_counted, engine_leases.test_a_stopped_store_takes_nobodys_lease),
    (
        a_lease_granted_although_held,
        on_memory(leases.test_a_held_lease_is_not_given_to_another),
    ),
    (no_fence_compare, on_memory(leases.test_the_fence_refuses_whoever_has_been_replaced)),
    (
        a_refused_transaction_takes_a_revision,
        on_memory(transactions.test_a_refused_transaction_leaves_the_revision_unchanged),
    ),
    (
        a_transaction_does_not_see_its_predecessors,
        on_memory(transactions.test_a_transaction_sees_its_predecessors_in_the_same_commit),
    ),
    (
        a_transaction_does_not_see_its_predecessors,
        lambda: engine_storm.test_the_history_explains_every_answer(0),
    ),
    (
        acknowledged_before_the_commit,
        lambda: engine_storm.test_the_history_explains_every_answer(0),
    ),
    (
        watchers_told_before_the_commit,
        lambda: engine_storm.test_the_history_explains_every_answer(0),
    ),
    (
        a_revision_is_split_for_watchers,
        on_memory(watches.test_a_revision_comes_whole_and_in_the_transactions_order),
    ),
    (
        a_watch_from_the_past_starts_now,
        on_memory(watches.test_after_a_restart_the_window_starts_anew_and_says_so),
    ),
    (
        late_requests_are_applied,
        engine.test_a_suspended_store_applies_nothing_blindly_when_it_wakes,
    ),
    (
        mesh_time_follows_the_wall_clock_back,
        lambda: mesh_clock.test_any_other_step_is_disputed_and_time_goes_on(-3_600 * 10**9),
    ),
]


@pytest.mark.parametrize(
    ("mutation", "test"), [pytest.param(m, t, id=m.__name__) for m, t in CAUGHT_BY]
)
def test_the_mutant_is_caught(
    mutation: Mutation, test: Callable[[], Any], monkeypatch: Patch
) -> None:
    test()
    mutation(monkeypatch)
    with pytest.raises((AssertionError, SextonError, pytest.fail.Exception)):
        test()
