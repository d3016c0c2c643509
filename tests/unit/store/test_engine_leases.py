"""Leases against slow, full and failing writes, suspended stores and jumping clocks (S3, S4)."""

from __future__ import annotations

import asyncio

import pytest
from unit.store.rig import Rig, simulated

from sexton.errors import NoSpace, Overloaded
from sexton_runtime.kv.types import Delete, LeaseRef, Outcome, Put, Txn, fence
from sexton_sim.loop import SimLoop
from sexton_store.contract import EngineConfig
from sexton_store.requests import BREATH_OPS

S = 1_000_000_000


async def acquire(rig: Rig, holder: str = "me", ttl_ms: int = 1_000, name: str = "l") -> int:
    acquired = await rig.do(rig.engine.acquire_lease(name, holder, ttl_ms))
    assert acquired.granted
    return acquired.lease.token


async def renew(rig: Rig, token: int, name: str = "l") -> bool:
    return (await rig.do(rig.engine.renew_leases([LeaseRef(name, token)])))[0].renewed


@simulated
async def test_a_lease_ends_only_after_its_full_time(rig: Rig) -> None:
    token = await acquire(rig)
    await asyncio.sleep(0.999)
    assert rig.engine.status().leases == 1
    await asyncio.sleep(0.052)
    assert rig.engine.status().leases == 0
    assert (rig.revision, rig.engine.status().counters.expired_leases) == (token + 1, 1)


@simulated
async def test_renewals_do_not_wait_behind_a_slow_write(rig: Rig) -> None:
    token = await acquire(rig)
    rig.slow_writes(5)
    commit = rig.begin(rig.engine.commit([Txn(then=(Put(b"k", b""),))]))
    for _ in range(15):
        await asyncio.sleep(0.3)
        assert not commit.done()
        assert await renew(rig, token)
    await commit
    assert rig.engine.status().leases == 1


@simulated
async def test_a_renewal_is_in_time_until_the_expiry_is_evaluated(rig: Rig) -> None:
    """Its time ran out behind a slow write: the deadline is looked at again afterwards."""
    token = await acquire(rig)
    gate = rig.hold_writes()
    rig.begin(rig.engine.commit([Txn(then=(Put(b"k", b""),))]))
    await asyncio.sleep(3)
    assert await renew(rig, token)
    gate.open()
    await asyncio.sleep(0.9)
    assert rig.engine.status().leases == 1
    await asyncio.sleep(0.2)
    assert rig.engine.status().leases == 0


@simulated
async def test_a_renewal_between_two_expiries_of_one_step_is_in_time(rig: Rig) -> None:
    """A step of so many expiries lets others run before it has evaluated the last ones."""
    names = [f"l{number:04}" for number in range(BREATH_OPS + 100)]
    acquiring = [rig.begin(rig.engine.acquire_lease(name, "h", 1_000)) for name in names]
    tokens = [(await call).lease.token for call in acquiring]
    gate = rig.hold_writes()
    rig.begin(rig.engine.commit([Txn(then=(Put(b"k", b""),))]))
    await asyncio.sleep(3)
    gate.open()
    held = rig.engine._live.leases._held
    while not held[names[0]].ending:  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(0)
    assert not held[names[-1]].ending
    (renewal,) = await rig.engine.renew_leases([LeaseRef(names[-1], tokens[-1])])
    assert renewal.renewed
    await asyncio.sleep(0.5)
    assert [lease.name for lease in await rig.do(rig.engine.list_leases())] == names[-1:]


@simulated
async def test_no_renewal_once_the_expiry_is_on_its_way(rig: Rig) -> None:
    token = await acquire(rig)
    gate = rig.hold_writes()
    await gate.reached.wait()
    assert rig.engine.status().leases == 1
    for _ in range(3):
        assert not await renew(rig, token)
        await asyncio.sleep(1)
    gate.open()
    await asyncio.sleep(0.01)
    assert rig.revision == token + 1
    assert not await renew(rig, token)


@simulated
async def test_who_asks_while_the_expiry_is_on_its_way_is_granted_next(rig: Rig) -> None:
    token = await acquire(rig, "first")
    gate = rig.hold_writes()
    await gate.reached.wait()
    asking = rig.begin(rig.engine.acquire_lease("l", "second", 1_000))
    await asyncio.sleep(1)
    assert not asking.done()
    gate.open()
    acquired = await asking
    assert (acquired.granted, acquired.lease.token) == (True, token + 2)


