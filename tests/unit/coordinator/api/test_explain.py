"""Why did it run, or not, and will it: answered from the record, held against what happened."""

from __future__ import annotations

import pytest
from unit.coordinator.api.world import JOB, S, World, every, shell, story

from sexton.v1 import job_pb2, run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_core.words import Decision, Origin
from sexton_records.times import instant_of, timestamp

SKIP = job_pb2.OVERLAP_POLICY_SKIP


async def why(world: World, at: int) -> api.ExplainJobResponse:
    request = api.ExplainJobRequest(name=JOB, time=timestamp(at))
    answer: api.ExplainJobResponse = await world.jobs_api.ExplainJob(request)
    return answer


@pytest.mark.parametrize(
    "overlap",
    [
        job_pb2.OVERLAP_POLICY_SKIP,
        job_pb2.OVERLAP_POLICY_BUFFER_ONE,
        job_pb2.OVERLAP_POLICY_CANCEL_OTHER,
        job_pb2.OVERLAP_POLICY_ALLOW_ALL,
    ],
)
def test_every_time_that_was_decided_is_explained_as_it_was_decided(
    overlap: job_pb2.OverlapPolicy.ValueType,
) -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(1)
        await world.until(start - S // 2)
        job = await world.make(schedules=every(1), overlap=overlap)
        name = world.jobs.name_of("default", "report", job.uid)
        await world.until(start + 4 * S)
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB))
        await world.until(start + 7 * S + S // 2)
        spec = job_pb2.JobSpec(task=shell("edited"), schedules=every(2), overlap=overlap)
        await world.jobs_api.UpdateJob(api.UpdateJobRequest(job=job_pb2.Job(name=JOB, spec=spec)))
        await world.jobs_api.ResumeJob(api.ResumeJobRequest(name=JOB))
        await world.until(start + 15 * S + S // 2)
        state = (await world.load(name)).state
        fired = {run.nominal_ns: run for run in await world.runs(name) if run.run_id[0] == "t"}
        ranges = [r for r in await world.decisions(name) if r.origin is Origin.SCHEDULE]
        waiting = {entry.nominal for entry in state.buffered}
        assert state.cursor >= start + 14 * S
        for at in range(start, state.cursor + 1, S):
            answer = await why(world, at)
            assert not answer.forecast
            if at in fired:
                expected = "fired"
                assert answer.run.state == fired[at].state
                assert answer.run.name.endswith(fired[at].run_id)
            elif at in waiting:
                expected = "buffered"
            else:
                found = [r.decision.value for r in ranges if r.first <= at <= r.last]
                # After the edit odd seconds are no nominal times.
                expected = found[0] if found else ""
            odd = (at // S) % 2 == 1 and at > start + 7 * S
            assert answer.decision == ("" if odd else expected), answer
            assert instant_of(answer.following_time) > at
            assert answer.HasField("nominal_time") is not odd
            assert answer.gates[-1].passed is (answer.decision == "fired")

    story(scenario, lasts_s=2.2)


def test_the_future_is_forecast_and_then_comes_true() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        await world.make(schedules=every(10))
        answer = await why(world, start)
        assert answer.forecast
        assert answer.decision == Decision.FIRED.value
        assert "will start at" in answer.summary
        assert answer.gates[0].name == "exists"
        assert not answer.HasField("run")
        await world.until(start + 5 * S)
        answer = await why(world, start)
        assert not answer.forecast
        assert answer.decision == "fired"
        assert answer.run.state == run_pb2.RUN_STATE_SUCCEEDED

    story(scenario)


def test_what_is_no_nominal_time_is_said_with_its_neighbours() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        await world.make(schedules=every(10))
        for at in (start + 3 * S, start + 1):
            answer = await why(world, at)
            assert answer.decision == ""
            assert not answer.HasField("nominal_time")
            assert instant_of(answer.previous_time) == start
            assert instant_of(answer.following_time) == start + 10 * S
        before = await why(world, start - 3_600 * S)
        assert before.gates[0].name == "exists"
        assert not before.gates[0].passed

    story(scenario)


def test_a_paused_job_says_so() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        await world.make(schedules=every(10))
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB))
        await world.until(start + S)
        for at in (start, start + 10 * S):
            answer = await why(world, at)
            assert answer.gates[-1].name == "paused"
            assert answer.decision == ""
            assert answer.summary.endswith("whoever resumes the job says what becomes of it.")

    story(scenario)


def test_after_very_many_edits_old_times_are_answered_from_the_record() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(1)
        await world.until(start - S // 2)
        await world.make(schedules=every(1))
        await world.until(start + 3 * S)
        for number in range(60):
            spec = job_pb2.JobSpec(task=shell(f"echo {number}"), schedules=every(1))
            await world.jobs_api.UpdateJob(
                api.UpdateJobRequest(job=job_pb2.Job(name=JOB, spec=spec))
            )
        answer = await why(world, start + S)
        assert answer.decision == "fired"
        assert answer.run.job_version == 1
        assert answer.gates[1].detail.startswith("version 1: ")

    story(scenario, lasts_s=0.1)


def test_a_start_by_hand_that_left_the_buffer_does_not_hide_what_was_scheduled() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        await world.make(schedules=every(10))
        await world.until(start + 5 * S)
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB))
        await world.start_run("live")
        await world.until(start + 20 * S)
        for request_id in ("first", "second"):
            request = api.TriggerJobRequest(
                name=JOB, request_id=request_id, overlap=job_pb2.OVERLAP_POLICY_CANCEL_OTHER
            )
            assert (await world.jobs_api.TriggerJob(request)).decision == "buffered"
        await world.until(start + 45 * S)
        await world.jobs_api.ResumeJob(api.ResumeJobRequest(name=JOB))
        name = world.jobs.name_of("default", "report", (await world.get()).uid)
        origins = {record.origin for record in await world.decisions(name)}
        assert origins == {Origin.MANUAL, Origin.SCHEDULE}
        for at in (10, 20, 30, 40):
            assert (await why(world, start + at * S)).decision == "skipped"

    story(scenario, lasts_s=100)


def test_a_forecast_names_a_run_that_is_live_and_none_that_has_ended() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=every(3_600))
        run = await world.start_run("by hand")
        at = await world.boundary(3_600)
        run_id = run.name.rsplit("/", 1)[1]
        assert run_id in (await why(world, at)).summary
        await world.ended(run)
        assert run_id not in (await why(world, at)).summary

    story(scenario)
