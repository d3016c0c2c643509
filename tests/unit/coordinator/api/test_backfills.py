"""Backfills through the API and the leader: each nominal time once, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from unit.coordinator.api.world import JOB, NS, S, World, every, shell, story

from sexton.errors import IllegalState, InvalidArgument, NotFound, Unavailable
from sexton.v1 import backfill_pb2 as pb
from sexton.v1 import job_pb2, run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.leader import retention
from sexton_records import keys
from sexton_records.times import instant_of, timestamp

TOGETHER = job_pb2.OVERLAP_POLICY_ALLOW_ALL
DAYS = [job_pb2.Schedule(cron="0 0 * * *")]
PAST = 1_796_083_200  # 2026-12-01T00:00:00Z less some days below
DAY = 86_400


def past(days: int) -> Timestamp:
    return Timestamp(seconds=PAST - 100 * DAY + days * DAY)


async def fill(world: World, **fields: Any) -> pb.CreateBackfillResponse:
    """Asks for a backfill of ten days."""
    given = {
        "parent": JOB,
        "start_time": past(0),
        "end_time": past(9),
        "request_id": "fill",
    } | fields
    answer: pb.CreateBackfillResponse = await world.fill_api.CreateBackfill(
        pb.CreateBackfillRequest(**given)
    )
    return answer


async def read(world: World, name: str) -> pb.Backfill:
    answer: pb.GetBackfillResponse = await world.fill_api.GetBackfill(
        pb.GetBackfillRequest(name=name)
    )
    return answer.backfill


async def ended(world: World, name: str) -> pb.Backfill:
    """Waits until a backfill starts nothing any more."""
    while True:
        backfill = await read(world, name)
        if backfill.state != pb.BACKFILL_STATE_STARTING:
            return backfill
        await asyncio.sleep(0.2)


async def filled_days(world: World) -> list[int]:
    """Gives the days of a backfill's runs, in the order of their creation."""
    kvs = await world.below(b"active/") + await world.below(b"runs/")
    runs = {}
    for kv in kvs:
        record = world.record_of(kv)
        if record.origin == run_pb2.RUN_ORIGIN_BACKFILL:
            assert runs.setdefault(record.run_id, record).create_time_ns == record.create_time_ns
    ordered = sorted(runs.values(), key=lambda record: record.create_time_ns)
    return [(record.nominal_ns // S - past(0).seconds) // DAY for record in ordered]


def test_its_runs_come_one_after_the_other_and_change_no_decision() -> None:
    async def scenario(world: World) -> None:
        job = await world.make(schedules=DAYS)
        backfill = (await fill(world)).backfill
        assert (backfill.total, backfill.job_version) == (10, 1)
        assert backfill.state == pb.BACKFILL_STATE_STARTING
        assert backfill.overlap == job_pb2.OVERLAP_POLICY_BUFFER_ALL
        await world.until(world.mesh_now() + S // 2)
        waiting = await read(world, backfill.name)
        assert waiting.waits_for.startswith(f"{JOB}/runs/b")
        done = await ended(world, backfill.name)
        assert (done.state, done.started, done.skipped) == (pb.BACKFILL_STATE_DONE, 10, 0)
        assert done.HasField("end_state_time")
        assert await filled_days(world) == list(range(10))
        assert len({seen.at for seen in world.queue.seen.values()}) == 10
        assert (await world.get()).cursor_time == job.cursor_time
        name = world.jobs.name_of("default", "report", job.uid)
        assert await world.decisions(name) == []

    story(scenario, lasts_s=0.3)


def test_order_overlap_and_what_has_succeeded_are_as_asked_for() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(1)
        job = await world.make(schedules=every(1), overlap=TOGETHER)
        created = (instant_of(job.create_time) - start) // S
        await world.until(start + 4 * S + S // 2)
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB))
        await world.until(start + 6 * S)
        await world.jobs_api.ResumeJob(api.ResumeJobRequest(name=JOB))
        await world.until(start + 8 * S + S // 2)
        wide = {
            "start_time": timestamp(start + (created - 1) * S),
            "end_time": timestamp(start + 7 * S),
            "order": pb.BACKFILL_ORDER_NEWEST_FIRST,
            "overlap": TOGETHER,
            "skip_succeeded": True,
        }
        before = await world.revision()
        shown = await fill(world, validate_only=True, **wide)
        assert await world.revision() - before <= 6, "only what was due meanwhile"
        missing = [(instant_of(one) - start) // S for one in shown.times]
        assert missing == [6, 5, created, created - 1], "paused, and before the job was made"
        total = 9 - created
        assert (shown.backfill.total, shown.backfill.started) == (total, 0)
        with pytest.raises(NotFound):
            await read(world, shown.backfill.name)
        backfill = (await fill(world, **wide)).backfill
        assert backfill.name == shown.backfill.name
        done = await ended(world, backfill.name)
        assert (done.started, done.skipped) == (4, total - 4)
        runs = (await world.runs_api.ListRuns(api.ListRunsRequest(parent=JOB))).runs
        times = [
            (instant_of(run.nominal_time) - start) // S
            for run in runs
            if run.origin == run_pb2.RUN_ORIGIN_BACKFILL
        ]
        assert sorted(times) == [created - 1, created, 5, 6]

    story(scenario, lasts_s=0.2)


def test_a_cancelled_one_starts_nothing_more_and_its_runs_go_on() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=DAYS)
        backfill = (await fill(world)).backfill
        await world.until(world.mesh_now() + 3 * S)
        for _ in range(2):
            answer = await world.fill_api.CancelBackfill(
                pb.CancelBackfillRequest(name=backfill.name)
            )
            assert answer.backfill.state == pb.BACKFILL_STATE_CANCELLED
        started = answer.backfill.started
        assert 1 < started < 10
        await world.until(world.mesh_now() + 10 * S)
        assert await filled_days(world) == list(range(started))
        assert await world.below(b"active/") == []
        again = (await fill(world)).backfill
        assert again.state == pb.BACKFILL_STATE_CANCELLED, "it is the same request"

    story(scenario)


def test_a_paused_job_holds_it_and_an_edit_does_not_change_what_it_runs() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=DAYS, task=shell("first"))
        backfill = (await fill(world)).backfill
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB))
        await world.until(world.mesh_now() + 2 * S)
        held = await read(world, backfill.name)
        assert (held.waits_for, held.state) == ("paused", pb.BACKFILL_STATE_STARTING)
        spec = job_pb2.JobSpec(task=shell("second"), schedules=every(86_400))
        await world.jobs_api.UpdateJob(api.UpdateJobRequest(job=job_pb2.Job(name=JOB, spec=spec)))
        await world.until(world.mesh_now() + 10 * S)
        assert (await read(world, backfill.name)).started == held.started
        await world.jobs_api.ResumeJob(api.ResumeJobRequest(name=JOB))
        done = await ended(world, backfill.name)
        assert (done.started, done.job_version) == (10, 1)
        records = [world.record_of(kv) for kv in await world.below(b"runs/")]
        assert {record.template.task.shell.command for record in records} == {"first"}
        assert {record.template.version for record in records} == {1}

    story(scenario, lasts_s=0.1)


