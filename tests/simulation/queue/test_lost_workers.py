"""Workers that are killed, cut off or replaced: who gets their runs, and when."""

import asyncio

import pytest
from simulation.queue.mesh import Job, Mesh
from simulation.queue.worker import Worker
from structlog.testing import capture_logs

from sexton.v1 import job_pb2, run_pb2, worker_pb2
from sexton_core.words import RunState
from sexton_records import keys
from sexton_runtime.kv.types import Delete, Txn

S = 1_000_000_000


async def unbegun(mesh: Mesh) -> tuple[Worker, Job, bytes]:
    """Has a run assigned to a worker that does not begin it."""
    first = Worker(mesh, "first")
    first.begins = False
    job = await mesh.job()
    handle = await mesh.fire(job)
    await mesh.until(handle, job, RunState.RUNNING)
    return first, job, handle


def test_a_killed_worker_s_run_is_elsewhere_within_three_seconds() -> None:
    async def scenario(mesh: Mesh) -> None:
        first = Worker(mesh, "first", lasts_s=20)
        job = await mesh.job()
        handle = await mesh.fire(job)
        await mesh.begun()
        second = Worker(mesh, "second", lasts_s=1)
        await asyncio.sleep(1)
        killed = mesh.now
        first.kill()
        await mesh.begun(2)
        assert mesh.now - killed < 3 * S
        again = mesh.executions[1]
        assert (again.worker, again.number) == ("second", 2)
        assert again.token > mesh.executions[0].token
        record = await mesh.until(handle, job, RunState.SUCCEEDED)
        assert record.token == again.token
        assert record.failures == 1
        assert record.attempts[0].state == run_pb2.ATTEMPT_STATE_LOST
        assert second.session == record.session

    Mesh().run(scenario)


def test_a_stream_that_comes_back_in_time_costs_nothing() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", lasts_s=5)
        job = await mesh.job()
        handle = await mesh.fire(job)
        await mesh.begun()
        worker.break_stream()
        record = await mesh.until(handle, job, RunState.SUCCEEDED)
        assert len(mesh.executions) == 1
        assert worker.welcomes == 2
        assert worker.sessions == [record.session]

    Mesh().run(scenario)


@pytest.mark.parametrize("silent_s", [1.0, 20.0])
def test_a_worker_that_is_merely_silent_keeps_its_run(silent_s: float) -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", lasts_s=60)
        job = await mesh.job()
        handle = await mesh.fire(job)
        await mesh.begun()
        mesh.processes["worker"] = worker.process
        worker.process.suspend()
        await asyncio.sleep(silent_s)
        worker.process.resume()
        await mesh.until(handle, job, RunState.SUCCEEDED)
        assert len(mesh.executions) == 1

    Mesh().run(scenario)


def test_a_worker_cut_off_for_its_full_time_has_ended_what_it_ran_before_another_begins() -> None:
    async def scenario(mesh: Mesh) -> None:
        first = Worker(mesh, "first", lasts_s=200)
        job = await mesh.job()
        handle = await mesh.fire(job)
        await mesh.begun()
        Worker(mesh, "second", lasts_s=1)
        await asyncio.sleep(1)
        cut = mesh.now
        mesh.network.partition(["first"], ["queue-1", "queue-2"])
        await mesh.begun(2)
        assert 29 * S < mesh.now - cut < 31 * S
        ended = mesh.executions[0].ended
        assert ended is not None
        assert ended < mesh.executions[1].began
        mesh.network.heal_all()
        record = await mesh.until(handle, job, RunState.SUCCEEDED)
        assert record.token == mesh.executions[1].token
        await asyncio.sleep(5)
        assert len(first.sessions) == 2

    Mesh().run(scenario)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"exclusive": True}, RunState.SUCCEEDED),
        ({"delivery": job_pb2.DELIVERY_AT_MOST_ONCE}, RunState.LOST),
    ],
)
def test_some_runs_wait_the_full_time(fields: dict[str, object], state: RunState) -> None:
    async def scenario(mesh: Mesh) -> None:
        first = Worker(mesh, "first", lasts_s=200)
        job = await mesh.job(**fields)
        handle = await mesh.fire(job)
        await mesh.begun()
        Worker(mesh, "second", lasts_s=1)
        await asyncio.sleep(1)
        killed = mesh.now
        first.kill()
        record = await mesh.until(handle, job, state)
        assert record.end_time_ns - record.attempts[0].assign_time_ns > 29 * S
        assert 28 * S < mesh.now - killed < 34 * S
        assert len(mesh.executions) == (2 if state is RunState.SUCCEEDED else 1)

    Mesh().run(scenario)


def test_a_late_completion_of_a_replaced_attempt_is_refused() -> None:
    async def scenario(mesh: Mesh) -> None:
        first = Worker(mesh, "first", lasts_s=4)
        job = await mesh.job()
        handle = await mesh.fire(job)
        await mesh.begun()
        Worker(mesh, "second", lasts_s=10)
        await asyncio.sleep(1)
        # It is not killed, and stays away for longer than the grace.
        mesh.network.partition(["first"], ["queue-1", "queue-2"])
        first.break_stream()
        await asyncio.sleep(6)
        mesh.network.heal_all()
        record = await mesh.until(handle, job, RunState.SUCCEEDED)
        assert record.token == mesh.executions[1].token
        assert [one.worker for one in mesh.executions] == ["first", "second"]
        assert all(not result.accepted for result in first.results)

    Mesh().run(scenario)


