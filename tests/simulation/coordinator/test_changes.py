"""Jobs that are changed while they fire: nothing twice, nothing lost, nothing from before."""

from __future__ import annotations

import asyncio

import pytest
from simulation.coordinator.mesh import Mesh, S, every

from sexton.v1 import job_pb2, run_pb2
from sexton_core.words import Decision, Reason, ResumeMode

pytestmark = pytest.mark.slow

MANY = 10


@pytest.mark.parametrize("seed", range(4))
def test_edits_while_it_fires_tile_the_times_of_all_versions(seed: int) -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(1)
        job = await mesh.create(schedules=every(1), overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL)
        await mesh.until(start - S // 2)
        for number in range(MANY):
            # The commits of edit and fire meet in the store.
            await mesh.until(start + number * S + (seed - 1) * S // 2000)
            await mesh.edit(job, description=f"edit {number}")
        await mesh.until(start + (MANY + 1) * S + S // 2)
        assert await mesh.nominal_times(job, start) == list(range(MANY + 2))
        assert await mesh.assert_tiled(job) >= MANY

    Mesh(seed).run(scenario)


def test_an_edit_fires_nothing_of_the_past_and_moves_the_timer() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(300, ahead_s=100)
        job = await mesh.create(schedules=every(300))
        await mesh.until(start - 90 * S)
        await mesh.edit(job, schedules=every(5))
        await mesh.until(start - 79 * S)
        assert await mesh.nominal_times(job, start - 100 * S) == [15, 20]
        await mesh.edit(job, schedules=every(300))
        await mesh.until(start + S)
        assert await mesh.nominal_times(job, start - 80 * S) == [0, 80]
        versions = [r.template.version for r in await mesh.runs(job)]
        assert versions == [2, 2, 3]

    Mesh().run(scenario)


def test_what_changes_once_its_next_start_is_written_changes_after_that_start() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(10)
        jobs = await mesh.create_many(5, schedules=every(10))
        due = start + 10 * S
        await mesh.until(due - S // 5)
        assert mesh.counted("ahead") == 2 * len(jobs)
        left, edited, paused, deleted, busy = jobs
        answer = await mesh.trigger(busy)
        assert answer.reason == Reason.OVERLAP  # its next run is in line
        await asyncio.gather(
            mesh.edit(edited, description="another", schedules=every(7)),
            mesh.pause(paused),
            mesh.delete(deleted),
        )
        assert mesh.mesh_now() >= due
        await mesh.until(due + 14 * S)
        for job in jobs:
            after = [r for r in await mesh.runs(job) if r.nominal_ns > due]
            assert len(after) == {left: 1, edited: 2, busy: 1}.get(job, 0)
            (at_due,) = [r for r in await mesh.runs(job) if r.nominal_ns == due]
            assert at_due.template.version == 1
            assert at_due.create_time_ns < at_due.not_before_ns == due
        for job in (left, busy):
            await mesh.assert_tiled(job)

    Mesh(lasts_s=3).run(scenario)


def test_what_a_live_run_decides_is_decided_when_it_is_due() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(10)
        skip = await mesh.create(schedules=every(10))
        newest = await mesh.create(schedules=every(10), overlap=job_pb2.OVERLAP_POLICY_CANCEL_OTHER)
        await mesh.until(start + 11 * S)
        assert await mesh.nominal_times(skip, start) == [0]
        (skipped,) = await mesh.decisions(skip)
        assert skipped.decided_at >= start + 10 * S
        first, second = await mesh.runs(newest)
        for run in (first, second):
            assert run.create_time_ns >= run.due_ns
        assert first.state == run_pb2.RUN_STATE_CANCELLED

    Mesh(lasts_s=10.4).run(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_starts_after_a_pause_was_acknowledged(seed: int) -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(1)
        jobs = await mesh.create_many(MANY, schedules=every(1))
        await mesh.until(start + 2 * S + (seed - 1) * S // 2000)
        paused = {}
        for job in jobs:
            await mesh.pause(job)
            paused[job] = mesh.mesh_now()
        await mesh.until(start + 10 * S)
        for job in jobs:
            assert all(r.create_time_ns <= paused[job] for r in await mesh.runs(job))
            await mesh.resume(job)
        await mesh.until(start + 12 * S + S // 4)
        for job in jobs:
            assert (await mesh.nominal_times(job, start))[-2:] == [11, 12]
            skipped = [d for d in await mesh.decisions(job) if d.reason is Reason.PAUSED]
            assert sum(d.times for d in skipped) in {8, 9}
            await mesh.assert_tiled(job)

    Mesh(seed, lasts_s=0.1).run(scenario)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (ResumeMode.NEXT, [0, 10, 60]),
        (ResumeMode.NOW, [0, 10, 50, 60]),
        (ResumeMode.CATCH_UP, [0, 10, 50, 60]),
    ],
)
def test_a_resume_says_what_becomes_of_what_was_passed_over(
    mode: ResumeMode, expected: list[int]
) -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(10)
        job = await mesh.create(schedules=every(10))
        await mesh.until(start + 12 * S)
        await mesh.pause(job)
        await mesh.until(start + 55 * S)
        await mesh.resume(job, mode)
        await mesh.until(start + 65 * S)
        assert await mesh.nominal_times(job, start) == expected
        await mesh.assert_tiled(job)

    Mesh().run(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_a_deleted_job_fires_no_more_and_its_runs_are_ended(seed: int) -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(1)
        jobs = await mesh.create_many(
            MANY, schedules=every(1), overlap=job_pb2.OVERLAP_POLICY_BUFFER_ALL
        )
        await mesh.until(start + 3 * S + (seed - 1) * S // 2000)
        deleted = {}
        for job in jobs:
            await mesh.delete(job)
            deleted[job] = mesh.mesh_now()
        await asyncio.sleep(12)
        for prefix in (b"buffered/", b"deleted/", b"state/", b"timers/", b"active/"):
            assert await mesh.below(prefix) == []
        for job in jobs:
            (run,) = await mesh.runs(job)
            assert run.state == run_pb2.RUN_STATE_CANCELLED
            assert run.create_time_ns <= deleted[job]
            decisions = await mesh.decisions(job)
            assert {(d.decision, d.reason) for d in decisions} == {
                (Decision.DROPPED, Reason.DELETED)
            }
            waited = [(d.last - run.nominal_ns) // S for d in decisions]
            assert waited == list(range(1, len(waited) + 1))
        assert mesh.counted("deleted_jobs") == MANY

    Mesh(seed, lasts_s=100).run(scenario)


def test_a_deleted_job_is_worked_off_by_the_next_leader_once_there_is_a_queue() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(1)
        job = await mesh.create(schedules=every(1))
        await mesh.until(start + S // 2)
        await mesh.delete(job)
        mesh.crash(await mesh.leader())
        await asyncio.sleep(20)
        assert len(await mesh.below(b"deleted/")) == 1
        await mesh.queue.start()
        await asyncio.sleep(12)
        assert await mesh.below(b"deleted/") == []
        (run,) = await mesh.runs(job)
        assert run.state == run_pb2.RUN_STATE_CANCELLED

    Mesh(with_queue=False, lasts_s=100).run(scenario)


def test_a_name_used_again_is_another_job() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(2)
        first = await mesh.create(schedules=every(2))
        await mesh.until(start + S)
        await mesh.delete(first)
        mesh._made -= 1
        again = mesh.jobs.name_of("default", first.job, "b" + first.uid[1:])
        second = await mesh.create(schedules=every(2), uid=again.uid)
        await mesh.until(start + 5 * S)
        assert await mesh.nominal_times(first, start) == [0]
        assert await mesh.nominal_times(second, start) == [2, 4]

    Mesh().run(scenario)
