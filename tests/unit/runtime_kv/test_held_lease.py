from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from sexton import errors
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.held_lease import HeldLease, LostBecause
from sexton_runtime.kv.lease_keeper import LeaseKeeper
from sexton_runtime.kv.types import Compare, Outcome, Put, Target, Txn, TxnResult
from sexton_sim.network import LinkProfile

from .world import World

TTL_S = 3.0


class Candidate:
    """A member that competes for `demo/bell`."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.process = world.member(name)
        self.connected = asyncio.Event()
        self.stopped = asyncio.Event()
        self.client: StoreClient
        self.keeper: LeaseKeeper
        self.life = self.process.spawn(self._live())

    async def _live(self) -> None:
        async with (
            self.world.client(self.name) as client,
            self.world.keeper(self.name, client) as keeper,
        ):
            self.client, self.keeper = client, keeper
            self.connected.set()
            await self.stopped.wait()

    def acquire(self, name: str = "demo/bell", ttl_s: float = TTL_S) -> asyncio.Task[HeldLease]:
        return self.process.spawn(self._acquire(name, ttl_s))

    async def _acquire(self, name: str, ttl_s: float) -> HeldLease:
        await self.connected.wait()
        return await self.keeper.acquire(name, ttl_s=ttl_s)

    async def stop(self) -> None:
        self.stopped.set()
        await self.life


@asynccontextmanager
async def candidates(world: World, *names: str) -> AsyncIterator[list[Candidate]]:
    found = [Candidate(world, name) for name in names]
    for candidate in found:
        await candidate.connected.wait()
    yield found
    for candidate in found:
        if candidate.process.alive:
            await candidate.stop()


def now(world: World) -> float:
    return world.loop.now_ns / 1e9


def test_two_processes_on_one_host_never_take_themselves_for_one() -> None:
    # oban-py #32: the identity was the host's name, and both stayed leader.
    world = World()

    async def main() -> None:
        async with candidates(world, "first", "second") as (first, second):
            assert len(first.keeper.holder) == len(second.keeper.holder) == 32
            assert first.keeper.holder != second.keeper.holder
            held = await first.acquire()
            waiting = second.acquire()
            await asyncio.sleep(60)
            assert held.still_held()
            assert not waiting.done()
            waiting.cancel()

    world.run(main)


def test_leadership_is_what_the_store_answers_and_nothing_else() -> None:
    # oban #1250: every node believed that it had won, because it had tried.
    world = World()

    async def main() -> None:
        async with candidates(world, *"abcdefgh") as contenders:
            tasks = [contender.acquire() for contender in contenders]
            await asyncio.sleep(30)
            winners = [task.result() for task in tasks if task.done()]
            (lease,) = await contenders[0].client.list_leases()
            assert [winner.token for winner in winners] == [lease.token]
            for task in tasks:
                task.cancel()

    world.run(main)


def test_a_token_never_returns() -> None:
    # quartz #107: the same version was seen twice, and both fired.
    world = World()

    async def main() -> None:
        async with candidates(world, "first") as (first,):
            tokens = []
            for _ in range(5):
                held = await first.acquire()
                tokens.append(held.token)
                await held.release()
            assert tokens == sorted(set(tokens))
            assert len(tokens) == 5

    world.run(main)


def test_a_holder_keeps_its_lease_for_as_long_as_it_lives() -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first") as (first,):
            held = await first.acquire()
            await asyncio.sleep(120)
            assert held.still_held()
            (lease,) = await first.client.list_leases()
            assert (lease.token, lease.holder) == (held.token, first.keeper.holder)

    world.run(main)


def test_a_successor_acts_at_once_when_the_lease_is_given_back() -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first", "second") as (first, second):
            held = await first.acquire()
            waiting = second.acquire()
            await asyncio.sleep(1)
            before = now(world)
            await first.stop()
            successor = await waiting
            assert now(world) - before < 0.1
            assert held.lost.is_set()
            assert held.lost_because is LostBecause.RELEASED
            assert successor.token > held.token

    world.run(main)


def test_a_successor_acts_within_the_leases_time_when_its_holder_is_killed() -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first", "second") as (first, second):
            held = await first.acquire()
            waiting = second.acquire()
            await asyncio.sleep(10)
            before = now(world)
            first.process.crash()
            successor = await waiting
            assert TTL_S - 1.1 < now(world) - before < TTL_S + 0.3
            assert successor.token > held.token

    world.run(main)


def test_an_unanswered_renewal_extends_nothing_and_ends_nothing() -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first") as (first,):
            held = await first.acquire()
            await asyncio.sleep(10)
            world.network.partition(["first"], ["store"])
            await asyncio.sleep(0.4 * TTL_S)
            assert held.still_held()
            world.network.heal_all()
            await asyncio.sleep(60)
            assert held.still_held()

    world.run(main)


@pytest.mark.parametrize("seed", range(5))
def test_a_holder_that_is_cut_off_stops_acting_before_the_store_gives_its_lease_away(
    seed: int,
) -> None:
    world = World(seed=seed)

    async def main() -> None:
        async with candidates(world, "first", "second") as (first, second):
            held = await first.acquire()
            waiting = second.acquire()
            await asyncio.sleep(5 + seed / 7)
            (world.network.cut)("store", "first")  # its renewals arrive, the answers do not
            before = now(world)
            await held.lost.wait()
            lost_at = now(world)
            assert held.lost_because is LostBecause.DEADLINE
            assert 0.8 * TTL_S - TTL_S / 3 - 0.1 < lost_at - before < 0.8 * TTL_S + 0.05
            assert not waiting.done()
            with pytest.raises(errors.Fenced):
                held.fence()
            successor = await waiting
            assert now(world) > lost_at
            assert successor.token > held.token
            world.network.heal_all()

    world.run(main)


def test_a_refused_renewal_ends_the_tenure_at_once() -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first", "second") as (first, second):
            held = await first.acquire()
            await second.client.release_lease(held.name, held.token)
            before = now(world)
            await held.lost.wait()
            assert held.lost_because is LostBecause.REFUSED
            assert now(world) - before < TTL_S / 3 + 0.1

    world.run(main)


@pytest.mark.slow
@pytest.mark.parametrize("asleep_s", [0.5 * TTL_S, TTL_S, 3 * TTL_S])
def test_a_holder_that_was_suspended_drops_its_role_before_it_sends_anything(
    asleep_s: float,
) -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first", "second") as (first, second):
            held = await first.acquire()
            sent: list[str] = []

            async def write_forever() -> None:
                number = 0
                while True:
                    number += 1
                    try:
                        (result,) = await held.commit([Txn(then=(Put(b"k", b"%d" % number),))])
                    except errors.Fenced:
                        sent.append("fenced")
                        return
                    sent.append(result.outcome.name)
                    await asyncio.sleep(0.01)

            writing = first.process.spawn(write_forever())
            waiting = second.acquire()
            await asyncio.sleep(5)
            first.process.suspend()
            await asyncio.sleep(asleep_s)
            before = len(sent)
            first.process.resume()
            await asyncio.sleep(1)
            if asleep_s < TTL_S:
                assert held.still_held()
                assert set(sent) == {"COMMITTED"}
                writing.cancel()
                waiting.cancel()
            else:
                assert held.lost_because is LostBecause.DEADLINE
                # One answer may have been on its way; nothing was sent after it woke up.
                assert sent[before:] in (["COMMITTED", "fenced"], ["fenced"])
                assert (await waiting).token > held.token

    world.run(main)


def test_a_write_that_was_ready_before_the_suspension_is_refused_by_its_fence() -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first", "second") as (first, second):
            held = await first.acquire()
            ready = Txn((held.fence(),), (Put(b"k", b"first"),))
            first.process.suspend()
            successor = await second.acquire()
            await successor.commit([Txn(then=(Put(b"k", b"second"),))])
            first.process.resume()
            (result,) = await first.process.spawn(first.client.commit([ready]))
            assert result.outcome is Outcome.REFUSED
            assert result.found_mod_revision == successor.token
            assert (await second.client.get([b"k"])).kvs[0].value == b"second"

    world.run(main)


def test_a_laptop_that_slept_does_not_believe_in_its_lease() -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first", "second") as (first, second):
            held = await first.acquire()
            waiting = second.acquire()
            await asyncio.sleep(1)
            first.process.machine.suspend()
            await waiting
            await asyncio.sleep(60)
            first.process.machine.resume()
            assert not held.still_held()
            assert held.remaining_s() == 0

    world.run(main)


def test_every_write_under_a_lease_carries_its_fence() -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first", "second") as (first, second):
            held = await first.acquire()
            assert held.fence() == Compare(b"leases/demo/bell", Target.CREATE_REVISION, held.token)
            txn = Txn((Compare(b"k", Target.EXISTS, False),), (Put(b"k", b"1"),))
            (done,) = await held.commit([txn])
            assert done == TxnResult(Outcome.COMMITTED, 2)
            (refused,) = await held.commit([txn])
            assert (refused.outcome, refused.failed_compare) == (Outcome.REFUSED, 0)
            assert held.still_held()
            await second.client.release_lease(held.name, held.token)
            (fenced,) = await held.commit([Txn(then=(Put(b"k", b"2"),))])
            assert fenced.outcome is Outcome.REFUSED
            assert held.lost_because is LostBecause.REFUSED
            with pytest.raises(errors.Fenced):
                await held.commit([Txn(then=(Put(b"k", b"3"),))])

    world.run(main)


def test_a_lease_whose_grant_was_not_heard_of_is_taken_up_by_its_holder() -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first") as (first,):
            world.network.cut("store", "first")
            acquiring = first.acquire()
            await asyncio.sleep(0.5)
            world.network.reset("first", "store")  # executed, and the answer was lost
            world.network.heal_all()
            held = await acquiring
            assert held.token == 1
            assert held.still_held()
            await asyncio.sleep(60)
            assert held.still_held()

    world.run(main)


def test_an_earlier_tenure_does_not_come_back_to_life() -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first") as (first,):
            held = await first.acquire(ttl_s=60)
            world.network.cut("store", "first")
            await held.lost.wait()  # by its own deadline; the store has heard every renewal
            world.network.heal_all()
            (standing,) = await first.process.spawn(first.client.list_leases())
            assert standing.token == held.token
            again = await first.acquire(ttl_s=60)
            assert again.token > held.token
            assert again.still_held()
            assert not held.still_held()

    world.run(main)


def test_a_restart_of_the_store_costs_no_lease() -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first") as (first,):
            held = await first.acquire(ttl_s=10)
            await asyncio.sleep(20)
            world.crash_store()
            await asyncio.sleep(2)
            await world.start_store()
            await asyncio.sleep(30)
            assert held.still_held()
            (lease,) = await first.process.spawn(first.client.list_leases())
            assert lease.token == held.token

    world.run(main)


def test_a_restore_ends_every_tenure() -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first") as (first,):
            held = await first.acquire(ttl_s=60)
            world.crash_store()
            world.disk = type(world.disk)()
            await world.start_store()
            await held.lost.wait()
            assert held.lost_because is LostBecause.REFUSED
            with pytest.raises(errors.WrongIncarnation):
                await first.acquire("another")

    world.run(main)


@pytest.mark.slow
def test_five_hundred_leases_are_renewed_in_one_call() -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first") as (first,):
            calls: list[int] = []
            renew = first.client.renew_leases

            async def counted(leases: list[object]) -> object:
                calls.append(len(leases))
                return await renew(leases)  # type: ignore[arg-type]

            first.client.renew_leases = counted  # type: ignore[method-assign,assignment]
            held = await asyncio.gather(*(first.acquire(f"l/{i}") for i in range(500)))
            await asyncio.sleep(2)
            calls.clear()
            await asyncio.sleep(3 * TTL_S)
            assert 8 <= len(calls) <= 10
            assert set(calls) == {500}
            assert all(lease.still_held() for lease in held)

    world.run(main)


def test_one_process_asks_for_a_lease_once() -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first") as (first,):
            held = await first.acquire()
            with pytest.raises(AssertionError):
                await first.acquire()
            await held.release()
            assert (await first.acquire()).still_held()

    world.run(main)


def test_a_lease_that_is_granted_to_a_stopping_process_is_given_back() -> None:
    world = World()

    async def main() -> None:
        async with candidates(world, "first", "second") as (first, second):
            acquiring = first.acquire(ttl_s=60)
            await asyncio.sleep(0.0003)  # the question is under way
            await first.process.spawn(first.keeper.stop())
            with pytest.raises(errors.Unavailable):
                await acquiring
            async with asyncio.timeout(1):
                await second.acquire()

    world.run(main)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_bad_network_costs_tenures_but_never_gives_two_holders(seed: int) -> None:
    profile = LinkProfile(
        latency_s=0.01, jitter_s=0.05, stall_p=0.1, reset_p=0.02, duplicate_p=0.05
    )
    world = World(seed=seed, profile=profile)
    tenures: list[tuple[int, float, float]] = []

    async def hold(candidate: Candidate) -> None:
        await candidate.connected.wait()
        while True:
            held = await candidate.keeper.acquire("demo/bell", ttl_s=1.0)
            begun = now(world)
            while held.still_held() and now(world) - begun < 4:
                until = now(world)
                await asyncio.sleep(0.01)
            tenures.append((held.token, begun, until))
            await held.release()

    async def main() -> None:
        async with candidates(world, "first", "second", "third") as contenders:
            holding = [contender.process.spawn(hold(contender)) for contender in contenders]
            await asyncio.sleep(60)
            for task in holding:
                task.cancel()

    world.run(main)
    assert len(tenures) > 10
    by_token = sorted(tenures)
    assert [begun for _, begun, _ in by_token] == sorted(begun for _, begun, _ in by_token)
    assert all(one[2] <= next_[1] for one, next_ in pairwise(by_token))
    assert len({token for token, _, _ in tenures}) == len(tenures)
