"""How queues and store are, and what stands in the way of a job's runs."""

from __future__ import annotations

import pytest
from unit.coordinator.api.world import JOB, NS, S, World, every, shell, story

from sexton.errors import InvalidArgument, NotFound, Unavailable
from sexton.internal.v1 import queue_pb2
from sexton.v1 import job_pb2, run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import queues as queues_module
from sexton_records.times import timestamp
from sexton_runtime.kv.types import Put, Txn


def test_queues_and_workers_are_listed_as_their_owner_knows_them() -> None:
    async def scenario(world: World) -> None:
        world.queue.queues = (
            queue_pb2.QueueInfo(queue="mails", ready=3, delayed=2, running=1, oldest_ready_ms=250),
            queue_pb2.QueueInfo(queue="forgotten"),
            queue_pb2.QueueInfo(queue="held", paused=True, pause_reason="the printer burns"),
        )
        answer = await world.mesh_api.ListQueues(api.ListQueuesRequest())
        assert [queue.name for queue in answer.queues] == ["held", "mails"]
        assert answer.queues[1].ready == 3
        assert answer.queues[1].oldest_ready_ms == 250
        assert answer.queues[0].pause_reason == "the printer burns"
        assert [(worker.session, worker.worker) for worker in answer.workers] == [("s1", "anna")]

    story(scenario)


def test_queues_of_an_owner_that_is_away_are_not_shown_as_empty() -> None:
    async def scenario(world: World) -> None:
        world.queue.process.crash()
        with pytest.raises(Unavailable):
            await world.mesh_api.ListQueues(api.ListQueuesRequest(), timeout=5)

    story(scenario)


def test_the_store_tells_how_it_is_and_who_holds_what() -> None:
    async def scenario(world: World) -> None:
        answer = await world.mesh_api.GetStoreStatus(api.GetStoreStatusRequest())
        assert answer.revision > 0
        assert answer.used_bytes > 0
        assert answer.max_bytes >= answer.map_bytes
        assert not answer.full
        assert not answer.clock_disputed
        assert abs(answer.wall_skew_ms) < 1_000
        held = {lease.name: lease for lease in answer.leases}
        assert held["coordinator/000"].address == "127.0.0.1:7400"
        assert held["queue/000"].holder == "queue"
        assert held["queue/000"].ttl_ms == 2_000
        assert held["coordinator/000"].token > 0

    story(scenario)


def _python(task: str) -> job_pb2.Task:
    return job_pb2.Task(python=job_pb2.PythonTask(task=task))


def test_a_job_says_what_stands_in_the_way_of_its_runs() -> None:
    async def scenario(world: World) -> None:
        world.queue.queues = (
            queue_pb2.QueueInfo(queue="default", slots=4, offers=["python:report", "shell"]),
            queue_pb2.QueueInfo(queue="mails", slots=1, offers=["python:send"], paused=True),
            queue_pb2.QueueInfo(queue="idle", slots=0),
            queue_pb2.QueueInfo(queue="many", slots=1, offers_left_out=True),
        )
        assert (await world.make()).notices == []
        known = await world.make(f"{NS}/jobs/known", task=_python("report"))
        assert known.notices == []
        unknown = await world.make(f"{NS}/jobs/unknown", task=_python("rapport"))
        assert unknown.notices == ["no worker of queue default knows the Python task rapport"]
        mails = await world.make(f"{NS}/jobs/mails", queue="mails")
        assert mails.notices == [
            "queue mails is paused",
            "no worker of queue mails allows tasks of kind shell",
        ]
        assert (await world.make(f"{NS}/jobs/many", queue="many")).notices == []
        for queue in ("idle", "none"):
            job = await world.make(f"{NS}/jobs/{queue}", queue=queue)
            assert job.notices == [f"no worker serves queue {queue}"]
            assert (await world.get(job.name)).notices == job.notices
        full = await world.jobs_api.ListJobs(api.ListJobsRequest(view=api.VIEW_FULL))
        assert [len(job.notices) for job in full.jobs] == [1, 0, 2, 0, 1, 0, 1]
        basic = await world.jobs_api.ListJobs(api.ListJobsRequest())
        assert all(job.notices == [] for job in basic.jobs)
        spec = job_pb2.JobSpec(task=shell(), queue="none")
        request = api.ApplyJobsRequest(jobs=[job_pb2.Job(name=JOB, spec=spec)])
        applied = await world.jobs_api.ApplyJobs(request)
        assert applied.jobs[0].job.notices == ["no worker serves queue none"]

    story(scenario)