def test_an_attempt_that_a_worker_does_not_list_is_sent_again_with_its_token() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", lasts_s=1)
        worker.begins = False
        job = await mesh.job()
        handle = await mesh.fire(job)
        await mesh.until(handle, job, RunState.RUNNING)
        await asyncio.sleep(1)
        worker.begins = True
        worker.break_stream()
        record = await mesh.until(handle, job, RunState.SUCCEEDED)
        assert record.deliveries == 1
        assert mesh.tokens(handle) == [record.token]
        assert (await mesh.machine()).counters.resent == 1

    Mesh().run(scenario)


def test_a_lost_attempt_that_never_began_is_a_delivery_and_no_failure() -> None:
    async def scenario(mesh: Mesh) -> None:
        first, job, handle = await unbegun(mesh)
        first.kill()
        Worker(mesh, "second")
        record = await mesh.until(handle, job, RunState.SUCCEEDED)
        assert (record.deliveries, record.failures) == (2, 0)

    Mesh().run(scenario)


def test_an_attempt_lost_after_a_takeover_counts_as_begun() -> None:
    async def scenario(mesh: Mesh) -> None:
        first, job, handle = await unbegun(mesh)
        first.kill()
        mesh.crash(await mesh.owner())
        Worker(mesh, "second")
        record = await mesh.until(handle, job, RunState.SUCCEEDED)
        assert (record.deliveries, record.failures) == (2, 1)

    Mesh().run(scenario)


def test_a_run_of_a_session_that_nobody_knows_is_taken_back_and_counted() -> None:
    """A trigger stood as acquired for ten months, a job as doing for three weeks (quartz #145,
    procrastinate #740)."""

    async def scenario(mesh: Mesh) -> None:
        first, job, handle = await unbegun(mesh)
        record = await mesh.until(handle, job, RunState.RUNNING)
        first.kill()
        owner = await mesh.owner()
        await mesh.store.commit([Txn(then=(Delete(keys.session_key(0, record.session)),))])
        mesh.crash(owner)
        Worker(mesh, "second")
        record = await mesh.until(handle, job, RunState.SUCCEEDED)
        assert [one.state for one in record.attempts] == [
            run_pb2.ATTEMPT_STATE_LOST,
            run_pb2.ATTEMPT_STATE_SUCCEEDED,
        ]
        assert (await mesh.machine()).counters.sessions_expired == 1

    Mesh().run(scenario)


def test_a_session_that_ends_is_told_of_with_what_it_held_and_why() -> None:
    async def scenario(mesh: Mesh) -> None:
        first, job, handle = await unbegun(mesh)
        record = await mesh.until(handle, job, RunState.RUNNING)
        with capture_logs() as said:
            first.kill()
            Worker(mesh, "second")
            await mesh.until(handle, job, RunState.SUCCEEDED)
        (end,) = [line for line in said if line.get("action") == "end_session"]
        assert (end["session"], end["worker"], end["runs"]) == (record.session, "first", 1)
        assert end["because"] == "its stream ended and its worker did not come back in time"

    Mesh().run(scenario)


def test_neither_a_long_run_nor_a_long_delay_is_delivered_twice() -> None:
    """A time-out shorter than the run or the delay delivered it again and again (kombu #337)."""

    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", lasts_s=10)
        job = await mesh.job()
        delayed = await mesh.fire(job, delay=10 * S)
        long = await mesh.fire(job)
        for handle in (long, delayed):
            record = await mesh.until(handle, job, RunState.SUCCEEDED)
            assert (record.deliveries, len(mesh.tokens(handle))) == (1, 1)
        assert worker.sessions == [worker.session], "much longer than its time"

    Mesh(session_ms=4_000).run(scenario)


def test_a_closed_session_gives_its_runs_back_at_once() -> None:
    async def scenario(mesh: Mesh) -> None:
        first, job, handle = await unbegun(mesh)
        Worker(mesh, "second", lasts_s=0.1)
        await asyncio.sleep(0.5)
        began = mesh.now
        await first.close()
        await mesh.until(handle, job, RunState.SUCCEEDED)
        assert mesh.now - began < S

    Mesh().run(scenario)


def test_a_run_that_is_given_back_waits_again_and_its_token_is_void() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", slots=1)
        worker.begins = False
        job = await mesh.job()
        handle = await mesh.fire(job)
        record = await mesh.until(handle, job, RunState.RUNNING)
        token = (await mesh.store.get([handle])).kvs[0].mod_revision
        ref = worker_pb2.AttemptRef(handle=handle, token=token)
        await worker.give_back(worker_pb2.Assignment(attempt=ref))
        record = await mesh.until(handle, job, RunState.WAITING)
        assert (record.deliveries, record.failures, record.token) == (1, 0, 0)
        assert record.attempts[0].state == run_pb2.ATTEMPT_STATE_RETURNED

    Mesh().run(scenario)
