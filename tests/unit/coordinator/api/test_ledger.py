"""The ledger: one row per nominal time, held against what happened and against `why`."""

from __future__ import annotations

from typing import Any

import pytest
from unit.coordinator.api.world import JOB, S, World, every, shell, story

from sexton.errors import InvalidArgument, NotFound
from sexton.v1 import job_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_records.times import instant_of, timestamp


async def ledger(world: World, **fields: Any) -> list[api.LedgerEntry]:
    """Reads all pages."""
    found: list[api.LedgerEntry] = []
    request = api.ListDecisionsRequest(**({"name": JOB, "page_size": 7} | fields))
    while True:
        page = await world.jobs_api.ListDecisions(request)
        found += page.entries
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return found


def words(entries: list[api.LedgerEntry], start: int) -> list[tuple[int, str]]:
    return [((instant_of(e.nominal_time) - start) // S, e.decision) for e in entries]


@pytest.mark.parametrize(
    "overlap",
    [
        job_pb2.OVERLAP_POLICY_SKIP,
        job_pb2.OVERLAP_POLICY_BUFFER_ONE,
        job_pb2.OVERLAP_POLICY_CANCEL_OTHER,
        job_pb2.OVERLAP_POLICY_ALLOW_ALL,
    ],
)
def test_every_row_says_what_why_says(overlap: job_pb2.OverlapPolicy.ValueType) -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(1)
        await world.until(start - S // 2)
        await world.make(schedules=every(1), overlap=overlap)
        await world.until(start + 4 * S)
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB))
        await world.until(start + 7 * S + S // 2)
        spec = job_pb2.JobSpec(task=shell("edited"), schedules=every(2), overlap=overlap)
        await world.jobs_api.UpdateJob(api.UpdateJobRequest(job=job_pb2.Job(name=JOB, spec=spec)))
        await world.jobs_api.ResumeJob(api.ResumeJobRequest(name=JOB))
        await world.until(start + 15 * S + S // 2)
        rows = await ledger(world)
        shown = [instant_of(row.nominal_time) for row in rows]
        odd = (start // S + 8) % 2  # from the edit on every second time is asked for
        assert shown == [
            *range(start, start + 8 * S, S),
            *range(start + (8 + odd) * S, start + 16 * S, 2 * S),
        ]
        for row in rows:
            why = await world.jobs_api.ExplainJob(
                api.ExplainJobRequest(name=JOB, time=row.nominal_time)
            )
            assert row.decision == (why.decision or "due")
            assert row.run.name == why.run.name
            assert row.job_version == (1 if instant_of(row.nominal_time) < start + 8 * S else 2)
            assert row.HasField("decide_time") is (row.decision != "due")
        assert await ledger(world, descending=True) == rows[::-1]

    story(scenario, lasts_s=2.2)


def test_the_future_is_forecast_up_to_the_end_of_the_range() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        await world.make(schedules=every(10))
        rows = await ledger(world, end_time=timestamp(start + 30 * S))
        assert words(rows, start) == [(at, "forecast") for at in (0, 10, 20, 30)]
        await world.until(start + 15 * S)
        rows = await ledger(
            world, start_time=timestamp(start + 1), end_time=timestamp(start + 25 * S)
        )
        assert words(rows, start) == [(10, "fired"), (20, "forecast")]
        assert rows[0].reason == "on_time"
        assert rows[0].run.queue == "default"
        assert not rows[0].run.HasField("task")

    story(scenario)


def test_times_that_a_calendar_takes_away_are_rows_too() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        schedule = every(5)[0]
        schedule.exclude.add(name="odd", crons=["5-59/10 * * * * *"])
        await world.make(schedules=[schedule])
        await world.until(start + 11 * S)
        rows = await ledger(world, start_time=timestamp(start), end_time=timestamp(start + 15 * S))
        assert words(rows, start) == [
            (0, "fired"),
            (5, "excluded"),
            (10, "fired"),
            (15, "excluded"),
        ]
        assert rows[1].reason == "calendar"

    story(scenario)


def test_what_is_skipped_names_the_run_that_was_in_the_way() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        await world.make(schedules=every(10))
        await world.until(start + 31 * S)
        first, *rest = await ledger(world)
        assert words(rest, start) == [(10, "skipped"), (20, "skipped"), (30, "skipped")]
        assert {row.blocked_by for row in rest} == {first.run.name}
        assert {row.reason for row in rest} == {"overlap"}

    story(scenario, lasts_s=100.0)


def test_a_paused_job_says_so_and_its_undecided_times_are_due() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        await world.make(schedules=every(10))
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB))
        await world.until(start + S)
        rows = await ledger(world, end_time=timestamp(start + 10 * S))
        assert words(rows, start) == [(0, "due"), (10, "forecast")]
        assert {row.reason for row in rows} == {"paused"}

    story(scenario)


def test_ten_years_of_seconds_are_listed_page_by_page() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(1)
        await world.make(schedules=every(1))
        end = timestamp(start + 10 * 366 * 86_400 * S)
        request = api.ListDecisionsRequest(
            name=JOB, start_time=timestamp(start), end_time=end, page_size=1_000
        )
        page = await world.jobs_api.ListDecisions(request)
        assert len(page.entries) == 1_000
        request.page_token = page.next_page_token
        page = await world.jobs_api.ListDecisions(request)
        assert instant_of(page.entries[0].nominal_time) == start + 1_000 * S

    story(scenario)


def test_what_cannot_be_asked_is_refused() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        now = world.mesh_now()
        before = await world.revision()
        for fields, named in (
            ({"name": "report"}, "name"),
            ({"page_size": 1_001}, "page_size"),
            ({"page_size": -1}, "page_size"),
            ({"page_token": "abc"}, "page_token"),
            ({"start_time": timestamp(now), "end_time": timestamp(now - S)}, "end_time"),
        ):
            with pytest.raises(InvalidArgument) as raised:
                await ledger(world, **fields)
            assert raised.value.field == named
        with pytest.raises(NotFound):
            await ledger(world, name=JOB + "-two")
        page = await world.jobs_api.ListDecisions(
            api.ListDecisionsRequest(name=JOB, page_size=1, end_time=timestamp(now + 1_000 * S))
        )
        with pytest.raises(InvalidArgument, match="page of the very same query"):
            await ledger(world, page_token=page.next_page_token)
        assert await world.revision() == before

    story(scenario)