@simulated
async def test_who_asks_with_the_deadline_passed_but_unevaluated_is_granted(rig: Rig) -> None:
    """The expiry and the acquire are one step: no extra round for the standby."""
    token = await acquire(rig, "first")
    gate = rig.hold_writes()
    blocking = rig.begin(rig.engine.commit([Txn(then=(Put(b"k", b""),))]))
    await asyncio.sleep(2)
    asking = rig.begin(rig.engine.acquire_lease("l", "second", 1_000))
    await asyncio.sleep(0)
    gate.open()
    await blocking
    acquired = await asking
    assert (acquired.granted, acquired.lease.token) == (True, token + 3)


@simulated
async def test_a_leases_time_begins_when_it_is_durable(rig: Rig) -> None:
    rig.slow_writes(5)
    acquired = await rig.do(rig.engine.acquire_lease("l", "me", 1_000))
    assert acquired.lease.remaining_ms == 1_000
    await asyncio.sleep(0.9)
    assert await renew(rig, acquired.lease.token)


@simulated
async def test_no_renewal_once_the_release_is_on_its_way(rig: Rig) -> None:
    token = await acquire(rig)
    gate = rig.hold_writes()
    releasing = rig.begin(rig.engine.release_lease("l", token))
    await gate.reached.wait()
    assert not await renew(rig, token)
    gate.open()
    assert await releasing == token + 1


@simulated
async def test_no_renewal_once_the_replacement_is_on_its_way(rig: Rig) -> None:
    token = await acquire(rig)
    gate = rig.hold_writes()
    taking = rig.begin(rig.engine.acquire_lease("l", "second", 1_000, replaces=token))
    await gate.reached.wait()
    assert not await renew(rig, token)
    gate.open()
    assert (await taking).lease.token == token + 2


@simulated
async def test_an_expiry_without_space_is_tried_again_and_not_renewed(rig: Rig) -> None:
    token = await acquire(rig)
    rig.disk.jammed = True
    await asyncio.sleep(3)
    assert rig.engine.status().leases == 1
    assert not await renew(rig, token)
    asked = await rig.do(rig.engine.acquire_lease("l", "second", 1_000))
    assert (asked.granted, asked.lease.token) == (False, token)
    rig.disk.jammed = False
    await asyncio.sleep(0.1)
    assert rig.engine.status().leases == 0
    assert rig.revision == token + 1


@simulated
async def test_leases_come_and_go_on_a_full_disk_from_the_reserve(rig: Rig) -> None:
    rig.disk.capacity_bytes, rig.disk.reserve_bytes = 100_000, 100_000
    token = await acquire(rig)
    assert await rig.do(rig.engine.release_lease("l", token)) == token + 1


@simulated
async def test_without_any_space_acquiring_says_so_and_the_holder_keeps_its_lease(
    rig: Rig,
) -> None:
    token = await acquire(rig)
    rig.disk.capacity_bytes = 0
    before = rig.revision
    with pytest.raises(NoSpace):
        await rig.do(rig.engine.acquire_lease("other", "me", 1_000))
    assert await renew(rig, token)
    assert rig.revision == before
    assert await rig.do(rig.engine.release_lease("l", token)) == token + 1


@simulated
async def test_a_stopped_store_takes_nobodys_lease(rig: Rig) -> None:
    """SIGSTOP: at most a quarter of a second of it is counted."""
    token = await acquire(rig)
    rig.process.suspend()
    await asyncio.sleep(60)
    rig.process.resume()
    await asyncio.sleep(0.5)
    assert await renew(rig, token)


@simulated
async def test_a_suspended_machine_takes_nobodys_lease(rig: Rig) -> None:
    token = await acquire(rig)
    rig.machine.suspend()
    await asyncio.sleep(3_600)
    rig.machine.resume()
    await asyncio.sleep(0.5)
    assert await renew(rig, token)


@simulated
async def test_a_jump_of_the_wall_clock_takes_nobodys_lease(rig: Rig) -> None:
    """S20."""
    token = await acquire(rig)
    for jump_ns in (3_600 * S, 10 * 365 * 86_400 * S, -20 * 365 * 86_400 * S):
        rig.machine.jump_wall(jump_ns)
        await asyncio.sleep(0.2)
        assert rig.engine.status().leases == 1
    assert await renew(rig, token)


