"""A whole file of jobs: all of it or none of it is accepted, and the same again is nothing."""

from __future__ import annotations

import asyncio

import pytest
from unit.coordinator.api.world import JOB, MINUTES, NS, S, World, every, shell, story

from sexton import errors
from sexton.v1 import job_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton.v1.scheduler_pb2_grpc import JobServiceStub

NONE = api.AppliedJob.CHANGE_NONE
CREATED = api.AppliedJob.CHANGE_CREATED
UPDATED = api.AppliedJob.CHANGE_UPDATED
MIB = 1024 * 1024


def job(name: str, **fields: object) -> job_pb2.Job:
    spec = job_pb2.JobSpec(task=shell(), schedules=MINUTES)
    spec.MergeFrom(job_pb2.JobSpec(**fields))  # type: ignore[arg-type]
    return job_pb2.Job(name=f"{NS}/jobs/{name}", spec=spec)


async def apply(world: World, *jobs: job_pb2.Job, **fields: object) -> api.ApplyJobsResponse:
    request = api.ApplyJobsRequest(jobs=jobs, **fields)  # type: ignore[arg-type]
    answer: api.ApplyJobsResponse = await world.jobs_api.ApplyJobs(request)
    return answer


def changes(answer: api.ApplyJobsResponse) -> list[int]:
    return [applied.change for applied in answer.jobs]


def test_applying_creates_updates_and_leaves_alone() -> None:
    async def scenario(world: World) -> None:
        first = await apply(world, job("a"), job("b"), job("c"), source="jobs.yaml")
        assert changes(first) == [CREATED, CREATED, CREATED]
        assert [applied.job.name[-1] for applied in first.jobs] == ["a", "b", "c"]
        stored = await world.get(f"{NS}/jobs/a")
        assert stored.etag == first.jobs[0].job.etag
        assert stored.source == "jobs.yaml"
        assert stored.next_time == first.jobs[0].job.next_time
        changed = job("b", priority=5, retry=job_pb2.Retry(max_attempts=7))
        changed.spec.schedules[0].every.period.seconds = 30
        second = await apply(world, job("c"), changed, job("d"))
        assert changes(second) == [NONE, UPDATED, CREATED]
        assert list(second.jobs[1].changed_paths) == [
            "schedules",
            "priority",
            "retry.max_attempts",
        ]
        assert second.jobs[1].job.version == 2
        assert list(second.jobs[0].changed_paths) == []

    story(scenario)


def test_jobs_of_one_file_with_the_same_definition_go_their_own_ways() -> None:
    async def scenario(world: World) -> None:
        await apply(world, job("a"), job("b", labels={"team": "x", "site": "y"}), job("c"))
        changed = job("a", priority=5)
        await apply(world, changed, job("b", labels={"site": "y", "team": "x"}), job("c"))
        a, b, c = [await world.get(f"{NS}/jobs/{name}") for name in "abc"]
        assert (a.spec.priority, b.spec.priority, c.spec.priority) == (5, 0, 0)
        assert (dict(a.spec.labels), dict(b.spec.labels)) == ({}, {"team": "x", "site": "y"})
        assert (a.version, b.version, c.version) == (2, 1, 1)
        assert len({a.uid, b.uid, c.uid}) == 3

    story(scenario)


def test_jobs_of_one_file_whose_times_depend_on_the_job_have_times_of_their_own() -> None:
    async def scenario(world: World) -> None:
        hashed = job_pb2.Schedule(cron="H H * * *", time_zone="UTC")
        counted = job_pb2.Schedule(cron="@hourly", time_zone="UTC", max_runs=2)
        jobs = [job_pb2.Job(name=f"{NS}/jobs/{name}") for name in ("a", "b", "c")]
        for each, schedule in zip(jobs, (hashed, hashed, counted), strict=True):
            each.spec.CopyFrom(job_pb2.JobSpec(task=shell(), schedules=[schedule]))
        applied = (await apply(world, *jobs)).jobs
        for each in applied:
            preview = await world.jobs_api.PreviewJob(
                api.PreviewJobRequest(name=each.job.name, count=3)
            )
            assert preview.times[0].nominal_time == each.job.next_time
        assert applied[0].job.next_time != applied[1].job.next_time
        assert len(preview.times) == 2

    story(scenario)