def test_owners_are_asked_for_notices_once_a_second_at_most() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        await world.until(world.mesh_now() + 2 * S)
        before = world.queue.described
        for _ in range(20):
            await world.get()
        assert world.queue.described == before + 1

    story(scenario)


def test_an_owner_that_is_away_makes_no_notice_and_no_error() -> None:
    async def scenario(world: World) -> None:
        await world.make(queue="none", schedules=every(3_600))
        world.queue.process.crash()
        await world.until(world.mesh_now() + 2 * S)
        assert (await world.get()).notices == []
        await world.until(world.mesh_now() + 4 * S)
        assert (await world.get()).notices == []

    story(scenario)


def test_a_lease_whose_value_is_not_a_member_is_shown_with_its_holder() -> None:
    lease = queues_module.Lease("other/1", "someone", 7, 2_000, b"\xff\xff", 1_000)
    shown = queues_module._lease(lease)
    assert (shown.holder, shown.address, shown.token) == ("someone", "", 7)


def test_queues_are_paused_and_workers_drained_through_their_owner() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        pause = api.PauseQueueRequest(queue="default", paused=True, reason="no paper")
        answer = await world.mesh_api.PauseQueue(pause)
        assert (answer.queue.name, answer.queue.paused) == ("default", True)
        assert answer.queue.pause_reason == "no paper"
        await world.until(world.mesh_now() + 2 * S)
        assert (await world.get()).notices[0] == "queue default is paused: no paper"
        ahead = timestamp((world.mesh_now() // (60 * S) + 2) * 60 * S)
        why = await world.jobs_api.ExplainJob(api.ExplainJobRequest(name=JOB, time=ahead))
        assert (why.decision, why.forecast) == ("fired", True)
        assert why.gates[-1].name == "queue"
        assert why.gates[-1].detail == (
            "queue default is paused: no paper; the run waits until it is resumed"
        )
        await world.mesh_api.DrainWorker(api.DrainWorkerRequest(session="s1"))
        with pytest.raises(NotFound):
            await world.mesh_api.DrainWorker(api.DrainWorkerRequest(session="s2"))
        for request in ({"queue": ""}, {"queue": "A"}, {"queue": "x" * 64}):
            with pytest.raises(InvalidArgument):
                await world.mesh_api.PauseQueue(api.PauseQueueRequest(**request))
        too_long = api.PauseQueueRequest(queue="default", reason="x" * 201)
        with pytest.raises(InvalidArgument):
            await world.mesh_api.PauseQueue(too_long)
        for session in ("", "\0", "x" * 201):
            with pytest.raises(InvalidArgument):
                await world.mesh_api.DrainWorker(api.DrainWorkerRequest(session=session))

    story(scenario)


def test_why_says_what_keeps_a_run_in_line() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        await world.make(schedules=every(10), queue="none")
        await world.until(start + S)
        answer = await world.jobs_api.ExplainJob(
            api.ExplainJobRequest(name=JOB, time=timestamp(start))
        )
        assert answer.decision == "fired"
        assert (answer.gates[-1].name, answer.gates[-1].passed) == ("queue", False)
        assert answer.gates[-1].detail == "no worker serves queue none"

    story(scenario, lasts_s=100.0)


def test_a_running_task_tells_how_far_it_is_and_others_do_not() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=[])
        run = await world.start_run("one")
        (kv,) = await world.below(b"active/")
        request = api.GetRunRequest(name=run.name)
        assert not (await world.runs_api.GetRun(request)).run.HasField("progress")
        record = world.record_of(kv)
        record.state = run_pb2.RUN_STATE_RUNNING
        await world.store.commit([Txn(then=(Put(kv.key, record.SerializeToString()),))])
        progress = (await world.runs_api.GetRun(request)).run.progress
        assert (progress.fraction, progress.message) == (0.5, "half")
        world.queue.process.crash()
        assert not (await world.runs_api.GetRun(request)).run.HasField("progress")

    story(scenario, lasts_s=100.0)
