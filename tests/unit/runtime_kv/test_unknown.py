from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from sexton.errors import OutcomeUnknown, Unavailable
from sexton_runtime.clock import Clock
from sexton_runtime.kv.types import (
    Compare,
    Delete,
    Outcome,
    Put,
    Snapshot,
    Target,
    Txn,
    TxnResult,
    absent,
    fence,
)
from sexton_runtime.kv.unknown import Proof, commit_resolved, created, resolve, written
from sexton_runtime.randomness import SeededRandomness
from sexton_sim.loop import SimLoop
from sexton_store.engine import EmbeddedEngine
from sexton_store.memory_disk import MemoryDisk

RANDOMNESS = SeededRandomness(7)
CREATE = Txn((absent(b"run/1"),), (Put(b"run/1", b"ours"),))


class LossyStore(EmbeddedEngine):
    """A store whose answers to the next commits are lost, after the request was, or was not, done.

    What was not done is a ghost: it is done when the test says so.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(MemoryDisk(), clock, SeededRandomness(1))
        self.losses: list[str] = []
        self.ghosts: list[tuple[Txn, ...]] = []
        self.unreachable = False

    async def commit(
        self, txns: Sequence[Txn], *, timeout_s: float | None = None
    ) -> tuple[TxnResult, ...]:
        if self.unreachable:
            raise Unavailable
        loss = self.losses.pop(0) if self.losses else "none"
        if loss == "request":
            self.ghosts.append(tuple(txns))
            raise OutcomeUnknown
        results = await super().commit(txns, timeout_s=timeout_s)
        if loss == "answer":
            raise OutcomeUnknown
        return results

    async def get(self, keys: Sequence[bytes], *, keys_only: bool = False) -> Snapshot:
        if self.unreachable:
            raise Unavailable
        return await super().get(keys, keys_only=keys_only)

    async def let_ghosts_arrive(self) -> list[Outcome]:
        ghosts, self.ghosts = self.ghosts, []
        return [(await self.commit(ghost))[0].outcome for ghost in ghosts]


class Story:
    """A lossy store on a virtual loop."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.store = LossyStore(self.loop.system.clock)

    def tell(self, story: Callable[[LossyStore], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.store.start()
            await story(self.store)
            await self.store.stop()

        self.loop.run(main())


async def resolved(store: LossyStore, txn: Txn, proof: Proof, timeout_s: float = 30.0) -> TxnResult:
    return await commit_resolved(
        store, txn, proof=proof, randomness=RANDOMNESS, timeout_s=timeout_s
    )


async def ghosts_do_nothing(store: LossyStore) -> None:
    before = store.status().revision
    assert await store.let_ghosts_arrive() in ([], [Outcome.REFUSED], [Outcome.TOO_LATE])
    assert store.status().revision == before


def test_an_answer_that_arrives_is_given_as_it_is() -> None:
    async def story(store: LossyStore) -> None:
        proof = written(CREATE, b"run/1")
        await store.commit([Txn(then=(Put(b"run/1", b"theirs"),))])
        assert await resolved(store, CREATE, proof) == TxnResult(Outcome.REFUSED, 1, 0, 1)
        await store.commit([Txn(then=(Delete(b"run/1"),))])
        assert await resolved(store, CREATE, proof) == TxnResult(Outcome.COMMITTED, 3)

    Story().tell(story)


def test_to_ask_for_the_same_again_is_answered_with_what_was_done() -> None:
    async def story(store: LossyStore) -> None:
        proof = written(CREATE, b"run/1")
        store.losses = ["request"]
        with pytest.raises(OutcomeUnknown):
            await store.commit([CREATE])
        assert await store.let_ghosts_arrive() == [Outcome.COMMITTED]
        for _ in range(2):
            assert await resolved(store, CREATE, proof) == TxnResult(Outcome.COMMITTED, 1)
        assert store.status().revision == 1

    Story().tell(story)


def test_a_lost_answer_to_an_applied_transaction_is_found_out() -> None:
    async def story(store: LossyStore) -> None:
        store.losses = ["answer"]
        result = await resolved(store, CREATE, written(CREATE, b"run/1"))
        assert result == TxnResult(Outcome.COMMITTED, 1)
        assert store.status().revision == 1

    Story().tell(story)


def test_a_lost_request_is_sent_again_and_its_ghost_does_nothing() -> None:
    async def story(store: LossyStore) -> None:
        store.losses = ["request", "request", "answer"]
        result = await resolved(store, CREATE, written(CREATE, b"run/1"))
        assert result == TxnResult(Outcome.COMMITTED, 1)
        assert await store.let_ghosts_arrive() == [Outcome.REFUSED, Outcome.REFUSED]
        assert store.status().revision == 1

    Story().tell(story)


def test_a_transaction_that_was_overtaken_is_refused_for_good() -> None:
    async def story(store: LossyStore) -> None:
        await store.commit([Txn(then=(Put(b"state", b"1"),))])
        txn = Txn((Compare(b"state", Target.MOD_REVISION, 1),), (Put(b"state", b"ours"),))
        store.losses = ["request"]
        resolving = asyncio.ensure_future(resolved(store, txn, written(txn, b"state")))
        await asyncio.sleep(0)
        await store.commit([Txn(then=(Put(b"state", b"theirs"),))])
        assert await resolving == TxnResult(Outcome.REFUSED, 2, 0, 2)
        await ghosts_do_nothing(store)

    Story().tell(story)


def test_a_lost_lease_makes_the_refusal_final() -> None:
    async def story(store: LossyStore) -> None:
        token = (await store.acquire_lease("l", "holder", 10_000)).lease.token
        txn = Txn((absent(b"run/1"), fence("l", token)), (Put(b"run/1", b"ours"),))
        store.losses = ["request"]
        resolving = asyncio.ensure_future(resolved(store, txn, written(txn, b"run/1")))
        await asyncio.sleep(0)
        await store.release_lease("l", token)
        result = await resolving
        assert (result.outcome, result.failed_compare) == (Outcome.REFUSED, 1)
        await ghosts_do_nothing(store)

    Story().tell(story)


def test_absence_alone_never_makes_a_refusal_final() -> None:
    async def story(store: LossyStore) -> None:
        store.losses = ["request"]
        proof = written(CREATE, b"run/1")
        resolving = asyncio.ensure_future(resolved(store, CREATE, proof, timeout_s=5))
        await asyncio.sleep(0)
        await store.commit([Txn(then=(Put(b"run/1", b"theirs"),))])
        with pytest.raises(OutcomeUnknown):
            await resolving
        # And rightly so: the ghost is applied once the other has gone.
        await store.commit([Txn(then=(Delete(b"run/1"),))])
        assert await store.let_ghosts_arrive() == [Outcome.COMMITTED]

    Story().tell(story)


def test_the_end_of_its_time_makes_a_refusal_final() -> None:
    async def story(store: LossyStore) -> None:
        until_ns = store.clock().mesh_time_ns + 1_000_000_000
        txn = CREATE._replace(not_after_ns=until_ns)
        store.losses = ["request"]
        resolving = asyncio.ensure_future(resolved(store, txn, written(txn, b"run/1")))
        await asyncio.sleep(0)
        await store.commit([Txn(then=(Put(b"run/1", b"theirs"),))])
        assert (await resolving).outcome is Outcome.TOO_LATE
        await store.commit([Txn(then=(Delete(b"run/1"),))])
        await ghosts_do_nothing(store)

    Story().tell(story)


def test_a_proof_by_existence_holds_after_others_have_gone_on() -> None:
    async def story(store: LossyStore) -> None:
        await store.commit([Txn(then=(Put(b"state", b"1"),))])
        compares = (Compare(b"state", Target.MOD_REVISION, 1), absent(b"active/1"))
        txn = Txn(compares, (Put(b"state", b"2"), Put(b"active/1", b"ours")))
        store.losses = ["answer"]
        proof = created(b"active/1", b"ended/1")
        resolving = asyncio.ensure_future(resolved(store, txn, proof))
        await asyncio.sleep(0.001)
        await store.commit([Txn(then=(Delete(b"active/1"), Put(b"ended/1", b"done")))])
        assert await resolving == TxnResult(Outcome.COMMITTED, 3)
        assert store.status().revision == 3

    Story().tell(story)


def test_a_store_that_stays_away_leaves_it_unknown_within_the_time_given() -> None:
    async def story(store: LossyStore) -> None:
        store.losses = ["request"]
        loop = asyncio.get_running_loop()
        started = loop.time()
        resolving = asyncio.ensure_future(
            resolved(store, CREATE, written(CREATE, b"run/1"), timeout_s=10)
        )
        await asyncio.sleep(0)
        store.unreachable = True
        with pytest.raises(OutcomeUnknown, match="10 s"):
            await resolving
        assert loop.time() - started == pytest.approx(10)

    Story().tell(story)


def test_what_was_never_sent_is_reported_as_such() -> None:
    async def story(store: LossyStore) -> None:
        store.unreachable = True
        with pytest.raises(Unavailable) as caught:
            await resolved(store, CREATE, written(CREATE, b"run/1"))
        assert type(caught.value) is Unavailable

    Story().tell(story)


def test_many_that_were_committed_together_are_resolved_one_by_one() -> None:
    async def story(store: LossyStore) -> None:
        txns = [
            Txn((absent(b"run/%d" % number),), (Put(b"run/%d" % number, b"ours"),))
            for number in range(3)
        ]
        await store.commit([Txn(then=(Put(b"unrelated", b""),))])
        store.losses = ["answer"]
        with pytest.raises(OutcomeUnknown):
            await store.commit(txns)
        results = [
            await resolve(store, txn, proof=written(txn, txn.then[0].key), randomness=RANDOMNESS)
            for txn in txns
        ]
        assert results == [TxnResult(Outcome.COMMITTED, revision) for revision in (2, 3, 4)]
        assert store.status().revision == 4

    Story().tell(story)


@pytest.mark.parametrize(
    "txn",
    [
        Txn(then=(Put(b"k", b"v"),)),
        Txn((absent(b"other"),), (Put(b"k", b"v"),)),
        Txn((fence("l", 3),), (Put(b"k", b"v"),)),
        Txn((Compare(b"k", Target.CREATE_REVISION, 3),), (Put(b"k", b"v"),)),
        Txn((Compare(b"k", Target.EXISTS, True),), (Put(b"k", b"v"),)),
        Txn((Compare(b"k", Target.VALUE, b"u"),), (Put(b"k", b"v"),)),
        Txn((absent(b"k"),), (Delete(b"k"),)),
        Txn((absent(b"k"),), (Put(b"k", b"v"),), (Put(b"j", b"v"),)),
    ],
)
def test_a_transaction_that_could_be_applied_twice_is_not_accepted(txn: Txn) -> None:
    async def story(store: LossyStore) -> None:
        proof = Proof(keys=(b"k",), revision=lambda _: 0)
        with pytest.raises(AssertionError):
            await resolved(store, txn, proof)

    Story().tell(story)


@pytest.mark.parametrize(
    "txn",
    [
        Txn((absent(b"k"),), (Put(b"k", b"v"),)),
        Txn((Compare(b"k", Target.EXISTS, False),), (Put(b"k", b"v"),)),
        Txn((Compare(b"k", Target.VERSION, 0),), (Put(b"k", b"v"),)),
        Txn((Compare(b"k", Target.CREATE_REVISION, 0),), (Put(b"k", b"v"),)),
    ],
)
def test_every_way_to_say_absent_makes_a_creation_safe_to_repeat(txn: Txn) -> None:
    async def story(store: LossyStore) -> None:
        store.losses = ["answer", "answer"]
        assert await resolved(store, txn, written(txn, b"k")) == TxnResult(Outcome.COMMITTED, 1)

    Story().tell(story)
