"""What is found wrong and put right, and what is bounded."""

from __future__ import annotations

import asyncio

import pytest
from google.protobuf.duration_pb2 import Duration
from simulation.coordinator.mesh import Mesh, S, every

from sexton.errors import NoSpace
from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import job_pb2
from sexton_coordinator.leader import tenure
from sexton_records import keys
from sexton_runtime.kv.types import Delete, Put, Txn
from sexton_store.memory_disk import UNBOUNDED_BYTES

pytestmark = pytest.mark.slow


def test_a_job_that_lost_its_timer_is_armed_again_and_counted() -> None:
    async def scenario(mesh: Mesh) -> None:
        jobs = await mesh.create_many(3, schedules=every(120))
        for job in jobs[:2]:
            loaded = await mesh.load(job)
            assert loaded.timer is not None
            lost = keys.timer_key(job.shard, loaded.timer, job.uid)
            await mesh.store.commit([Txn(then=(Delete(lost),))])
        leader = await mesh.leader()
        await asyncio.sleep(31)
        assert mesh.coordinators[leader].leadership.counters.rearmed == 2
        for job in jobs:
            await mesh.assert_tiled(job)

    Mesh().run(scenario)


def test_a_job_that_is_due_and_not_decided_is_an_alarm() -> None:
    """The dashboard showed the right next run, and on 11 of 19 days none came (jobrunr #1377)."""

    async def scenario(mesh: Mesh) -> None:
        leader = await mesh.leader()
        (stuck,) = await mesh.create_many(1, schedules=every(20))
        loaded = await mesh.load(stuck)
        record = pb.JobRecord()
        record.CopyFrom(loaded.record)
        record.version = 2
        record.spec.overlap = 99  # type: ignore[assignment]  # of a later version
        await mesh.store.commit([Txn(then=(Put(stuck.job_key, record.SerializeToString()),))])
        leadership = mesh.coordinators[leader].leadership
        await asyncio.sleep(35)
        assert leadership.tenure(0).overdue == 0  # type: ignore[union-attr]
        await asyncio.sleep(65)
        assert leadership.tenure(0).overdue == 1  # type: ignore[union-attr]
        await mesh.store.commit(
            [Txn(then=(Put(stuck.job_key, loaded.record.SerializeToString()),))]
        )
        await asyncio.sleep(65)
        assert leadership.tenure(0).overdue == 0  # type: ignore[union-attr]
        assert len(await mesh.nominal_times(stuck)) > 1

    Mesh(lasts_s=0.1).run(scenario)


def test_a_timer_without_a_state_is_removed() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.create(schedules=every(5))
        timer = pb.TimerRecord(namespace="default", job="ghost").SerializeToString()
        now = mesh.mesh_now()
        stray = keys.timer_key(0, now, "z" * 24)
        doubled = keys.timer_key(0, now + S, job.uid)
        await mesh.store.commit([Txn(then=(Put(stray, timer), Put(doubled, timer)))])
        await mesh.start_coordinator("coordinator-1")
        await asyncio.sleep(5)
        assert await mesh.assert_tiled(job) == 1
        assert len(await mesh.below(b"timers/")) == 1
        assert mesh.counted("stale_timers") == 2

    Mesh(coordinators=()).run(scenario)


def test_a_job_that_can_not_be_read_holds_up_no_other() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        broken, sound = await mesh.create_many(2, schedules=every(5))
        loaded = await mesh.load(broken)
        record = pb.JobRecord()
        record.CopyFrom(loaded.record)
        record.version = 2
        record.spec.overlap = 99  # type: ignore[assignment]  # of a later version
        await mesh.store.commit([Txn(then=(Put(broken.job_key, record.SerializeToString()),))])
        await asyncio.sleep(11)
        assert await mesh.nominal_times(broken) == []
        assert await mesh.assert_tiled(sound) == 2
        assert mesh.counted("unreadable") >= 1

    Mesh().run(scenario)