def test_deleting_the_job_ends_it() -> None:
    async def scenario(world: World) -> None:
        job = await world.make(schedules=DAYS)
        await fill(world)
        await world.until(world.mesh_now() + 2 * S)
        await world.jobs_api.DeleteJob(api.DeleteJobRequest(name=JOB))
        await world.until(world.mesh_now() + 8 * S)
        (kv,) = await world.below(keys.backfills_prefix(0, job.uid))
        assert world.backfill_of(kv).state == pb.BACKFILL_STATE_CANCELLED
        started = world.backfill_of(kv).started
        await world.make(schedules=DAYS)
        await world.until(world.mesh_now() + 8 * S)
        assert len(await filled_days(world)) == started
        answer = await world.fill_api.ListBackfills(pb.ListBackfillsRequest(parent=JOB))
        assert len(answer.backfills) == 0, "another job, though of that name"

    story(scenario)


def test_the_schedules_own_starts_go_before_it_and_none_is_skipped_for_it() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(2)
        job = await world.make(schedules=every(2))
        await world.until(start - S)
        await fill(
            world, start_time=timestamp(start - 900 * S), end_time=timestamp(start - 702 * S)
        )
        await world.until(start + 21 * S)
        name = world.jobs.name_of("default", "report", job.uid)
        assert await world.decisions(name) == []
        assert await world.nominal_times(name, start) == list(range(0, 21, 2))
        assert len(await filled_days(world)) > 5
        await world.assert_tiled(name)

    story(scenario, lasts_s=0.9)