def test_jobs_that_stand_in_the_midst_of_many_new_ones_are_found_and_keep_theirs() -> None:
    async def scenario(world: World) -> None:
        await apply(world, job("j300", priority=5), job("j301"), source="other")
        before = await world.get(f"{NS}/jobs/j301")
        applied = (await apply(world, *(job(f"j{number}") for number in range(450)))).jobs
        assert [each.job.name.rpartition("/j")[2] for each in applied] == list(map(str, range(450)))
        others = [*applied[:300], *applied[302:]]
        assert {each.change for each in others} == {CREATED}
        assert len({each.job.uid for each in applied}) == 450
        assert (applied[300].change, list(applied[300].changed_paths)) == (UPDATED, ["priority"])
        assert (applied[301].change, applied[301].job.etag) == (NONE, before.etag)
        for number in (0, 199, 299, 302, 449):
            stored = await world.get(f"{NS}/jobs/j{number}")
            told = applied[number].job
            assert (stored.uid, stored.etag, stored.spec) == (told.uid, told.etag, told.spec)
            assert stored.next_time == told.next_time

    story(scenario)


def test_applying_the_same_again_writes_nothing_at_all() -> None:
    async def scenario(world: World) -> None:
        jobs = [job(f"j{number}", labels={"n": str(number)}) for number in range(250)]
        first = await apply(world, *jobs, source="a")
        before = await world.revision()
        for source in ("a", ""):
            again = await apply(world, *jobs, source=source)
            assert changes(again) == [NONE] * 250
            assert [a.job.etag for a in again.jobs] == [a.job.etag for a in first.jobs]
            assert await world.revision() == before

    story(scenario)


def test_who_applied_it_last_is_noted_though_nothing_else_changed() -> None:
    async def scenario(world: World) -> None:
        await apply(world, job("a"), source="one")
        again = await apply(world, job("a"), source="two")
        assert changes(again) == [NONE]
        stored = await world.get(f"{NS}/jobs/a")
        assert (stored.source, stored.version) == ("two", 1)
        assert stored.etag == again.jobs[0].job.etag

    story(scenario)


def test_one_bad_job_refuses_the_whole_naming_every_job_and_field() -> None:
    async def scenario(world: World) -> None:
        await apply(world, job("known"))
        before = await world.revision()
        past = job("past")
        past.spec.schedules[0].at.times.append("2001-01-01T00:00:00Z")
        with pytest.raises(errors.InvalidArgument) as raised:
            await apply(
                world,
                job("good"),
                job("one", queue="A/B"),
                job("two", priority=1000),
                job("Three"),
                job("good"),
                job("known", max_live=-1),
            )
        lines = raised.value.message.split("\n")
        assert lines[0] == "5 of 6 jobs can't be used; nothing was written:"
        assert lines[1].startswith(f"jobs[1] {NS}/jobs/one: spec.queue: 'A/B' can't be used")
        assert lines[2].startswith(f"jobs[2] {NS}/jobs/two: spec.priority: 1000 can't be used")
        assert lines[3].startswith(f"jobs[3]: name: '{NS}/jobs/Three' can't be used")
        assert lines[4] == f"jobs[4]: name: '{NS}/jobs/good' can't be used; expected each name once"
        assert lines[5].startswith(f"jobs[5] {NS}/jobs/known: spec.max_live: -1")
        assert raised.value.field == "jobs[1].spec.queue"
        with pytest.raises(errors.InvalidArgument, match="never fires after"):
            await apply(world, *(job(f"j{number}") for number in range(150)), past)
        assert await world.revision() == before

    story(scenario)


def test_a_refusal_of_very_many_jobs_fits_into_what_clients_take() -> None:
    async def scenario(world: World) -> None:
        jobs = [job(f"j{number}", queue="\U0001f600" * 60) for number in range(1_000)]
        with pytest.raises(errors.InvalidArgument) as raised:
            await apply(world, *jobs)
        assert raised.value.message.startswith("1000 of 1000 jobs can't be used")
        assert raised.value.message.splitlines()[-1].startswith("and 9")
        assert len(raised.value.message.encode()) < 2_000

    story(scenario)


def test_validating_tells_what_would_change_and_writes_nothing() -> None:
    async def scenario(world: World) -> None:
        await apply(world, job("a"))
        before = await world.revision()
        answer = await apply(world, job("a", priority=3), job("b"), validate_only=True)
        assert changes(answer) == [UPDATED, CREATED]
        assert list(answer.jobs[0].changed_paths) == ["priority"]
        assert answer.jobs[1].job.HasField("next_time")
        assert await world.revision() == before

    story(scenario)