@simulated
async def test_after_a_kill_a_lease_has_its_full_time_again(rig: Rig) -> None:
    token = await acquire(rig)
    await asyncio.sleep(0.9)
    await rig.kill()
    await asyncio.sleep(0.9)
    assert await renew(rig, token)
    await asyncio.sleep(1.1)
    assert await acquire(rig, "second") > token


@simulated
async def test_tokens_rise_over_kills_expiries_and_replacements(rig: Rig) -> None:
    """S3."""
    tokens = [await acquire(rig)]
    for number in range(10):
        if number % 3 == 0:
            await rig.kill()
        if number % 2:
            await asyncio.sleep(1.2)
            tokens.append(await acquire(rig, f"h{number}"))
        else:
            taken = rig.engine.acquire_lease("l", f"h{number}", 1_000, replaces=tokens[-1])
            tokens.append((await rig.do(taken)).lease.token)
    assert tokens == sorted(set(tokens))


@simulated
async def test_acquire_and_release_in_one_step_leave_nothing(rig: Rig) -> None:
    gate = rig.hold_writes()
    blocking = rig.begin(rig.engine.commit([Txn(then=(Put(b"k", b""),))]))
    await gate.reached.wait()
    token = rig.revision + 2
    a = rig.begin(rig.engine.acquire_lease("l", "a", 1_000))
    b = rig.begin(rig.engine.acquire_lease("l", "b", 1_000))
    release = rig.begin(rig.engine.release_lease("l", token))
    c = rig.begin(rig.engine.acquire_lease("l", "c", 1_000))
    d = rig.begin(rig.engine.acquire_lease("l", "d", 1_000, replaces=token + 2))
    await asyncio.sleep(0)
    gate.open()
    await blocking
    first, second, released, third, fourth = await asyncio.gather(a, b, release, c, d)
    assert (first.granted, first.lease.token) == (True, token)
    assert (second.granted, second.lease.token, second.lease.holder) == (False, token, "a")
    assert released == token + 1
    assert (third.granted, third.lease.token) == (True, token + 2)
    assert (fourth.granted, fourth.lease.token) == (True, token + 4)
    (lease,) = await rig.do(rig.engine.list_leases())
    assert (lease.holder, lease.token) == ("d", token + 4)


def test_there_are_at_most_so_many_leases() -> None:
    loop = SimLoop()

    async def main() -> None:
        rig = Rig(loop, config=EngineConfig(max_leases=2))
        await rig.start()
        token = await acquire(rig, name="a")
        await acquire(rig, name="b")
        with pytest.raises(Overloaded):
            await acquire(rig, name="c")
        assert not (await rig.do(rig.engine.acquire_lease("a", "other", 1_000))).granted
        await rig.do(rig.engine.release_lease("a", token))
        asking = [rig.begin(rig.engine.acquire_lease(name, "h", 1_000)) for name in "cdef"]
        ends = await asyncio.gather(*asking, return_exceptions=True)
        assert [isinstance(end, Overloaded) for end in ends] == [False, True, True, True]
        assert rig.engine.status().leases == 2

    loop.run(main())


@simulated
async def test_a_cancelled_acquire_that_was_evaluated_leaves_a_lease_that_expires(
    rig: Rig,
) -> None:
    gate = rig.hold_writes()
    asking = rig.begin(rig.engine.acquire_lease("l", "ghost", 1_000))
    await gate.reached.wait()
    asking.cancel()
    await asyncio.wait([asking])
    gate.open()
    await asyncio.sleep(0.01)
    assert rig.engine.status().leases == 1
    await asyncio.sleep(1.1)
    assert rig.engine.status().leases == 0


@simulated
async def test_a_fenced_write_and_the_expiry_are_ordered_by_revision(rig: Rig) -> None:
    """S5: in one step, the expiry comes first, and what compares with the token is refused."""
    token = await acquire(rig)
    gate = rig.hold_writes()
    blocking = rig.begin(rig.engine.commit([Txn(then=(Put(b"k", b""),))]))
    await asyncio.sleep(2)
    fenced = Txn(compares=(fence("l", token),), then=(Put(b"fenced", b""), Delete(b"k")))
    writing = rig.begin(rig.engine.commit([fenced]))
    await asyncio.sleep(0)
    gate.open()
    await blocking
    (result,) = await writing
    assert (result.outcome, result.found_mod_revision) == (Outcome.REFUSED, 0)