def test_many_jobs_due_in_the_same_second_fire_once_each_and_bounded() -> None:
    async def scenario(mesh: Mesh) -> None:
        leader = await mesh.leader()
        start = await mesh.boundary(60, ahead_s=20)
        jobs = await mesh.create_many(1_200, schedules=every(60))
        await mesh.until(start + 5 * S)
        records = [pb.RunRecord.FromString(kv.value) for kv in await mesh.below(b"active/")]
        assert len(records) == len({r.run_id for r in records}) == len(jobs)
        assert {(r.nominal_ns - start) // S for r in records} == {0}
        assert mesh.coordinators[leader].leadership.counters.runs == len(jobs)
        assert len(mesh.queue.seen) == len(jobs)

    Mesh(lasts_s=100).run(scenario)


def test_more_jobs_than_one_loading_takes_fire_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(mesh: Mesh) -> None:
        start = await mesh.boundary(20)
        jobs = await mesh.create_many(330, schedules=every(20))
        await mesh.start_coordinator("coordinator-1")
        await mesh.until(start + 45 * S)
        for job in jobs[::30]:
            assert await mesh.nominal_times(job, start) == [0, 20, 40]
        records = [pb.RunRecord.FromString(kv.value) for kv in await mesh.below(b"runs/")]
        assert len(records) == 3 * len(jobs)
        assert max(r.create_time_ns - r.due_ns for r in records) < S
        assert mesh.counted("horizons") > 4

    monkeypatch.setattr(tenure, "MOST_TIMERS", 100)
    Mesh(coordinators=(), lasts_s=0.1).run(scenario)


def test_a_full_store_refuses_a_trigger_and_fires_once_there_is_room() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        job = await mesh.create(schedules=every(5))
        start = await mesh.boundary(5)
        await mesh.until(start - S)
        mesh.disk.capacity_bytes = 1
        with pytest.raises(NoSpace):
            await mesh.trigger(job, "one")
        await mesh.until(start + 3 * S)
        assert await mesh.nominal_times(job, start) == []
        mesh.disk.capacity_bytes = UNBOUNDED_BYTES
        await mesh.until(start + 12 * S)
        assert await mesh.nominal_times(job, start) == [0, 5, 10]

    Mesh().run(scenario)


def test_a_catch_up_of_many_starts_takes_commits_of_bounded_size() -> None:
    async def scenario(mesh: Mesh) -> None:
        start = await mesh.boundary(1)
        big = job_pb2.Task(shell=job_pb2.ShellTask(command="x" * 30_000))
        job = await mesh.create(
            task=big,
            schedules=every(1),
            overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL,
            catch_up=job_pb2.CatchUp(
                policy=job_pb2.CatchUp.POLICY_ALL, window=Duration(seconds=600), max=100
            ),
        )
        await mesh.until(start + 120 * S)
        await mesh.start_coordinator("coordinator-1")
        await asyncio.sleep(3.5)
        caught_up = [r for r in await mesh.runs(job) if r.reason == "caught_up"]
        assert len(caught_up) == 100
        assert await mesh.assert_tiled(job) >= 123

    Mesh(coordinators=()).run(scenario)


def test_changes_that_were_missed_are_read_again() -> None:
    async def scenario(mesh: Mesh) -> None:
        leader = await mesh.leader()
        job = await mesh.create(schedules=every(300))
        await asyncio.sleep(1)
        mesh.network.cut("store", leader)
        mesh.network.cut(leader, "store")
        await asyncio.sleep(0.2)
        await mesh.edit(job, schedules=every(5))
        filler = [Txn(then=(Put(b"filler", str(n).encode()),)) for n in range(400)]
        await mesh.store.commit(filler)
        mesh.network.reset("store", leader)
        mesh.network.heal_all()
        await asyncio.sleep(15)
        assert await mesh.leader() == leader
        assert mesh.counted("compacted") == 1
        assert len(await mesh.nominal_times(job)) >= 2
        await asyncio.sleep(1)

    Mesh(watch_window=300).run(scenario)