def test_a_paused_job_stays_paused_and_a_fired_one_keeps_its_past() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(1)
        made = await world.make(schedules=every(1))
        await world.until(start + 3 * S)
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB, reason="r"))
        applied = (await apply(world, job("report"))).jobs[0]
        assert applied.change == UPDATED
        assert applied.job.paused
        assert applied.job.uid == made.uid
        await world.jobs_api.ResumeJob(api.ResumeJobRequest(name=JOB))
        await world.until(start + 70 * S)
        name = world.jobs.name_of("default", "report", made.uid)
        await world.assert_tiled(name)

    story(scenario, lasts_s=0.1)


def test_too_many_jobs_are_refused() -> None:
    async def scenario(world: World) -> None:
        before = await world.revision()
        with pytest.raises(errors.TooLarge, match="10,001 jobs are too many"):
            await apply(world, *[job_pb2.Job(name="x")] * 10_001)
        large = job("a", description="x" * 1_000)
        with pytest.raises(errors.TooLarge, match="bytes are too many"):
            await apply(world, *[large] * 3_500)
        assert await world.revision() == before

    story(scenario)


@pytest.mark.slow
def test_ten_thousand_jobs_are_applied_in_one_call() -> None:
    async def scenario(world: World) -> None:
        jobs = [job(f"j{number:05}-{'x' * 56}") for number in range(10_000)]
        request = api.ApplyJobsRequest(jobs=jobs, source="s" * 200)
        answer = await world.jobs_api.ApplyJobs(request, timeout=60)
        assert changes(answer) == [CREATED] * 10_000
        assert 2 * MIB < answer.ByteSize() < 4 * MIB
        assert answer.jobs[0].job.spec.queue == "default"
        assert not answer.jobs[-1].job.HasField("spec"), "an answer has at most 4 MiB"
        assert answer.jobs[-1].job.HasField("next_time")
        assert len(await world.below(b"jobs/")) == 10_000
        assert len(await world.below(b"timers/")) == 10_000

    story(scenario)


def test_applying_meets_a_job_that_fires_all_the_time() -> None:
    async def scenario(world: World) -> None:
        names = [f"j{number}" for number in range(40)]
        await apply(world, *(job(name, schedules=every(1)) for name in names))
        for round_ in range(6):
            answer = await apply(
                world, *(job(name, schedules=every(1), priority=round_ + 1) for name in names)
            )
            assert changes(answer) == [UPDATED] * 40
            await asyncio.sleep(0.73)
        for name in names[:5]:
            found = await world.get(f"{NS}/jobs/{name}")
            assert found.version == 7
            await world.assert_tiled(world.jobs.name_of("default", name, found.uid))

    story(scenario, lasts_s=0.1)


def test_two_files_applied_at_once_are_applied_one_after_the_other() -> None:
    async def scenario(world: World) -> None:
        names = [f"j{number}" for number in range(60)]
        await apply(world, *(job(name) for name in names))
        addresses = ("127.0.0.1:7400", "127.0.0.1:7402")
        answers = await asyncio.gather(
            *(
                JobServiceStub(world.open_channel(address)).ApplyJobs(
                    api.ApplyJobsRequest(jobs=[job(name, priority=number) for name in names])
                )
                for number, address in enumerate(addresses, start=1)
            )
        )
        for index, name in enumerate(names):
            stored = await world.get(f"{NS}/jobs/{name}")
            assert stored.version == 3
            told = {answer.jobs[index].job.version: answer.jobs[index] for answer in answers}
            assert sorted(told) == [2, 3]
            assert told[3].job.etag == stored.etag

    story(scenario, coordinators=("coordinator-1", "coordinator-2"))


@pytest.mark.parametrize("durable", [True, False])
def test_a_lost_answer_of_the_store_is_found_out_about(*, durable: bool) -> None:
    async def scenario(world: World) -> None:
        async def crash(_batch: object) -> None:
            world.crash("store")
            await asyncio.sleep(0)

        await asyncio.sleep(1)
        if durable:
            world.disk.before_return = crash
        else:
            world.disk.before_durable = crash
        applying = asyncio.ensure_future(apply(world, *(job(f"j{n}") for n in range(150))))
        await asyncio.sleep(0.3)
        assert not applying.done()
        await world.start_store()
        answer = await applying
        assert changes(answer) == [CREATED] * 150
        assert len(await world.below(b"jobs/")) == 150
        assert answer.jobs[0].job.etag == (await world.get(f"{NS}/jobs/j0")).etag

    story(scenario)
