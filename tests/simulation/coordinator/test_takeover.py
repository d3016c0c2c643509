"""A leader that goes, and one that comes: the same nominal times, once each, nothing missing."""

from __future__ import annotations

import asyncio

import pytest
from google.protobuf.duration_pb2 import Duration
from simulation.coordinator.mesh import Mesh, S, every

from sexton.v1 import job_pb2
from sexton_core.policy import AHEAD_NS

pytestmark = pytest.mark.slow


def test_a_run_reaches_the_queue_before_it_is_due_and_may_not_start_earlier() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(5)
        job = await mesh.create(schedules=every(5))
        await mesh.until(start + 11 * S)
        assert await mesh.nominal_times(job, start) == [0, 5, 10]
        for seen in mesh.queue.seen.values():
            assert seen.pushed
            assert 0 < seen.record.due_ns - seen.at < AHEAD_NS
            assert seen.record.not_before_ns == seen.record.due_ns
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
        await mesh.successor(leader)
        assert mesh.mesh_now() - asked < S
        await stopping
        await mesh.until(start + 6 * S + S // 2)
        assert await mesh.nominal_times(job, start) == [0, 1, 2, 3, 4, 5, 6]
        assert {r.reason for r in await mesh.runs(job)} <= {"on_time", "late"}

    Mesh(lasts_s=0.1).run(scenario)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (job_pb2.CatchUp.POLICY_NONE, [0, 50, 60]),
        (job_pb2.CatchUp.POLICY_LATEST, [0, 50, 60]),
        (job_pb2.CatchUp.POLICY_EARLIEST, [0, 20, 50, 60]),
        (job_pb2.CatchUp.POLICY_ALL, [0, 20, 30, 40, 50, 60]),
    ],
)
def test_what_fell_due_while_nobody_led_is_late_or_caught_up(
    policy: job_pb2.CatchUp.Policy.ValueType, expected: list[int]
) -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(10)
        job = await mesh.create(
            schedules=every(10),
            overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL,
            catch_up=job_pb2.CatchUp(
                policy=policy, window=Duration(seconds=40), late_after=Duration(seconds=5)
            ),
        )
        await mesh.until(start + 2 * S)
        mesh.crash("coordinator-1")
        mesh.crash("coordinator-2")
        await mesh.until(start + 52 * S)  # 10 is outside the window, 50 is late
        await mesh.start_coordinator("coordinator-1")
        await mesh.until(start + 65 * S)
        assert await mesh.nominal_times(job, start) == expected
        await mesh.assert_tiled(job)

    Mesh().run(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_a_leader_that_was_suspended_writes_nothing_more(seed: int) -> None:
    async def scenario(mesh: Mesh) -> None:
        leader = await mesh.leader()
        jobs = await mesh.create_many(20, schedules=every(1))
        start = await mesh.boundary(1)
        # It sleeps between any two of its awaits, while it fires.
        await mesh.until(start)
        frozen = mesh.processes[leader]
        frozen.after(1 + 7 * seed, frozen.suspend)
        await mesh.successor(leader)
        await asyncio.sleep(1)
        frozen.resume()
        await asyncio.sleep(3)
        assert await mesh.leader() != leader
        for job in jobs:
            assert await mesh.assert_tiled(job) >= 6

    Mesh(seed, lasts_s=0.2).run(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_what_a_cut_leader_had_sent_is_found_by_the_next(seed: int) -> None:
    async def scenario(mesh: Mesh) -> None:
        leader = await mesh.leader()
        jobs = await mesh.create_many(20, schedules=every(1))
        start = await mesh.boundary(1)
        await mesh.until(start + seed * S // 1000)
        mesh.network.cut("store", leader)  # its answers are lost, what it sends arrives
        await mesh.successor(leader)
        mesh.network.heal_all()
        await asyncio.sleep(3)
        for job in jobs:
            assert await mesh.assert_tiled(job) >= 5
        await asyncio.sleep(5)
        handles = [kv.key for kv in await mesh.below(b"active/")]
        assert all(handle in mesh.queue.seen for handle in handles)

    Mesh(seed, lasts_s=0.2).run(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_a_store_that_dies_with_commits_on_the_way_loses_and_doubles_nothing(seed: int) -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        jobs = await mesh.create_many(20, schedules=every(1))
        start = await mesh.boundary(1)
        await mesh.until(start)
        store = mesh.processes["store"]
        store.after(5 + 23 * seed, store.crash)
        await asyncio.sleep(1 + seed / 4)
        mesh.crash("store")
        await mesh.start_store()
        await asyncio.sleep(6)
        for job in jobs:
            assert await mesh.assert_tiled(job) >= 6

    Mesh(seed, lasts_s=0.2).run(scenario)


def test_each_shard_has_its_leader_and_one_replica_may_lead_several() -> None:
    async def scenario(mesh: Mesh) -> None:
        for shard in range(3):
            await mesh.leader(shard)
        jobs = await mesh.create_many(12, schedules=every(2))
        assert {job.shard for job in jobs} == {0, 1, 2}
        await asyncio.sleep(5)
        mesh.crash("coordinator-1")
        await asyncio.sleep(6)
        assert {await mesh.leader(shard) for shard in range(3)} == {"coordinator-2"}
        for job in jobs:
            assert await mesh.assert_tiled(job) >= 5

    Mesh(shards=3).run(scenario)
