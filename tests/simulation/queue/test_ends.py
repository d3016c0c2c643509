"""Runs that are to end: cancelled, terminated, expired, past their deadline, of a deleted job."""

import asyncio

from google.protobuf.duration_pb2 import Duration
from simulation.queue.mesh import Mesh
from simulation.queue.worker import Worker, fail

from sexton.v1 import job_pb2, run_pb2
from sexton_core.instants import HOUR
from sexton_core.words import RunState

S = 1_000_000_000


def test_a_waiting_run_is_cancelled_at_once() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.job()
        handle = await mesh.fire(job)
        assert await mesh.end(handle) == run_pb2.RUN_STATE_CANCELLED
        record = await mesh.until(handle, job, RunState.CANCELLED)
        assert (record.error.kind, record.error.message) == ("cancelled", "asked")
        assert await mesh.end(handle) == run_pb2.RUN_STATE_CANCELLED

    Mesh().run(scenario)


def test_a_run_that_never_was_has_no_state() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.job()
        handle, _ = mesh.make_run(job)
        assert await mesh.end(handle) == run_pb2.RUN_STATE_UNSPECIFIED

    Mesh().run(scenario)


def test_a_cancel_request_reaches_the_worker_and_the_token_stays() -> None:
    async def scenario(mesh: Mesh) -> None:
        Worker(mesh, "worker", lasts_s=100)
        job = await mesh.job()
        handle = await mesh.fire(job)
        await mesh.begun()
        assert await mesh.end(handle) == run_pb2.RUN_STATE_CANCELLING
        record = await mesh.until(handle, job, RunState.CANCELLED)
        assert mesh.tokens(handle) == [record.token]
        assert record.attempts[0].state == run_pb2.ATTEMPT_STATE_CANCELLED
        assert record.cancel.reason == "asked"

    Mesh().run(scenario)


def test_terminate_overrules_cancel() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", lasts_s=100)
        job = await mesh.job()
        handle = await mesh.fire(job)
        await mesh.begun()
        worker.process.suspend()
        assert await mesh.end(handle) == run_pb2.RUN_STATE_CANCELLING
        assert await mesh.end(handle, terminate=True) == run_pb2.RUN_STATE_TERMINATING
        assert await mesh.end(handle) == run_pb2.RUN_STATE_TERMINATING
        worker.process.resume()
        record = await mesh.until(handle, job, RunState.CANCELLED, RunState.TERMINATED)
        assert record.state == run_pb2.RUN_STATE_TERMINATED

    Mesh().run(scenario)


def test_the_completion_that_arrives_before_the_stop_wins() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", lasts_s=2)
        job = await mesh.job()
        handle = await mesh.fire(job)
        await mesh.begun()
        owner = await mesh.owner()
        mesh.network.cut(owner, "worker")  # the stop is on its way while the task succeeds
        assert await mesh.end(handle) == run_pb2.RUN_STATE_CANCELLING
        await asyncio.sleep(3)
        mesh.network.heal_all()
        record = await mesh.until(handle, job, RunState.SUCCEEDED)
        assert mesh.tokens(handle) == [record.token]
        await asyncio.sleep(1)
        assert [result.accepted for result in worker.results] == [True]

    Mesh().run(scenario)


def test_a_cancelled_run_of_a_killed_worker_ends_after_the_full_time() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", lasts_s=100)
        job = await mesh.job()
        handle = await mesh.fire(job)
        await mesh.begun()
        worker.kill()
        killed = mesh.now
        assert await mesh.end(handle) == run_pb2.RUN_STATE_CANCELLING
        await mesh.until(handle, job, RunState.CANCELLED)
        assert 28 * S < mesh.now - killed < 32 * S
        assert len(mesh.executions) == 1

    Mesh().run(scenario)


def test_a_request_reaches_the_worker_that_was_away() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", lasts_s=100)
        job = await mesh.job(exclusive=True)
        handle = await mesh.fire(job)
        await mesh.begun()
        mesh.network.partition(["worker"], ["queue-1", "queue-2"])
        worker.break_stream()
        assert await mesh.end(handle) == run_pb2.RUN_STATE_CANCELLING
        mesh.crash(await mesh.owner())
        await asyncio.sleep(5)
        mesh.network.heal_all()
        record = await mesh.until(handle, job, RunState.CANCELLED)
        assert mesh.tokens(handle) == [record.token]
        assert worker.sessions == [worker.session]

    Mesh().run(scenario)


def test_what_has_not_started_in_time_expires_without_any_worker() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.job(start_within=Duration(seconds=3))
        handle = await mesh.fire(job)
        record = await mesh.until(handle, job, RunState.EXPIRED)
        assert 0 <= record.end_time_ns - record.due_ns - 3 * S < S
        assert record.error.kind == "expired"

    Mesh().run(scenario)


def test_the_deadline_of_a_run_in_line_and_of_one_that_executes() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.job(deadline=Duration(seconds=5))
        delayed = await mesh.fire(job, delay=HOUR)
        Worker(mesh, "worker", lasts_s=100)
        running = await mesh.fire(job)
        for handle in (delayed, running):
            record = await mesh.until(handle, job, RunState.TIMED_OUT)
            assert 0 <= record.end_time_ns - record.create_time_ns - 5 * S < S
        assert len(await mesh.keys_below(b"dead/")) == 2

    Mesh().run(scenario)


def test_a_run_of_a_deleted_job_is_never_assigned() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.job()
        handle = await mesh.fire(job)
        await mesh.delete_job(job)
        Worker(mesh, "worker")
        record = await mesh.until(handle, job, RunState.CANCELLED)
        assert record.error.message == "the job has been deleted"
        assert mesh.executions == []

    Mesh().run(scenario)


def test_a_failed_run_that_is_cancelled_is_never_assigned_again() -> None:
    async def scenario(mesh: Mesh) -> None:
        Worker(mesh, "worker", lasts_s=0.1, outcome=fail)
        retry = job_pb2.Retry(max_attempts=5, initial_backoff=Duration(seconds=10))
        job = await mesh.job(retry=retry)
        handle = await mesh.fire(job)
        await mesh.until(handle, job, RunState.RETRYING)
        assert await mesh.end(handle) == run_pb2.RUN_STATE_CANCELLED
        await asyncio.sleep(20)
        assert len(mesh.executions) == 1

    Mesh().run(scenario)
