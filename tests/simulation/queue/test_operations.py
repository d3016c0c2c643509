"""What people ask of a queue: to stop and go on, to let a worker go, and how a run gets on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from simulation.queue.mesh import Mesh
from simulation.queue.worker import Worker

from sexton.errors import DeadlineExceeded, InvalidArgument
from sexton.internal.v1 import queue_pb2 as pb
from sexton.v1 import worker_pb2
from sexton_core.words import RunState

S = 1_000_000_000


async def set_pause(
    mesh: Mesh, queue: str = "default", *, timeout_s: float | None = None, **fields: Any
) -> pb.QueueInfo:
    request = pb.SetQueuePauseRequest(**({"queue": queue, "paused": True} | fields))
    answer = await mesh.stub(await mesh.owner()).SetQueuePause(request, timeout=timeout_s)
    info: pb.QueueInfo = answer.queue
    return info


async def described(mesh: Mesh) -> dict[str, pb.QueueInfo]:
    stub = mesh.stub(await mesh.owner())
    answer = await stub.DescribeQueues(pb.DescribeQueuesRequest(queues_only=True))
    assert list(answer.sessions) == []
    return {info.queue: info for info in answer.queues}


def test_a_paused_queue_assigns_nothing_and_what_runs_goes_on() -> None:
    async def scenario(mesh: Mesh) -> None:
        job, other = await mesh.job(), await mesh.job(queue="mails")
        Worker(mesh, "worker", queues=("default", "mails"), slots=10, lasts_s=2)
        first = await mesh.fire(job)
        await mesh.begun()
        info = await set_pause(mesh, reason="the printer burns")
        assert (info.paused, info.pause_reason, info.running) == (True, "the printer burns", 1)
        held = await mesh.fire_many(job, 3)
        free = await mesh.fire(other)
        await mesh.until(first, job, RunState.SUCCEEDED)
        await mesh.until(free, other, RunState.SUCCEEDED)
        assert {await mesh.state(handle, job) for handle in held} == {RunState.WAITING}
        queues = await described(mesh)
        assert (queues["default"].paused, queues["default"].ready) == (True, 3)
        assert not queues["mails"].paused
        assert queues["mails"].offers == ["shell"]
        for _ in range(2):
            info = await set_pause(mesh, paused=False)
            assert (info.paused, info.pause_reason) == (False, "")
        await mesh.until_settled()
        assert len(mesh.executions) == 5

    Mesh().run(scenario)


def test_a_queue_goes_on_for_good_also_after_a_pause_that_nobody_waited_for() -> None:
    async def scenario(mesh: Mesh) -> None:
        tenure = mesh.queues[await mesh.owner()].owner.tenure
        commit = tenure.lease.commit

        async def durable_and_not_answered(*args: Any, **options: Any) -> Any:
            await commit(*args, **options)
            await asyncio.sleep(60)

        tenure.lease.commit = durable_and_not_answered
        with pytest.raises(DeadlineExceeded):
            await set_pause(mesh, timeout_s=0.5)
        tenure.lease.commit = commit
        assert len(await mesh.keys_below(b"queues/")) == 1
        assert not (await set_pause(mesh, paused=False)).paused
        assert await mesh.keys_below(b"queues/") == []

    Mesh().run(scenario)


def test_a_pause_outlives_its_owner_and_a_queue_without_runs_can_be_paused() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.job()
        Worker(mesh, "worker", slots=10, lasts_s=0.1)
        await set_pause(mesh, reason="one")
        await set_pause(mesh, reason="another")
        await set_pause(mesh, "unseen")
        before = await mesh.owner()
        mesh.crash(before)
        await asyncio.sleep(3)
        assert await mesh.owner() != before
        handles = await mesh.fire_many(job, 2)
        await asyncio.sleep(8)
        assert mesh.executions == []
        queues = await described(mesh)
        assert queues["default"].pause_reason == "another"
        assert queues["unseen"].paused
        await set_pause(mesh, paused=False)
        for handle in handles:
            await mesh.until(handle, job, RunState.SUCCEEDED)

    Mesh().run(scenario)


def test_a_pause_of_which_no_answer_came_is_found_by_reading() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.job()
        await mesh.owner()
        record = b""
        await mesh.put(b"queues/000/default", record)  # as a commit whose answer was lost
        await asyncio.sleep(6)
        assert (await described(mesh))["default"].paused
        Worker(mesh, "worker", slots=10, lasts_s=0.1)
        handle = await mesh.fire(job)
        await asyncio.sleep(3)
        assert await mesh.state(handle, job) is RunState.WAITING

    Mesh().run(scenario)


def test_pauses_that_make_no_sense_are_refused() -> None:
    async def scenario(mesh: Mesh) -> None:
        for fields in ({"queue": ""}, {"queue": "a/b"}, {"queue": "x" * 64}, {"reason": "\0"}):
            with pytest.raises(InvalidArgument):
                await set_pause(mesh, **fields)
        with pytest.raises(InvalidArgument):
            await mesh.stub(await mesh.owner()).DescribeProgress(pb.DescribeProgressRequest())
        assert await mesh.keys_below(b"queues/") == []

    Mesh().run(scenario)


def test_a_worker_is_told_to_drain_until_it_says_that_it_does() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", slots=10, lasts_s=0.1)
        await mesh.wait_for(lambda: bool(worker.session))
        stub = mesh.stub(await mesh.owner())
        answer = await stub.DrainSession(pb.DrainSessionRequest(session=worker.session))
        assert answer.found
        await asyncio.sleep(3.5)
        assert worker.drains >= 3
        worker.break_stream()
        await mesh.wait_for(lambda: worker.welcomes == 2)
        await asyncio.sleep(1.5)
        await worker.say(worker_pb2.PullRequest(draining=True))
        await asyncio.sleep(0.5)
        told = worker.drains
        await asyncio.sleep(3)
        assert worker.drains == told
        other = await stub.DrainSession(pb.DrainSessionRequest(session="nobody"))
        assert not other.found

    Mesh(replicas=1).run(scenario)


def test_what_a_task_says_about_itself_is_told_while_it_runs() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.job()
        worker = Worker(mesh, "worker", lasts_s=5)
        handle = await mesh.fire(job)
        await mesh.begun()
        (one,) = mesh.executions
        stub = mesh.stub(await mesh.owner())
        request = pb.DescribeProgressRequest(handles=[handle, b"active/000/other"])
        silent = await stub.DescribeProgress(request)
        assert [report.HasField("progress") for report in silent.reports] == [False, False]
        said = worker_pb2.Progress(fraction=0.25, message="a quarter")
        said.attempt.handle, said.attempt.token = handle, one.token
        await worker.say(worker_pb2.PullRequest(progress=[said]))
        await asyncio.sleep(0.1)
        told = await stub.DescribeProgress(request)
        assert (told.reports[0].progress.fraction, told.reports[0].progress.message) == (
            0.25,
            "a quarter",
        )
        await mesh.until_settled()
        ended = await stub.DescribeProgress(request)
        assert not ended.reports[0].HasField("progress")

    Mesh().run(scenario)


def test_sessions_name_the_runs_that_they_hold() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.job()
        Worker(mesh, "worker", slots=200, lasts_s=5)
        await mesh.fire_many(job, 120)
        await mesh.begun(120)
        answer = await mesh.stub(await mesh.owner()).DescribeQueues(pb.DescribeQueuesRequest())
        (session,) = answer.sessions
        assert (session.running, len(session.runs)) == (120, 100)
        assert session.runs[0].startswith(f"namespaces/default/jobs/{job.name}/runs/t")

    Mesh().run(scenario)
