"""What stands in line, and in which order it leaves: through the real queue and store."""

import asyncio

from google.protobuf.duration_pb2 import Duration
from simulation.queue.mesh import Mesh
from simulation.queue.worker import Worker, fail

from sexton.internal.v1 import queue_pb2
from sexton.v1 import job_pb2
from sexton_core.instants import SECOND
from sexton_core.words import RunState
from sexton_runtime.kv.types import Delete, Txn

S = 1_000_000_000


def test_higher_priorities_go_first_and_equal_ones_in_order() -> None:
    async def scenario(mesh: Mesh) -> None:
        low, high = await mesh.job(priority=-5), await mesh.job(priority=7)
        handles = await mesh.fire_many(low, 3)
        handles = [*await mesh.fire_many(high, 3), *handles]
        Worker(mesh, "worker", slots=1, lasts_s=0.2)
        await mesh.until_settled()
        assert [one.handle for one in mesh.executions] == handles

    Mesh().run(scenario)


def test_a_delayed_run_is_not_early_and_holds_nobody_up() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.job()
        delayed = await mesh.fire(job, delay=20 * SECOND)
        Worker(mesh, "worker", slots=1, lasts_s=0.1)
        await mesh.fire(job)
        await mesh.begun(2)
        first, second = mesh.executions
        assert second.handle == delayed
        assert 19 * S < second.began - first.began < 21 * S
        record = await mesh.until(delayed, job, RunState.SUCCEEDED)
        assert 0 <= record.attempts[0].assign_time_ns - record.handle_not_before_ns < S

    Mesh().run(scenario)


def test_no_assignment_passes_the_bound_of_a_queue() -> None:
    async def scenario(mesh: Mesh) -> None:
        bounded, free = await mesh.job(queue="mails"), await mesh.job()
        Worker(mesh, "worker", queues=("mails", "default"), slots=20, lasts_s=1)
        await mesh.fire_many(bounded, 6)
        await mesh.fire_many(free, 6)
        await mesh.until_settled()
        for one in mesh.executions:
            together = [
                other
                for other in mesh.executions
                if b"/mails/" in other.handle
                and other.began <= one.began < (other.ended or mesh.now)
            ]
            assert len(together) <= 2
        free_began = [one.began for one in mesh.executions if b"/default/" in one.handle]
        assert max(free_began) - min(free_began) < S

    Mesh(max_running="mails=2").run(scenario)


def test_a_run_of_which_no_push_told_is_found() -> None:
    async def scenario(mesh: Mesh) -> None:
        Worker(mesh, "worker")
        await asyncio.sleep(1)
        job = await mesh.job()
        began = mesh.now
        handle = await mesh.fire(job, push=False)
        await mesh.until(handle, job, RunState.SUCCEEDED)
        assert mesh.now - began < 7 * S

    Mesh().run(scenario)


def test_a_run_that_a_leader_left_untold_is_found_when_the_next_one_opens_its_stream() -> None:
    async def scenario(mesh: Mesh) -> None:
        Worker(mesh, "worker")
        await asyncio.sleep(1)
        job = await mesh.job()
        began = mesh.now
        handle = await mesh.fire(job, push=False)
        await mesh.push([])
        await mesh.until(handle, job, RunState.SUCCEEDED)
        assert mesh.now - began < 2 * S

    Mesh().run(scenario)


def test_a_backlog_larger_than_the_window_is_worked_off_once_each() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.job()
        await mesh.fire_many(job, 2_500, push=False)
        urgent = await mesh.job(priority=1)
        Worker(mesh, "worker", slots=200, lasts_s=0.05)
        await mesh.begun(300)
        first = await mesh.fire(urgent)
        await mesh.until(first, urgent, RunState.SUCCEEDED)
        assert len(mesh.executions) < 2_000
        await mesh.until_settled()
        assert len(mesh.executions) == 2_501
        assert len({one.handle for one in mesh.executions}) == 2_501

    Mesh().run(scenario)


def test_runs_that_no_worker_takes_do_not_stand_in_the_way() -> None:
    async def scenario(mesh: Mesh) -> None:
        python = job_pb2.Task(python=job_pb2.PythonTask(task="report"))
        strange, plain = await mesh.job(task=python), await mesh.job()
        await mesh.fire_many(strange, 2_200, push=False)
        handle = await mesh.fire(plain, push=False)
        Worker(mesh, "plain", slots=50, lasts_s=0.05)
        await mesh.until(handle, plain, RunState.SUCCEEDED)
        assert len(mesh.executions) == 1
        Worker(mesh, "able", slots=200, lasts_s=0.05, tasks=("report",))
        await mesh.until_settled()
        assert len({one.handle for one in mesh.executions}) == len(mesh.executions) == 2_201

    Mesh().run(scenario)


def test_two_workers_share_the_work_and_nothing_runs_twice() -> None:
    async def scenario(mesh: Mesh) -> None:
        for name in ("one", "two"):
            Worker(mesh, name, slots=5, lasts_s=0.2)
        await asyncio.sleep(0.5)
        job = await mesh.job()
        await mesh.fire_many(job, 100)
        await mesh.until_settled()
        assert len({one.handle for one in mesh.executions}) == len(mesh.executions) == 100
        counts = [sum(one.worker == name for one in mesh.executions) for name in ("one", "two")]
        assert min(counts) >= 30

    Mesh().run(scenario)


def test_the_owner_describes_its_queues_and_sessions() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", slots=2, lasts_s=30)
        job = await mesh.job()
        await mesh.fire_many(job, 5)
        await mesh.fire(job, delay=60 * SECOND)
        await mesh.begun(2)
        stub = mesh.stub(await mesh.owner())
        answer = await stub.DescribeQueues(queue_pb2.DescribeQueuesRequest())
        (queue,) = answer.queues
        assert (queue.queue, queue.ready, queue.delayed, queue.running, queue.slots) == (
            "default",
            3,
            1,
            2,
            2,
        )
        (session,) = answer.sessions
        assert (session.session, session.running, session.connected) == (worker.session, 2, True)

    Mesh().run(scenario)


def test_a_retried_run_keeps_its_place_and_waits_for_its_backoff() -> None:
    async def scenario(mesh: Mesh) -> None:
        retry = job_pb2.Retry(max_attempts=2, initial_backoff=Duration(seconds=5), jitter=0.0)
        job = await mesh.job(retry=retry)
        first, second = await mesh.fire_many(job, 2)
        Worker(mesh, "worker", slots=1, lasts_s=0.1, outcome=fail)
        await mesh.until_settled()
        assert [one.handle for one in mesh.executions] == [first, second, first, second]
        assert mesh.executions[2].began - (mesh.executions[0].ended or 0) >= 5 * S

    Mesh().run(scenario)


def test_a_handle_that_is_gone_is_not_assigned_however_late_its_push_comes() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.job()
        key, value = mesh.make_run(job)
        revision = await mesh.put(key, value)
        await mesh.store.commit([Txn(then=(Delete(key),))])
        Worker(mesh, "worker")
        await mesh.push([(key, value, revision)])
        await asyncio.sleep(5)
        assert mesh.executions == []
        machine = await mesh.machine()
        assert machine.table.by_key == {}

    Mesh().run(scenario)