@pytest.mark.slow
def test_one_of_many_runs_leaves_room_for_other_jobs() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(2)
        await world.make(schedules=every(1), overlap=TOGETHER)
        other = await world.make(f"{NS}/jobs/other", schedules=every(2))
        await world.until(start - S)
        backfill = await fill(
            world,
            start_time=timestamp(start - 800 * S),
            end_time=timestamp(start - 601 * S),
            overlap=TOGETHER,
        )
        done = await ended(world, backfill.backfill.name)
        assert done.started == 200
        await world.until(start + 9 * S)
        name = world.jobs.name_of("default", "other", other.uid)
        assert await world.nominal_times(name, start) == [0, 2, 4, 6, 8]
        runs = await world.runs(name)
        assert all(run.reason == "on_time" for run in runs)

    story(scenario, lasts_s=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_takeovers_and_repeated_requests_start_each_run_once(seed: int) -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=DAYS)
        killed = 0
        backfill = None
        while backfill is None or backfill.state == pb.BACKFILL_STATE_STARTING:
            alive = next(name for name in world.coordinators if world.processes[name].alive)
            world.connect(alive)
            try:
                backfill = (await fill(world)).backfill
            except Unavailable:
                continue
            if killed < 3:
                leader = await world.leader()
                await asyncio.sleep(0.1 + 0.37 * seed)
                world.crash(leader)
                killed += 1
                await world.successor(leader)
                await world.start_coordinator(leader)
            await asyncio.sleep(0.5)
        assert backfill.state == pb.BACKFILL_STATE_DONE
        assert await filled_days(world) == list(range(10))

    story(scenario, seed, lasts_s=0.6, coordinators=("coordinator-1", "coordinator-2"))


def test_notices_that_are_lost_cost_time_and_nothing_else() -> None:
    async def scenario(world: World) -> None:
        world.queue.mute = True
        await world.make(schedules=DAYS)
        backfill = (await fill(world, end_time=past(3))).backfill
        done = await ended(world, backfill.name)
        assert (done.started, await filled_days(world)) == (4, [0, 1, 2, 3])

    story(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("cut_after_ms", [6, 7, 8])
def test_one_whose_answers_were_lost_goes_on_though_nobody_asks_again(cut_after_ms: int) -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=DAYS)
        await world.until(world.mesh_now() + S)
        asked = asyncio.create_task(fill(world))
        await asyncio.sleep(cut_after_ms / 1_000)
        world.network.cut("store", "coordinator-1")  # what is sent arrives, answers are lost
        assert not asked.done()
        await asyncio.sleep(0.3)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        world.network.heal_all()
        await world.until(world.mesh_now() + 60 * S)
        (kv,) = await world.below(b"backfills/")
        assert world.backfill_of(kv).state == pb.BACKFILL_STATE_DONE
        assert await filled_days(world) == list(range(10))

    story(scenario, lasts_s=0.1)


def test_the_same_request_is_one_backfill_and_another_body_is_refused() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=DAYS)
        first = (await fill(world)).backfill
        assert (await fill(world)).backfill.name == first.name
        with pytest.raises(InvalidArgument) as refused:
            await fill(world, end_time=past(8))
        assert refused.value.field == "request_id"
        second = (await fill(world, request_id="other")).backfill
        answer = await world.fill_api.ListBackfills(
            pb.ListBackfillsRequest(parent=JOB, page_size=1)
        )
        assert [one.name for one in answer.backfills] == [second.name]
        rest = await world.fill_api.ListBackfills(
            pb.ListBackfillsRequest(parent=JOB, page_token=answer.next_page_token)
        )
        assert [one.name for one in rest.backfills] == [first.name]
        assert not rest.next_page_token
        assert (await ended(world, second.name)).started == 10
        assert sorted(await filled_days(world)) == sorted([*range(10), *range(10)])

    story(scenario, lasts_s=0.1)


