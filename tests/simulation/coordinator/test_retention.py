"""History is removed by number and by age, and nothing that is still needed."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from google.protobuf.duration_pb2 import Duration
from simulation.coordinator.mesh import Mesh, S, every

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import job_pb2, run_pb2
from sexton_coordinator.writes import JobName
from sexton_core.instants import DAY, HOUR, MINUTE
from sexton_core.words import Reason
from sexton_records import keys
from sexton_runtime.kv.types import Put, Txn

pytestmark = pytest.mark.slow

KEEP_THREE = job_pb2.Retention(max_runs=3, max_age=Duration(seconds=3600))


async def ended(
    mesh: Mesh, job: JobName, name: str, age: int, state: int, queue: str = "q"
) -> None:
    """Writes a run that ended some time ago."""
    end = mesh.mesh_now() - age
    record = pb.RunRecord(run_id=name, state=state, end_time_ns=end)  # type: ignore[arg-type]
    record.template.MergeFrom(
        pb.RunTemplate(retain_runs=3, retain_ns=HOUR, queue=queue, job_uid=job.uid)
    )
    entry = pb.EndedRecord(namespace="default", job=job.job, state=state)  # type: ignore[arg-type]
    puts = [
        Put(keys.run_key("default", job.job, job.uid, name), record.SerializeToString()),
        Put(keys.ended_key(0, end, job.uid, name), entry.SerializeToString()),
    ]
    if state == run_pb2.RUN_STATE_FAILED:
        puts.append(Put(keys.dead_key(0, end, job.uid, name), entry.SerializeToString()))
    await mesh.store.commit([Txn(then=tuple(puts))])


def test_the_newest_runs_and_decisions_are_kept() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        job = await mesh.create(schedules=every(1), retention=KEEP_THREE)
        other = await mesh.create(schedules=every(5))
        await mesh.until(await mesh.boundary(30))
        await asyncio.sleep(35)
        await mesh.pause(job)
        await asyncio.sleep(25)
        runs = await mesh.runs(job)
        assert len(runs) == 3
        assert {b.nominal_ns - a.nominal_ns for a, b in pairwise(runs)} == {2 * S}
        decisions = await mesh.decisions(job)
        assert [d.reason for d in decisions] == [Reason.OVERLAP] * 3
        assert len([kv for kv in await mesh.below(b"ended/") if job.uid in kv.key.decode()]) == 3
        assert await mesh.assert_tiled(other) >= 15

    Mesh(lasts_s=1.5).run(scenario)


def test_dead_letters_are_kept_twice_as_long() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        job = await mesh.create()
        success, failure = run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_STATE_FAILED
        await ended(mesh, job, "young", 30 * MINUTE, success)
        await ended(mesh, job, "old", 90 * MINUTE, success)
        await ended(mesh, job, "dead", 90 * MINUTE, failure)
        await ended(mesh, job, "long-dead", 3 * HOUR, failure)
        await asyncio.sleep(12)
        assert {run.run_id for run in await mesh.runs(job)} == {"young", "dead"}
        assert len(await mesh.below(b"ended/")) == 2
        (letter,) = await mesh.below(b"dead/")
        assert letter.key.endswith(b"/dead")
        assert mesh.counted("removed_runs") == 2

    Mesh().run(scenario)


def test_former_versions_go_and_those_that_something_waits_with_stay() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        job = await mesh.create(
            schedules=every(1),
            overlap=job_pb2.OVERLAP_POLICY_BUFFER_ALL,
            retention=job_pb2.Retention(max_runs=2, max_age=Duration(seconds=3600)),
        )
        await asyncio.sleep(3)
        for number in range(6):
            await mesh.edit(job, description=str(number), schedules=every(300))
        await asyncio.sleep(12)
        versions = [int(kv.key.rpartition(b"/")[2]) for kv in await mesh.below(b"versions/")]
        assert versions == [1, 5, 6]
        assert {start.version for start in (await mesh.load(job)).state.buffered} == {1}

    Mesh(lasts_s=100).run(scenario)


def test_deleted_jobs_are_kept_for_a_month_and_the_newest_hundred_of_a_name() -> None:
    async def scenario(mesh: Mesh) -> None:
        now = mesh.mesh_now()
        uids = [
            f"{'abcdefghij'[n // 26]}{'abcdefghijklmnopqrstuvwxyz'[n % 26]}" for n in range(103)
        ]
        ages = {uid: n * MINUTE for n, uid in enumerate(uids)}
        puts = [Put(keys.former_key("default", "a", now - ages[uid], uid), b"") for uid in uids]
        puts += [
            Put(keys.former_key("default", "b", now - age * DAY, str(age)), b"") for age in (29, 31)
        ]
        for first in (0, 60):
            await mesh.store.commit([Txn(then=tuple(puts[first : first + 60]))])
        await mesh.leader()
        await asyncio.sleep(12)
        kept = [keys.parse_former_key(kv.key)[1] for kv in await mesh.below(b"former/")]
        assert sorted(kept) == sorted([*uids[:100], "29"])
        assert mesh.counted("removed_former_jobs") == 4

    Mesh().run(scenario)


def test_requests_are_forgotten_after_ten_minutes() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        job = await mesh.create()
        await mesh.trigger(job, "new")
        record = pb.RequestRecord(create_time_ns=mesh.mesh_now() - 11 * MINUTE)
        old = keys.request_key(0, "default", "TriggerJob", "old")
        await mesh.store.commit([Txn(then=(Put(old, record.SerializeToString()),))])
        await asyncio.sleep(12)
        (left,) = await mesh.below(b"requests/")
        assert left.key == keys.request_key(0, "default", "TriggerJob", "new")
        assert mesh.counted("removed_requests") == 1

    Mesh().run(scenario)


def test_runs_are_removed_as_fast_as_they_end() -> None:
    """12,000 more than are kept, in a few seconds: at 4,000 per second a busy mesh only grows."""

    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        job = await mesh.create()
        end = mesh.mesh_now()
        template = pb.RunTemplate(retain_runs=3, retain_ns=HOUR, queue="q", job_uid=job.uid)
        state = run_pb2.RUN_STATE_SUCCEEDED
        run = pb.RunRecord(state=state, end_time_ns=end, template=template).SerializeToString()
        entry = pb.EndedRecord(namespace="default", job=job.job, state=state).SerializeToString()
        for first in range(0, 12_000, 40):
            puts = [
                put
                for name in (f"r{number:05}" for number in range(first, first + 40))
                for put in (
                    Put(keys.run_key("default", job.job, job.uid, name), run),
                    Put(keys.ended_key(0, end, job.uid, name), entry),
                )
            ]
            await mesh.store.commit([Txn(then=tuple(puts))])
        await asyncio.sleep(11.5)
        assert len(await mesh.below(b"ended/")) == 3

    Mesh(lasts_s=1.5).run(scenario)
