"""Previews, versions and the load to come: what will be, before it is."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from unit.coordinator.api.world import JOB, NS, S, World, every, shell, story

from sexton.errors import InvalidArgument, NotFound
from sexton.v1 import job_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import forecasting
from sexton_records.times import instant_of, timestamp

MARCH = 1_806_019_200  # 2027-03-26T00:00:00Z
BERLIN = job_pb2.Schedule(cron="30 2 * * *", time_zone="Europe/Berlin")


async def preview(world: World, **fields: Any) -> api.PreviewJobResponse:
    request = api.PreviewJobRequest(**({"after_time": Timestamp(seconds=MARCH)} | fields))
    answer: api.PreviewJobResponse = await world.jobs_api.PreviewJob(request)
    return answer


def test_a_definition_is_previewed_over_a_clock_change_without_being_applied() -> None:
    async def scenario(world: World) -> None:
        before = await world.revision()
        answer = await preview(world, spec=job_pb2.JobSpec(schedules=[BERLIN]), count=4)
        assert [(row.local_time, row.note) for row in answer.times] == [
            ("2027-03-26T02:30:00+01:00", ""),
            ("2027-03-27T02:30:00+01:00", ""),
            ("2027-03-28T03:00:00+02:00", "the clock skips 02:30:00"),
            ("2027-03-29T02:30:00+02:00", ""),
        ]
        assert answer.descriptions == ["at 02:30 every day, Europe/Berlin"]
        assert any("02:30" in warning for warning in answer.warnings)
        assert not answer.complete
        assert await world.revision() == before

    story(scenario)


def test_a_job_is_previewed_as_it_stands_or_as_it_would_be() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=[job_pb2.Schedule(cron="H H * * *")])
        own = await preview(world, name=JOB, count=1)
        same = await preview(
            world,
            name=JOB,
            count=1,
            spec=job_pb2.JobSpec(schedules=[job_pb2.Schedule(cron="H H * * *")]),
        )
        assert own.times == same.times
        other = await preview(world, name=JOB, count=2, spec=job_pb2.JobSpec(schedules=every(60)))
        assert [instant_of(row.nominal_time) // S - MARCH for row in other.times] == [60, 120]
        new = await preview(
            world, name=f"{NS}/jobs/new", count=1, spec=job_pb2.JobSpec(schedules=every(60))
        )
        assert instant_of(new.times[0].nominal_time) // S - MARCH == 60
        by_hand = await preview(world, spec=job_pb2.JobSpec(task=shell()))
        assert (len(by_hand.times), by_hand.complete) == (0, True)

    story(scenario)


def test_the_end_of_a_schedule_and_of_the_range_are_told_apart() -> None:
    async def scenario(world: World) -> None:
        times = job_pb2.At(times=["2027-04-01T00:00:00Z", "2027-04-02T00:00:00Z"])
        spec = job_pb2.JobSpec(schedules=[job_pb2.Schedule(at=times)])
        answer = await preview(world, spec=spec)
        assert (len(answer.times), answer.complete) == (2, True)
        answer = await preview(world, spec=spec, count=1)
        assert (len(answer.times), answer.complete) == (1, False)
        until = Timestamp(seconds=MARCH + 6 * 86_400)
        answer = await preview(world, spec=spec, until_time=until)
        assert (len(answer.times), answer.complete) == (1, False)
        answer = await preview(world, spec=job_pb2.JobSpec(schedules=every(1)), count=1_000)
        assert len(answer.times) == 1_000

    story(scenario)


def test_what_calendars_take_away_is_shown_between() -> None:
    async def scenario(world: World) -> None:
        schedule = job_pb2.Schedule(cron="0 12 * * *")
        schedule.exclude.add(name="weekend", weekdays=["SAT", "SUN"])
        answer = await preview(world, spec=job_pb2.JobSpec(schedules=[schedule]), count=2)
        assert [(row.local_time[:10], row.excluded_by) for row in answer.times] == [
            ("2027-03-26", ""),
            ("2027-03-27", "weekend"),
            ("2027-03-29", ""),
        ]
        sunday = answer.times[1].excluded_until_time
        assert sunday.ToJsonString() == "2027-03-28T12:00:00Z"

    story(scenario)


def test_what_cannot_be_previewed_is_refused() -> None:
    async def scenario(world: World) -> None:
        spec = job_pb2.JobSpec(schedules=every(60))
        wrong: list[tuple[dict[str, Any], str]] = [
            ({}, "name"),
            ({"name": "report"}, "name"),
            ({"spec": spec, "count": 1_001}, "count"),
            ({"spec": spec, "count": -1}, "count"),
            ({"spec": spec, "until_time": Timestamp(seconds=MARCH)}, "until_time"),
            ({"spec": spec, "after_time": Timestamp(seconds=-1)}, "after_time"),
            ({"spec": _cron("* * * *")}, "spec.cron"),
            ({"spec": _cron("H * * * *")}, "spec.minute"),
            ({"spec": _cron("* * 31 2 *")}, "spec.schedule"),
        ]
        for fields, named in wrong:
            with pytest.raises(InvalidArgument) as raised:
                await preview(world, **fields)
            assert raised.value.field == named
        with pytest.raises(NotFound):
            await preview(world, name=JOB)

    story(scenario)


def _cron(expression: str) -> job_pb2.JobSpec:
    return job_pb2.JobSpec(schedules=[job_pb2.Schedule(cron=expression)])


def test_versions_are_listed_newest_first_with_the_times_that_they_ruled() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=every(10))
        for seconds in (20, 30, 40):
            await world.until(world.mesh_now() + 2 * S)
            spec = job_pb2.JobSpec(task=shell(), schedules=every(seconds))
            job = job_pb2.Job(name=JOB, spec=spec)
            await world.jobs_api.ApplyJobs(api.ApplyJobsRequest(jobs=[job], source="a.yaml"))
        request = api.ListJobVersionsRequest(name=JOB, page_size=3)
        first = await world.jobs_api.ListJobVersions(request)
        request.page_token = first.next_page_token
        second = await world.jobs_api.ListJobVersions(request)
        shown = [*first.versions, *second.versions]
        assert [version.version for version in shown] == [4, 3, 2, 1]
        periods = [v.spec.schedules[0].every.period.seconds for v in shown]
        assert periods == [40, 30, 20, 10]
        assert [version.source for version in shown] == ["a.yaml", "a.yaml", "a.yaml", ""]
        assert not shown[0].HasField("until_time")
        for newer, older in pairwise(shown):
            assert older.until_time == newer.after_time
        assert not second.next_page_token

    story(scenario)


def test_versions_of_what_is_not_there_and_pages_out_of_range_are_refused() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(NotFound):
            await world.jobs_api.ListJobVersions(api.ListJobVersionsRequest(name=JOB))
        await world.make()
        for fields, named in (
            ({"page_size": 101}, "page_size"),
            ({"page_size": -1}, "page_size"),
            ({"page_token": "x"}, "page_token"),
        ):
            with pytest.raises(InvalidArgument) as raised:
                await world.jobs_api.ListJobVersions(api.ListJobVersionsRequest(name=JOB, **fields))
            assert raised.value.field == named

    story(scenario)


async def load(world: World, **fields: Any) -> api.ForecastLoadResponse:
    given = {"start_time": Timestamp(seconds=MARCH), "end_time": Timestamp(seconds=MARCH + 3_600)}
    answer: api.ForecastLoadResponse = await world.jobs_api.ForecastLoad(
        api.ForecastLoadRequest(**(given | fields))
    )
    return answer


def test_the_load_to_come_is_counted_by_interval_with_its_greatest_jobs() -> None:
    async def scenario(world: World) -> None:
        for number in range(5):
            await world.make(f"{NS}/jobs/quarter-{number}", schedules=_every_minutes(15))
        await world.make(f"{NS}/jobs/often", schedules=every(20))
        await world.make(f"{NS}/jobs/hashed", schedules=[job_pb2.Schedule(cron="H * * * *")])
        await world.make(f"{NS}/jobs/paused", schedules=every(1))
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=f"{NS}/jobs/paused"))
        await world.make("namespaces/other/jobs/there", schedules=every(60))
        await world.make(f"{NS}/jobs/by-hand", schedules=[])
        answer = await load(world, parent=NS)
        assert (answer.jobs, answer.total, answer.truncated) == (7, 5 * 4 + 180 + 1, False)
        first = answer.intervals[0]
        assert (instant_of(first.start_time) // S - MARCH, first.count) == (0, 8)
        assert first.jobs[0] == f"{NS}/jobs/often"
        assert first.jobs[1:] == [f"{NS}/jobs/quarter-0", f"{NS}/jobs/quarter-1"]
        assert answer.intervals[1].count in {3, 4}
        everything = await load(world)
        assert (everything.jobs, everything.total) == (8, answer.total + 60)
        hours = await load(world, interval_s=3_600)
        assert [interval.count for interval in hours.intervals] == [everything.total]

    story(scenario)


def _every_minutes(minutes: int) -> list[job_pb2.Schedule]:
    return [job_pb2.Schedule(every=job_pb2.Every(period=Duration(seconds=60 * minutes)))]


def test_a_count_that_ends_at_its_bound_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=every(1))
        await world.make(f"{NS}/jobs/other", schedules=every(2))
        monkeypatch.setattr(forecasting, "MAX_TIMES", 1_000)
        answer = await load(world)
        assert (answer.truncated, answer.jobs, answer.total) == (True, 1, 1_800)

    story(scenario)


def test_a_count_that_has_not_read_all_jobs_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        spec = job_pb2.JobSpec(task=shell(), schedules=every(60))
        jobs = [job_pb2.Job(name=f"{NS}/jobs/j{number}", spec=spec) for number in range(1_001)]
        await world.jobs_api.ApplyJobs(api.ApplyJobsRequest(jobs=jobs))
        whole = await load(world)
        assert (whole.truncated, whole.jobs) == (False, 1_001)
        monkeypatch.setattr(forecasting, "READ_S", -1.0)
        part = await load(world)
        assert (part.truncated, part.jobs) == (True, 1_000)

    story(scenario)


def test_a_load_that_cannot_be_counted_is_refused() -> None:
    async def scenario(world: World) -> None:
        start = MARCH * S
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"parent": JOB}, "parent"),
            ({"end_time": timestamp(start)}, "end_time"),
            ({"end_time": timestamp(start + 31 * 86_400 * S + 1)}, "end_time"),
            ({"interval_s": -1}, "interval_s"),
            ({"interval_s": 86_401}, "interval_s"),
            ({"interval_s": 1, "end_time": timestamp(start + 50_001 * S)}, "interval_s"),
        ]
        for fields, named in wrong:
            with pytest.raises(InvalidArgument) as raised:
                await load(world, **fields)
            assert raised.value.field == named

    story(scenario)
