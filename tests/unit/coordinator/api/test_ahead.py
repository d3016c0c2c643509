"""Changes that people make in the moment between a start's being written and its being due."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from unit.coordinator.api.world import JOB, NS, S, World, every, shell, story

from sexton.v1 import job_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_core.policy import AHEAD_NS
from sexton_core.words import ResumeMode

SOURCE = "file"
Change = Callable[[World], Awaitable[Any]]


def spec(command: str, seconds: int = 10) -> job_pb2.JobSpec:
    return job_pb2.JobSpec(task=shell(command), schedules=every(seconds))


def spread(names: Sequence[str], command: str) -> api.ApplyJobsRequest:
    """Jobs of every second, each at a moment of its own."""
    one = job_pb2.JobSpec(
        task=shell(command), schedules=every(1), overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL
    )
    one.schedules[0].jitter.FromMilliseconds(900)
    jobs = [job_pb2.Job(name=name, spec=one) for name in names]
    return api.ApplyJobsRequest(jobs=jobs, source=SOURCE)


async def update(world: World) -> Any:
    job = job_pb2.Job(name=JOB, spec=spec("new"))
    return await world.jobs_api.UpdateJob(api.UpdateJobRequest(job=job))


async def pause(world: World) -> Any:
    return await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB))


async def delete(world: World) -> Any:
    return await world.jobs_api.DeleteJob(api.DeleteJobRequest(name=JOB))


async def apply(world: World) -> Any:
    jobs = [job_pb2.Job(name=JOB, spec=spec("new"))]
    return await world.jobs_api.ApplyJobs(api.ApplyJobsRequest(jobs=jobs, source=SOURCE))


async def prune(world: World) -> Any:
    request = api.ApplyJobsRequest(prune=True, source=SOURCE, prune_namespaces=["default"])
    return await world.jobs_api.ApplyJobs(request)


@pytest.mark.parametrize("change", [update, pause, delete, apply, prune])
def test_a_change_waits_for_the_start_that_is_written_and_rules_every_later_one(
    change: Change,
) -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        jobs = [job_pb2.Job(name=JOB, spec=spec("old"))]
        await world.jobs_api.ApplyJobs(api.ApplyJobsRequest(jobs=jobs, source=SOURCE))
        job = await world.get()
        name = world.jobs.name_of("default", "report", job.uid)
        await world.until(start - S // 5)
        (written,) = await world.runs(name)
        assert start - AHEAD_NS <= written.create_time_ns < written.due_ns == start
        await change(world)
        assert world.mesh_now() >= start
        await world.until(start + 11 * S)
        at_start, *later = await world.runs(name)
        assert at_start.template.version == 1
        assert [(r.nominal_ns, r.template.version) for r in later] == (
            [(start + 10 * S, 2)] if change in (update, apply) else []
        )

    story(scenario, lasts_s=0.1)


def test_a_change_of_what_is_not_due_soon_waits_for_nothing() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        await world.make(schedules=every(10))
        await world.until(start - S)
        await pause(world)
        assert world.mesh_now() < start - S // 2
        await world.until(start + S)
        assert not await world.below(b"active/")

    story(scenario)


def test_many_jobs_that_are_due_each_second_are_applied_anew_in_a_moment() -> None:
    async def scenario(world: World) -> None:
        names = [f"{NS}/jobs/j{number}" for number in range(200)]
        await world.jobs_api.ApplyJobs(spread(names, "old"))
        await asyncio.sleep(5.3)
        since = world.mesh_now()
        answer = await world.jobs_api.ApplyJobs(spread(names, "new"))
        assert world.mesh_now() - since < 2 * S
        assert {one.job.version for one in answer.jobs} == {2}
        applied = world.mesh_now()
        await asyncio.sleep(3)
        for resource in names[:40]:
            job = await world.get(resource)
            name = world.jobs.name_of("default", resource.rpartition("/")[2], job.uid)
            runs = await world.runs(name)
            assert all(r.template.version == 2 for r in runs if r.create_time_ns > applied)
            await world.assert_tiled(name)

    story(scenario, lasts_s=0.1)


def test_many_jobs_that_are_due_each_second_are_pruned_in_a_moment() -> None:
    async def scenario(world: World) -> None:
        names = [f"{NS}/jobs/j{number}" for number in range(200)]
        await world.jobs_api.ApplyJobs(spread(names, "old"))
        await asyncio.sleep(5.3)
        since = world.mesh_now()
        request = spread(names[:100], "old")
        request.prune = True
        answer = await world.jobs_api.ApplyJobs(request)
        assert world.mesh_now() - since < 2 * S
        pruned = [job for job in answer.jobs if job.change == api.AppliedJob.CHANGE_PRUNED]
        assert len(pruned) == 100

    story(scenario, lasts_s=0.1)


@pytest.mark.parametrize("validate_only", [True, False])
def test_what_is_not_changed_waits_for_no_start(*, validate_only: bool) -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        jobs = [job_pb2.Job(name=JOB, spec=spec("old"))]
        await world.jobs_api.ApplyJobs(api.ApplyJobsRequest(jobs=jobs, source=SOURCE))
        await world.until(start - S // 5)
        if validate_only:
            jobs[0].spec.CopyFrom(spec("new"))
        request = api.ApplyJobsRequest(jobs=jobs, source=SOURCE, validate_only=validate_only)
        await world.jobs_api.ApplyJobs(request)
        assert world.mesh_now() < start - S // 10

    story(scenario, lasts_s=0.1)


def test_a_job_that_was_resumed_starts_ahead_again() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        job = await world.make(schedules=every(10))
        name = world.jobs.name_of("default", "report", job.uid)
        await pause(world)
        await world.until(start + S)
        await world.resume(name, ResumeMode.NEXT)
        await world.until(start + 11 * S)
        (run,) = await world.runs(name)
        assert run.create_time_ns < run.due_ns == start + 10 * S

    story(scenario, lasts_s=0.1)
