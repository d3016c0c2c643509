"""A leader that goes, and one that comes: the same nominal times, once each, nothing missing."""

from __future__ import annotations

import asyncio

from simulation.coordinator.mesh import Mesh, S, every


def test_a_run_starts_at_its_time_and_reaches_the_queue() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(5)
        job = await mesh.create(schedules=every(5))
        await mesh.until(start + 11 * S)
        assert await mesh.nominal_times(job, start) == [0, 5, 10]
        for seen in mesh.queue.seen.values():
            assert seen.pushed
            assert 0 <= seen.at - seen.record.due_ns < S // 10
            assert seen.record.traceparent.startswith("00-")
        assert await mesh.assert_tiled(job) == 3

    Mesh().run(scenario)


def test_a_leader_killed_a_second_before_and_replaced_a_second_after() -> None:
    async def scenario(mesh: Mesh) -> None:
        leader = await mesh.leader()
        start = await mesh.boundary(60)
        job = await mesh.create(schedules=every(60))
        await mesh.until(start - S)
        mesh.crash(leader)
        await mesh.leader()
        assert mesh.mesh_now() > start
        await mesh.until(start + 65 * S)
        assert await mesh.nominal_times(job, start) == [0, 60]
        first = (await mesh.runs(job))[0]
        assert 0 < first.create_time_ns - start < 2 * S
        assert await mesh.assert_tiled(job) == 2

    Mesh().run(scenario)


def test_a_handed_over_shard_is_led_on_at_once() -> None:
    async def scenario(mesh: Mesh) -> None:
        leader = await mesh.leader()
        job = await mesh.create(schedules=every(1))
        start = await mesh.boundary(1)
        await mesh.until(start + 3 * S - S // 100)
        asked = mesh.mesh_now()
        stopping = asyncio.create_task(mesh.stop(leader))
        while await mesh.leader() == leader:
            await asyncio.sleep(0.01)
        assert mesh.mesh_now() - asked < S
        await stopping
        await mesh.until(start + 6 * S + S // 2)
        assert await mesh.nominal_times(job, start) == [0, 1, 2, 3, 4, 5, 6]
        assert {r.reason for r in await mesh.runs(job)} <= {"on_time", "late"}

    Mesh(lasts_s=0.1).run(scenario)