def test_too_many_at_once_are_refused() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=DAYS)
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB))
        for number in range(20):
            await fill(world, request_id=f"fill-{number}", end_time=past(0))
        before = await world.revision()
        with pytest.raises(IllegalState, match="at work on 20 backfills"):
            await fill(world, request_id="one more")
        assert await world.revision() == before

    story(scenario)


def test_a_job_without_a_schedule_has_nothing_to_fill_and_says_what_starts_it() -> None:
    async def scenario(world: World) -> None:
        await world.make(f"{NS}/jobs/by-hand", schedules=[])
        before = await world.revision()
        for validate_only in (True, False):
            with pytest.raises(IllegalState, match="no times that a backfill could run"):
                await fill(world, parent=f"{NS}/jobs/by-hand", validate_only=validate_only)
        assert await world.revision() == before

    story(scenario)


def test_what_cannot_be_filled_is_refused_and_says_what_would_be_right() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=every(60))
        now = world.mesh_now()
        await world.make(f"{NS}/jobs/alone", schedules=every(60), exclusive=True)
        before = await world.revision()
        ten_years = {"start_time": timestamp(now - 3_650 * DAY * S), "end_time": timestamp(now)}
        wrong: list[tuple[dict[str, Any], str, str]] = [
            ({"parent": "report"}, "parent", "jobs/{job}"),
            ({"request_id": ""}, "request_id", "1 to 128"),
            ({"request_id": "x" * 129}, "request_id", "1 to 128"),
            ({"start_time": None}, "start_time", "a time"),
            ({"end_time": None}, "end_time", "a time"),
            ({"end_time": past(-1)}, "end_time", "at or after"),
            ({"end_time": timestamp(now + 60 * S)}, "end_time", "in the past"),
            ({"end_time": past(0), "start_time": past(0)}, "", ""),
            ({"start_time": Timestamp(seconds=-1)}, "start_time", "1970"),
            (ten_years, "end_time", "more than 10,000: ask in parts, the first one up to 20"),
            (
                {"start_time": timestamp(61 * S), "end_time": timestamp(62 * S)},
                "end_time",
                "holds no nominal time",
            ),
            ({"overlap": 99}, "overlap", "this version knows"),
            ({"order": 99}, "order", "this version knows"),
            (
                {"parent": f"{NS}/jobs/alone", "overlap": TOGETHER, "end_time": past(0)},
                "overlap",
                "exclusive",
            ),
        ]
        for fields, named, expected in wrong:
            for validate_only in (True, False):
                if not named:
                    continue
                with pytest.raises(InvalidArgument) as raised:
                    await fill(world, validate_only=validate_only, **fields)
                assert raised.value.field == named
                assert expected in raised.value.message
        for name in ("", JOB, f"{JOB}/backfills/", f"{JOB}/backfills/{'a' * 17}", "x" * 256):
            for call, request in (
                (world.fill_api.GetBackfill, pb.GetBackfillRequest(name=name)),
                (world.fill_api.CancelBackfill, pb.CancelBackfillRequest(name=name)),
            ):
                with pytest.raises(InvalidArgument, match="as the server made it"):
                    await call(request)
        absent = f"{JOB}/backfills/{'a' * 16}"
        with pytest.raises(NotFound):
            await read(world, absent)
        with pytest.raises(NotFound):
            await world.fill_api.CancelBackfill(pb.CancelBackfillRequest(name=absent))
        with pytest.raises(NotFound):
            await fill(world, parent=f"{NS}/jobs/none")
        with pytest.raises(NotFound):
            await world.fill_api.ListBackfills(pb.ListBackfillsRequest(parent=f"{NS}/jobs/none"))
        assert await world.revision() == before

    story(scenario)


@pytest.mark.slow
def test_it_is_listed_for_a_while_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BACKFILLS_KEPT_NS", 60 * S)

    async def scenario(world: World) -> None:
        await world.make(schedules=DAYS)
        backfill = (await fill(world, end_time=past(1))).backfill
        await ended(world, backfill.name)
        await world.until(world.mesh_now() + 45 * S)
        assert (await read(world, backfill.name)).started == 2
        await world.until(world.mesh_now() + 40 * S)
        with pytest.raises(NotFound):
            await read(world, backfill.name)
        assert await world.below(b"backfills/") == []

    story(scenario)
