"""Deleted jobs: their past can still be explained, and says that they were deleted."""

from __future__ import annotations

import pytest
from unit.coordinator.api.test_explain import why
from unit.coordinator.api.test_ledger import ledger, words
from unit.coordinator.api.world import JOB, S, World, every, story

from sexton.errors import NotFound
from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import scheduler_pb2 as api
from sexton_core.instants import format_instant
from sexton_records.times import instant_of


async def delete(world: World) -> int:
    await world.jobs_api.DeleteJob(api.DeleteJobRequest(name=JOB))
    (former, *_) = reversed(await world.below(b"former/"))
    return int(former.key.split(b"/")[3])


def test_why_a_job_that_was_deleted_did_or_did_not_run_is_still_answered() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        await world.make(schedules=every(10))
        await world.until(start + 15 * S)
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB))
        await world.until(start + 25 * S)
        deleted = await delete(world)
        await world.until(start + 45 * S)

        fired = await why(world, start + 10 * S)
        assert (fired.decision, fired.run.name != "") == ("fired", True)
        undecided = await why(world, start + 20 * S)
        assert undecided.decision == ""
        assert undecided.summary.endswith(f"when the job was deleted at {format_instant(deleted)}.")
        assert undecided.gates[-1].name == "paused"
        assert not undecided.HasField("following_time")
        for at in (start + 30 * S, start + 3_600 * S):
            after = await why(world, at)
            assert [(gate.name, gate.passed) for gate in after.gates] == [("exists", False)]
            assert after.summary.endswith(f"was deleted at {format_instant(deleted)}.")
            assert instant_of(after.previous_time) == start + 20 * S
        rows = await ledger(world)
        assert words(rows, start) == [(0, "fired"), (10, "fired"), (20, "")]
        assert rows[-1].reason == "deleted"
        with pytest.raises(NotFound, match=f"deleted at {format_instant(deleted)}, and its past"):
            await world.get()

    story(scenario, lasts_s=1)


def test_a_run_that_the_deletion_met_is_explained_while_it_ends_and_after() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        await world.make(schedules=every(10))
        await world.until(start + S)
        await delete(world)
        live = await why(world, start)
        assert live.decision == "fired"
        await world.until(start + 30 * S)
        assert await world.below(b"deleted/") == []
        assert (await why(world, start)).run.name == live.run.name

    story(scenario, lasts_s=5)


def test_a_time_belongs_to_the_job_that_had_the_name_then() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(20)
        await world.make(schedules=every(10))
        await world.until(start + 5 * S)
        deleted = await delete(world)
        await world.until(start + 15 * S)
        await world.make(schedules=every(20))
        await world.until(start + 45 * S)
        assert (await why(world, start)).decision == "fired"
        between = await why(world, deleted + S)
        assert (between.gates[0].name, between.gates[0].passed) == ("exists", False)
        assert "not after the creation" in between.gates[0].detail
        assert (await why(world, start + 20 * S)).decision == "fired"
        again = await delete(world)
        assert again > deleted
        assert (await why(world, start)).decision == "fired"
        assert (await why(world, again + S)).summary.endswith(format_instant(again) + ".")

    story(scenario, lasts_s=1)


def test_what_is_kept_of_a_deleted_job_is_less_than_it_took() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=every(3_600), labels={"team": "sales"})
        (job,) = await world.below(b"jobs/")
        await delete(world)
        (former,) = await world.below(b"former/")
        assert len(former.key) + len(former.value) < (len(job.key) + len(job.value)) * 0.7
        assert not pb.FormerRecord.FromString(former.value).job.spec.HasField("task")
        with pytest.raises(NotFound) as caught:
            await world.jobs_api.GetJob(api.GetJobRequest(name="namespaces/default/jobs/other"))
        assert "deleted_at" not in caught.value.facts

    story(scenario)
