"""The engine on full, jammed and damaged disks."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from unit.store.rig import Rig, puts, simulated

from sexton.errors import (
    NoSpace,
)
from sexton_runtime.kv.types import Compare, Delete, Outcome, Put, Target, Txn, absent
from sexton_sim.loop import SimLoop
from sexton_store.disk import DamagedError
from sexton_store.memory_disk import MemoryDisk


@simulated
async def test_a_full_store_refuses_growth_and_nothing_else(rig: Rig) -> None:
    """L8."""
    await rig.put(b"old", b"v" * 1_000)
    await rig.put(b"small")
    rig.disk.capacity_bytes, rig.disk.reserve_bytes = 11_000, 10_000
    before = rig.revision
    results = await rig.do(
        rig.engine.commit(
            [
                Txn(then=(Put(b"new", b"v" * 100),)),
                Txn(compares=(absent(b"new"),), then=(Put(b"settled", b""),), use_reserve=True),
                Txn(compares=(absent(b"old"),), then=(Put(b"x", b""),)),
                Txn(then=(Put(b"new", b"v"),)),
                Txn(then=(Delete(b"gone"),)),
                Txn(then=(Delete(b"small"),)),
            ]
        )
    )
    assert [(result.outcome, result.revision - before) for result in results] == [
        (Outcome.NO_SPACE, 0),
        (Outcome.COMMITTED, 1),
        (Outcome.REFUSED, 1),
        (Outcome.NO_SPACE, 1),
        (Outcome.COMMITTED, 1),
        (Outcome.COMMITTED, 2),
    ]
    assert rig.engine.status().full
    await rig.do(rig.engine.commit([Txn(then=(Delete(b"old"),))]))
    assert (await rig.put(b"new", b"v" * 100)).outcome is Outcome.COMMITTED
    assert not rig.engine.status().full


@simulated
async def test_a_full_store_says_so_once_and_when_it_has_room_again(rig: Rig) -> None:
    rig.disk.capacity_bytes, rig.disk.reserve_bytes = 11_000, 10_000
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            assert (await rig.put(b"new", b"v" * 2_000)).outcome is Outcome.NO_SPACE
        rig.disk.capacity_bytes = 1_000_000
        for _ in range(2):
            assert (await rig.put(b"new", b"v" * 2_000)).outcome is Outcome.COMMITTED
    assert [log["action"] for log in logs] == ["store.full", "store.has_room"]


@simulated
async def test_a_jammed_disk_refuses_every_write_and_answers_the_rest(rig: Rig) -> None:
    await rig.put(b"old")
    rig.disk.jammed = True
    before = rig.revision
    results = await rig.do(
        rig.engine.commit(
            [
                Txn(then=(Put(b"new", b""),), use_reserve=True),
                Txn(then=(Delete(b"old"),)),
                Txn(compares=(absent(b"old"),), then=(Put(b"x", b""),)),
                Txn(compares=(absent(b"old"),), orelse=(Put(b"x", b""),)),
                Txn(),
            ]
        )
    )
    assert [result.outcome for result in results] == [
        Outcome.NO_SPACE,
        Outcome.NO_SPACE,
        Outcome.REFUSED,
        Outcome.NO_SPACE,
        Outcome.COMMITTED,
    ]
    assert {result.revision for result in results} == {before}
    rig.disk.jammed = False
    assert (await rig.put(b"new")).revision == before + 1


@simulated
async def test_a_store_starts_on_a_jammed_disk(rig: Rig) -> None:
    kept = await rig.put(b"k")
    rig.disk.jammed = True
    await rig.do(rig.engine.stop())
    rig.process.crash()
    await rig.start()
    assert rig.revision == kept.revision
    assert (await rig.put(b"k")).outcome is Outcome.NO_SPACE


def test_a_new_store_does_not_start_on_a_jammed_disk() -> None:
    loop = SimLoop()

    async def main() -> None:
        disk = MemoryDisk()
        disk.jammed = True
        with pytest.raises(NoSpace):
            await Rig(loop, disk=disk).start()

    loop.run(main())


@simulated
async def test_a_damaged_record_fails_its_reader_and_no_neighbour(rig: Rig) -> None:
    await rig.put(b"bad", b"v")
    await rig.put(b"good", b"v")
    rig.disk.damage(b"bad")
    gate = rig.hold_writes()
    blocking = rig.begin(rig.engine.commit(puts(b"k")))
    await gate.reached.wait()
    looks = Txn(compares=(Compare(b"bad", Target.VALUE, b"v"),), then=(Put(b"x", b""),))
    calls = [
        rig.begin(rig.engine.commit(puts(b"before"))),
        rig.begin(rig.engine.commit([*puts(b"same batch"), looks])),
        rig.begin(rig.engine.commit(puts(b"after"))),
    ]
    await asyncio.sleep(0)
    gate.open()
    await blocking
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers[1], DamagedError)
    assert (await rig.read(b"before")).create_revision > 0
    assert (await rig.read(b"after")).create_revision > 0
    assert (await rig.read(b"same batch")).create_revision == 0
    with pytest.raises(DamagedError):
        await rig.read(b"bad")
    assert not rig.engine.failed.is_set()
