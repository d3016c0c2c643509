"""Jobs through the API: create, read, list, update, pause, resume, delete."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from unit.coordinator.api.world import JOB, MINUTES, NS, S, World, every, shell, story

from sexton import errors
from sexton.v1 import job_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_core.instants import format_instant
from sexton_records.times import instant_of


def test_a_created_job_is_read_back_with_every_default_written_out() -> None:
    async def scenario(world: World) -> None:
        made = await world.make()
        assert made == await world.get()
        assert made.name == JOB
        assert len(made.uid) == 24
        assert made.version == 1
        assert made.etag
        assert not made.paused
        assert made.spec.queue == "default"
        assert made.spec.overlap == job_pb2.OVERLAP_POLICY_SKIP
        assert made.spec.retry.max_attempts == 3
        assert instant_of(made.next_time) % (60 * S) == 0
        assert made.create_time == made.update_time == made.cursor_time

    story(scenario)


def test_a_taken_name_is_refused_and_nothing_is_written() -> None:
    async def scenario(world: World) -> None:
        made = await world.make()
        before = await world.revision()
        with pytest.raises(errors.AlreadyExists, match="report' exists already"):
            await world.make(priority=3)
        assert await world.get() == made
        assert await world.revision() == before

    story(scenario)


def test_a_repeated_request_is_answered_alike_and_has_one_effect() -> None:
    async def scenario(world: World) -> None:
        spec = job_pb2.JobSpec(task=shell(), schedules=MINUTES)
        request = api.CreateJobRequest(job=job_pb2.Job(name=JOB, spec=spec), request_id="r 1")
        first = await world.jobs_api.CreateJob(request)
        before = await world.revision()
        assert await world.jobs_api.CreateJob(request) == first
        assert await world.revision() == before
        request.job.spec.priority = 5
        with pytest.raises(errors.InvalidArgument, match="request_id: 'r 1' can't be used"):
            await world.jobs_api.CreateJob(request)
        await world.jobs_api.DeleteJob(api.DeleteJobRequest(name=JOB))
        request.job.spec.priority = 0
        assert await world.jobs_api.CreateJob(request) == first, "within ten minutes: as recorded"

    story(scenario)


def test_validating_answers_as_creating_would_and_writes_nothing() -> None:
    async def scenario(world: World) -> None:
        before = await world.revision()
        spec = job_pb2.JobSpec(task=shell(), schedules=MINUTES)
        request = api.CreateJobRequest(job=job_pb2.Job(name=JOB, spec=spec), validate_only=True)
        answer = (await world.jobs_api.CreateJob(request)).job
        assert answer.spec.queue == "default"
        assert answer.HasField("next_time")
        assert answer.etag == ""
        assert await world.revision() == before

    story(scenario)


def test_what_deserves_a_second_look_is_said() -> None:
    async def scenario(world: World) -> None:
        made = await world.make(
            schedules=[job_pb2.Schedule(cron="0 3 * * *")],
            catch_up=job_pb2.CatchUp(policy=job_pb2.CatchUp.POLICY_ALL),
        )
        assert made.warnings[0] == "no timezone is given: wall times are read as UTC"
        assert made.warnings[1].startswith("catch_up: policy all without a window")
        assert (await world.get()).warnings == made.warnings

    story(scenario)


def test_lists_are_in_order_of_name_in_pages_that_join_without_gap() -> None:
    async def scenario(world: World) -> None:
        names = [f"{NS}/jobs/{letter}{number}" for letter in "ab" for number in range(60)]
        names.append("namespaces/other/jobs/a1")
        request = api.ApplyJobsRequest(
            jobs=[
                job_pb2.Job(name=name, spec=job_pb2.JobSpec(task=shell(KEY="secret")))
                for name in names
            ]
        )
        await world.jobs_api.ApplyJobs(request)
        for parent, prefix, expected in [
            ("", "", sorted(names)),
            (NS, "", sorted(names[:-1])),
            (NS, "b1", sorted(name for name in names if "/b1" in name)),
            ("", "a1", sorted(name for name in names if "/a1" in name)),
            ("namespaces/other", "", ["namespaces/other/jobs/a1"]),
            ("namespaces/none", "", []),
        ]:
            for size in (1, 7, 50, 1000):
                found, token, pages = [], "", 0
                while True:
                    page = await world.jobs_api.ListJobs(
                        api.ListJobsRequest(
                            parent=parent, prefix=prefix, page_size=size, page_token=token
                        )
                    )
                    assert len(page.jobs) <= size
                    found += [job.name for job in page.jobs]
                    token, pages = page.next_page_token, pages + 1
                    if not token or pages > 500:
                        break
                assert found == expected, (parent, prefix, size)
                if size == 1:
                    break
        page = await world.jobs_api.ListJobs(api.ListJobsRequest(page_size=2))
        assert all(not job.spec.HasField("task") for job in page.jobs)
        assert b"secret" not in page.SerializeToString()
        page = await world.jobs_api.ListJobs(api.ListJobsRequest(page_size=2, view=api.VIEW_FULL))
        assert page.jobs[0].spec.task.shell.env["KEY"].value == "secret"

    story(scenario)


def test_an_update_makes_a_version_and_keeps_the_former() -> None:
    async def scenario(world: World) -> None:
        made = await world.make()
        job = job_pb2.Job(name=JOB, etag=made.etag, spec=made.spec)
        job.spec.priority = 7
        updated = (await world.jobs_api.UpdateJob(api.UpdateJobRequest(job=job))).job
        assert updated.version == 2
        assert updated.spec.priority == 7
        assert updated.uid == made.uid
        assert updated.etag != made.etag
        assert updated == await world.get()
        (former,) = await world.below(b"versions/")
        assert former.key.endswith(b"/0000000001")

    story(scenario)


def test_an_update_that_changes_nothing_writes_nothing() -> None:
    async def scenario(world: World) -> None:
        made = await world.make()
        before = await world.revision()
        request = api.UpdateJobRequest(
            job=job_pb2.Job(name=JOB, spec=job_pb2.JobSpec(task=shell(), schedules=MINUTES))
        )
        assert (await world.jobs_api.UpdateJob(request)).job == made
        assert await world.revision() == before

    story(scenario)


def test_an_update_with_a_mask_takes_only_its_paths() -> None:
    async def scenario(world: World) -> None:
        await world.make(priority=4, labels={"team": "a", "tier": "1"})
        request = api.UpdateJobRequest(
            job=job_pb2.Job(
                name=JOB,
                spec=job_pb2.JobSpec(
                    retry=job_pb2.Retry(max_attempts=9), labels={"team": "b"}, priority=99
                ),
            ),
            update_mask=FieldMask(paths=["retry.max_attempts", "labels"]),
        )
        spec = (await world.jobs_api.UpdateJob(request)).job.spec
        assert spec.retry.max_attempts == 9
        assert spec.retry.multiplier == 2
        assert dict(spec.labels) == {"team": "b"}
        assert spec.priority == 4
        assert list(spec.schedules) == list((await world.get()).spec.schedules)

    story(scenario)


def test_an_update_of_what_was_changed_meanwhile_is_refused() -> None:
    async def scenario(world: World) -> None:
        made = await world.make()
        job = job_pb2.Job(name=JOB, etag=made.etag, spec=made.spec)
        job.spec.priority = 1
        await world.jobs_api.UpdateJob(api.UpdateJobRequest(job=job))
        before = await world.revision()
        with pytest.raises(errors.StaleRevision) as raised:
            await world.jobs_api.UpdateJob(api.UpdateJobRequest(job=job))
        assert str(raised.value.current) == (await world.get()).etag
        assert await world.revision() == before

    story(scenario)


def test_validating_an_update_tells_what_would_be() -> None:
    async def scenario(world: World) -> None:
        made = await world.make()
        before = await world.revision()
        job = job_pb2.Job(name=JOB, spec=job_pb2.JobSpec(task=shell(), schedules=every(7)))
        request = api.UpdateJobRequest(job=job, validate_only=True)
        answer = (await world.jobs_api.UpdateJob(request)).job
        assert answer.version == 2
        assert answer.spec.schedules[0].every.period.seconds == 7
        assert await world.get() == made
        assert await world.revision() == before

    story(scenario)


def test_an_edit_that_would_never_fire_is_refused_but_a_finished_job_may_be_described() -> None:
    async def scenario(world: World) -> None:
        moment = (world.mesh_now() // S + 3) * S
        at = job_pb2.At(times=[format_instant(moment)])
        await world.make(schedules=[job_pb2.Schedule(at=at)])
        await world.until(moment + 2 * S)
        assert not (await world.get()).HasField("next_time")
        mask = FieldMask(paths=["description"])
        spec = job_pb2.JobSpec(description="done")
        request = api.UpdateJobRequest(job=job_pb2.Job(name=JOB, spec=spec), update_mask=mask)
        assert (await world.jobs_api.UpdateJob(request)).job.spec.description == "done"
        request.job.spec.schedules.add().at.times.append(format_instant(moment - 60 * S))
        request.update_mask.paths.append("schedules")
        with pytest.raises(errors.InvalidArgument, match="never fires after"):
            await world.jobs_api.UpdateJob(request)

    story(scenario)


def test_pausing_twice_is_pausing_once_and_resuming_likewise() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        paused = (
            await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB, reason="maintenance"))
        ).job
        assert paused.paused
        assert paused.pause_reason == "maintenance"
        assert paused.HasField("next_time")
        before = await world.revision()
        again = (await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB, reason="other"))).job
        assert again == paused
        assert await world.revision() == before
        resumed = (await world.jobs_api.ResumeJob(api.ResumeJobRequest(name=JOB))).job
        assert not resumed.paused
        assert resumed.pause_reason == ""
        before = await world.revision()
        assert (await world.jobs_api.ResumeJob(api.ResumeJobRequest(name=JOB))).job == resumed
        assert await world.revision() == before

    story(scenario)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (api.RESUME_MODE_UNSPECIFIED, [0, 10, 60]),
        (api.RESUME_MODE_NEXT, [0, 10, 60]),
        (api.RESUME_MODE_NOW, [0, 10, 50, 60]),
        (api.RESUME_MODE_CATCH_UP, [0, 10, 20, 30, 40, 50, 60]),
    ],
)
def test_resuming_does_with_the_pause_what_its_mode_says(
    mode: api.ResumeMode.ValueType, expected: list[int]
) -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        job = await world.make(
            schedules=every(10),
            overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL,
            catch_up=job_pb2.CatchUp(
                policy=job_pb2.CatchUp.POLICY_ALL, window=Duration(seconds=3600)
            ),
        )
        name = world.jobs.name_of("default", "report", job.uid)
        await world.until(start + 15 * S)
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB))
        await world.until(start + 55 * S)
        await world.jobs_api.ResumeJob(api.ResumeJobRequest(name=JOB, mode=mode))
        await world.until(start + 65 * S)
        assert await world.nominal_times(name, start) == expected
        await world.assert_tiled(name)

    story(scenario, lasts_s=0.1)


def test_a_deleted_job_is_gone_and_its_name_free_for_another() -> None:
    async def scenario(world: World) -> None:
        made = await world.make(schedules=every(1))
        await world.until(world.mesh_now() + 3 * S)
        await world.jobs_api.DeleteJob(api.DeleteJobRequest(name=JOB, uid=made.uid))
        with pytest.raises(errors.NotFound):
            await world.get()
        await world.until(world.mesh_now() + 10 * S)
        for prefix in (b"jobs/", b"state/", b"timers/", b"deleted/", b"active/"):
            assert await world.below(prefix) == []
        before = await world.revision()
        await world.jobs_api.DeleteJob(api.DeleteJobRequest(name=JOB, uid=made.uid))
        await world.jobs_api.DeleteJob(api.DeleteJobRequest(name=JOB, etag=made.etag))
        with pytest.raises(errors.NotFound):
            await world.jobs_api.DeleteJob(api.DeleteJobRequest(name=JOB))
        assert await world.revision() == before
        anew = await world.make()
        assert anew.uid != made.uid
        await world.jobs_api.DeleteJob(api.DeleteJobRequest(name=JOB, uid=made.uid))
        assert await world.get() == anew, "another incarnation is not touched"

    story(scenario, lasts_s=100)


def test_a_delete_of_another_version_is_refused() -> None:
    async def scenario(world: World) -> None:
        made = await world.make()
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB))
        with pytest.raises(errors.StaleRevision):
            await world.jobs_api.DeleteJob(api.DeleteJobRequest(name=JOB, etag=made.etag))
        assert (await world.get()).paused

    story(scenario)


@pytest.mark.slow
def test_a_definition_as_large_as_may_be_is_created_and_edited() -> None:
    async def scenario(world: World) -> None:
        times = [format_instant((2_000_000_000 + n) * S) for n in range(1_000)]
        schedules = [job_pb2.Schedule(at=job_pb2.At(times=times))] * 17
        spec = job_pb2.JobSpec(task=shell("x" * 30_000), schedules=schedules)
        assert 390_000 < spec.ByteSize() < 400 * 1024
        job = job_pb2.Job(name=JOB, spec=spec)
        await world.jobs_api.CreateJob(api.CreateJobRequest(job=job, request_id="r"))
        mask = FieldMask(paths=["priority"])
        request = api.UpdateJobRequest(
            job=job_pb2.Job(name=JOB, spec=job_pb2.JobSpec(priority=1)), update_mask=mask
        )
        assert (await world.jobs_api.UpdateJob(request)).job.version == 2
        request.update_mask.paths.append("task")
        request.job.spec.task.http.url = "https://example.org"
        request.job.spec.task.http.body = "x" * 60_000
        with pytest.raises(errors.InvalidArgument, match="at most 409,600 bytes"):
            await world.jobs_api.UpdateJob(request)

    story(scenario)


def test_a_page_of_large_definitions_fits_one_message() -> None:
    async def scenario(world: World) -> None:
        http = job_pb2.HttpTask(url="https://example.org", body="x" * 64_000)
        spec = job_pb2.JobSpec(task=job_pb2.Task(http=http))
        names = [f"{NS}/jobs/j{number:02}" for number in range(45)]
        for name in names:
            await world.jobs_api.CreateJob(
                api.CreateJobRequest(job=job_pb2.Job(name=name, spec=spec))
            )
        found, token, pages = [], "", 0
        while token or not pages:
            request = api.ListJobsRequest(view=api.VIEW_FULL, page_token=token)
            page = await world.jobs_api.ListJobs(request)
            assert page.ByteSize() < 3 * 1024 * 1024
            found += [job.name for job in page.jobs]
            token, pages = page.next_page_token, pages + 1
        assert found == names
        assert pages == 2

    story(scenario)
