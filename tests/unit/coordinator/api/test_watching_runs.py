"""What a watch of a run, of a job and of a namespace tells."""

from __future__ import annotations

import asyncio

import pytest
from unit.coordinator.api.world import JOB, NS, S, World, every, shell, story

from sexton import errors
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import job_pb2, run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.run_watching import _Watch
from sexton_runtime.kv.types import KeyValue

OK = run_pb2.RUN_STATE_SUCCEEDED


def test_watching_a_run_tells_each_state_and_ends_with_it() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        run = await world.start_run("r")
        told = []
        async for answer in world.runs_api.WatchRuns(api.WatchRunsRequest(name=run.name)):
            told += [found.state for found in answer.runs]
        assert told == [run_pb2.RUN_STATE_WAITING, run_pb2.RUN_STATE_SUCCEEDED]
        again = [
            answer async for answer in world.runs_api.WatchRuns(api.WatchRunsRequest(name=run.name))
        ]
        assert [list(answer.runs) != [] for answer in again] == [True, False]
        assert again[-1].synced

    story(scenario, lasts_s=2)


def test_watching_a_job_tells_what_stands_and_then_every_change() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(1)
        await world.until(start - S // 2)
        await world.make(schedules=every(1), overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL)
        await world.until(start + S // 2)
        told: list[tuple[str, int]] = []
        synced_after: list[int] = []

        async def watch() -> None:
            async for answer in world.runs_api.WatchRuns(api.WatchRunsRequest(name=JOB)):
                told.extend((run.name, run.state) for run in answer.runs)
                if answer.synced and not synced_after:
                    synced_after.append(len(told))

        watching = asyncio.create_task(watch())
        await world.until(start + 4 * S + S // 2)
        await world.make(f"{NS}/jobs/other", schedules=every(1))
        spec = job_pb2.JobSpec(task=shell(), schedules=every(1), queue="second")
        await world.jobs_api.UpdateJob(api.UpdateJobRequest(job=job_pb2.Job(name=JOB, spec=spec)))
        await world.until(start + 9 * S + S // 2)
        watching.cancel()
        runs = await world.runs(world.jobs.name_of("default", "report", (await world.get()).uid))
        assert synced_after == [1]
        assert {name for name, _ in told} == {f"{JOB}/runs/{run.run_id}" for run in runs}
        ended = [name for name, state in told if state == OK]
        assert len(ended) == len(set(ended)) >= 6
        for name in ended:
            states = [state for other, state in told if other == name]
            assert states == [run_pb2.RUN_STATE_WAITING, OK]

    story(scenario, lasts_s=1.2)


def test_watching_a_namespace_tells_its_runs_only() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        await world.make("namespaces/other/jobs/report")
        told: list[str] = []

        async def watch() -> None:
            async for answer in world.runs_api.WatchRuns(api.WatchRunsRequest(name=NS)):
                told.extend(run.name for run in answer.runs)

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.5)
        run = await world.start_run("r")
        await world.start_run("r", "namespaces/other/jobs/report")
        await asyncio.sleep(3)
        watching.cancel()
        assert told == [run.name, run.name]

    story(scenario)


def test_a_stopping_replica_ends_its_watches_at_once() -> None:
    async def scenario(world: World) -> None:
        await world.make()

        async def watch() -> None:
            async for _ in world.runs_api.WatchRuns(api.WatchRunsRequest(name=JOB)):
                pass

        watching = asyncio.create_task(watch())
        await asyncio.sleep(1)
        before = world.loop.now_ns
        coordinator = world.coordinators["coordinator-1"]
        await world.processes["coordinator-1"].spawn(coordinator.lifecycle.stop())
        assert world.loop.now_ns - before < 2 * S
        with pytest.raises(errors.Unavailable):
            await watching

    story(scenario)


def test_two_feeds_that_tell_of_one_run_are_put_in_order() -> None:
    def kv(key: str, state: run_pb2.RunState.ValueType, revision: int) -> KeyValue:
        record = records.RunRecord(run_id="r", state=state)
        return KeyValue(key.encode(), record.SerializeToString(), 1, revision, 1)

    watch = _Watch(None, None, Name("default"))  # type: ignore[arg-type]
    waiting, running = run_pb2.RUN_STATE_WAITING, run_pb2.RUN_STATE_RUNNING
    told = [
        run.state
        for kvs in (
            [kv("active/1", waiting, 5), kv("active/1", waiting, 5)],
            [kv("active/1", running, 7), kv("runs/1", OK, 9)],
            [kv("active/1", running, 8), kv("active/1", waiting, 5), kv("runs/1", OK, 9)],
        )
        for message in watch._messages(kvs, synced=True)
        for run in message.runs
    ]
    assert told == [waiting, running, OK]
