"""The engine's clock: disputes, kills, reboots, and the bounds that it holds commits to."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from unit.store.rig import Rig, simulated

from sexton.errors import (
    InvalidArgument,
)
from sexton_runtime.kv.types import Outcome, Put, Txn
from sexton_store import cluster as clusters

# Time


@simulated
async def test_a_disputed_clock_is_remembered_over_a_kill_at_once(rig: Rig) -> None:
    """S20: ten years ahead, nothing is skipped, also after a kill and a restart."""
    await rig.put(b"k")
    year_ns = 365 * 86_400 * 10**9
    before_ns = rig.engine.clock().mesh_time_ns
    rig.machine.jump_wall(10 * year_ns)
    await asyncio.sleep(0.11)
    await rig.kill()
    await asyncio.sleep(1)
    clock = rig.engine.clock()
    assert (clock.state.name, clock.dispute) == ("DISPUTED", 1)
    assert clock.mesh_time_ns - before_ns < 2 * 10**9
    txn = Txn(then=(Put(b"k", b""),), not_before_ns=before_ns + 10 * year_ns)
    (result,) = await rig.do(rig.engine.commit([txn]))
    assert result.outcome is Outcome.TOO_EARLY
    await rig.reboot()
    assert rig.engine.clock().state.name == "DISPUTED"


@simulated
async def test_accepting_a_clock_is_durable_before_it_is_answered(rig: Rig) -> None:
    rig.machine.jump_wall(-3_600 * 10**9)
    await asyncio.sleep(0.2)
    with pytest.raises(InvalidArgument):
        await rig.do(rig.engine.accept_clock(0))
    gate = rig.hold_writes()
    accepting = rig.begin(rig.engine.accept_clock(1))
    await gate.reached.wait()
    await asyncio.sleep(0.5)
    assert not accepting.done()
    gate.open()
    assert (await accepting).state.name == "FOLLOWING"
    await rig.kill()
    assert rig.engine.clock().state.name == "FOLLOWING"


@simulated
async def test_the_durable_clock_is_at_most_five_seconds_old(rig: Rig) -> None:
    for _ in range(7):
        await asyncio.sleep(1.7)
        stored = rig.disk.cluster_record()
        assert stored is not None
        age_ns = rig.engine.clock().mesh_time_ns - clusters.decode(stored).clock.mesh_ns
        assert age_ns <= 5_050_000_000


@pytest.mark.parametrize("jump_s", [3_600, -3_600], ids=["a step", "a dispute"])
def test_what_happens_to_the_clock_is_durable_at_once(jump_s: int) -> None:
    @simulated
    async def story(rig: Rig) -> None:
        await asyncio.sleep(0.3)  # far from the next five seconds
        rig.machine.jump_wall(jump_s * 10**9)
        await asyncio.sleep(0.2)
        clock = clusters.decode(rig.disk.cluster_record() or b"").clock
        reading = rig.engine.clock()
        assert abs(reading.mesh_time_ns - clock.mesh_ns) <= 200_000_000
        assert (clock.state, clock.dispute) == (reading.state, int(jump_s < 0))

    story()


@simulated
async def test_mesh_time_does_not_go_back_over_a_reboot_with_the_wall_clock_behind(
    rig: Rig,
) -> None:
    watching = rig.engine.watch(b"")
    await anext(watching)
    await rig.put(b"k")
    told_ns = (await anext(watching)).revisions[0].mesh_time_ns
    rig.machine.jump_wall(-365 * 86_400 * 10**9)
    await rig.reboot()
    assert rig.engine.clock().mesh_time_ns >= told_ns


@simulated
async def test_mesh_time_bounds_are_exact(rig: Rig) -> None:
    """TOO_EARLY below, in time at, TOO_LATE above the bound."""
    now_ns = rig.engine.clock().mesh_time_ns  # virtual time stands still while nothing sleeps
    bounds = [(now_ns, 0), (now_ns + 1, 0), (0, now_ns), (0, now_ns - 1), (now_ns, now_ns)]
    txns = [Txn(not_before_ns=low, not_after_ns=high) for low, high in bounds]
    results = await rig.do(rig.engine.commit(txns))
    assert [result.outcome.name for result in results] == [
        "COMMITTED",
        "TOO_EARLY",
        "COMMITTED",
        "TOO_LATE",
        "COMMITTED",
    ]


@simulated
async def test_each_dispute_is_announced_once_whoever_saw_it_first(rig: Rig) -> None:
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            rig.machine.jump_wall(10 * 365 * 86_400 * 10**9)
            rig.engine.clock()
            await asyncio.sleep(1)
    announced = [log["dispute"] for log in logs if log["action"] == "store.clock_disputed"]
    assert announced == [1, 2]
