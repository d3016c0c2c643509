"""The owner goes, in order or by a crash: runs go on with their workers, nothing happens twice."""

import asyncio

import pytest
from simulation.queue.mesh import NAMES, Mesh
from simulation.queue.worker import Worker

from sexton.errors import NotLeader
from sexton.internal.v1 import queue_pb2
from sexton.v1 import job_pb2
from sexton_core.words import RunState

S = 1_000_000_000


def other(name: str) -> str:
    return next(one for one in NAMES if one != name)


def test_a_run_outlives_the_crash_of_its_owner() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", lasts_s=10)
        job = await mesh.job()
        handle = await mesh.fire(job)
        first = await mesh.owner()
        mesh.crash(first)
        crashed = mesh.now
        assert await mesh.owner() == other(first)
        assert mesh.now - crashed < 2.5 * S
        record = await mesh.until(handle, job, RunState.SUCCEEDED)
        assert mesh.tokens(handle) == [record.token]
        assert worker.sessions == [worker.session]
        assert len(mesh.executions) == 1

    Mesh().run(scenario)


def test_a_stopped_owner_hands_over_within_a_second() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", lasts_s=6)
        job = await mesh.job()
        await mesh.fire_many(job, 3)
        first = await mesh.owner()
        await asyncio.sleep(1)
        began = mesh.now
        stopping = mesh.processes[first].spawn(mesh.queues[first].lifecycle.stop())
        successor = mesh.queues[other(first)].owner
        await mesh.wait_for(lambda: successor.tenure is not None and successor.tenure.acting())
        assert mesh.now - began < S
        handle = await mesh.fire(job)
        await stopping
        record = await mesh.until(handle, job, RunState.SUCCEEDED)
        await mesh.until_settled()
        assert len(mesh.executions) == 4
        assert worker.sessions == [worker.session]
        assert record.deliveries == 1

    Mesh().run(scenario)


def test_a_run_in_line_is_assigned_by_the_next_owner() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.job()
        handles = await mesh.fire_many(job, 50)
        mesh.crash(await mesh.owner())
        Worker(mesh, "worker", slots=10)
        for handle in handles:
            await mesh.until(handle, job, RunState.SUCCEEDED)
        assert len(mesh.executions) == 50

    Mesh().run(scenario)


def test_an_owner_that_sleeps_longer_than_its_lease_writes_nothing_any_more() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", lasts_s=1)
        job = await mesh.job()
        first = await mesh.owner()
        mesh.processes[first].suspend()
        handles = []
        for _ in range(3):
            handles += await mesh.fire_many(job, 1, push=False)
            await asyncio.sleep(1.5)
        mesh.processes[first].resume()
        for handle in handles:
            record = await mesh.until(handle, job, RunState.SUCCEEDED)
            assert mesh.tokens(handle) == [record.token]
        assert await mesh.owner() == other(first)
        assert worker.sessions == [worker.session]

    Mesh().run(scenario)


def test_a_worker_that_says_hello_to_a_standby_is_told_where_the_owner_is() -> None:
    async def scenario(mesh: Mesh) -> None:
        first = await mesh.owner()
        stub = mesh.stub(other(first))
        with pytest.raises(NotLeader) as caught:
            await stub.DescribeQueues(queue_pb2.DescribeQueuesRequest())
        assert caught.value.leader == f"127.0.0.1:770{NAMES.index(first) + 1}"

    Mesh().run(scenario)


def test_the_store_may_be_away_while_a_run_goes_on() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", lasts_s=3)
        job = await mesh.job()
        handle = await mesh.fire(job)
        await asyncio.sleep(1)
        mesh.crash("store")
        await asyncio.sleep(10)
        await mesh.start_store()
        record = await mesh.until(handle, job, RunState.SUCCEEDED)
        assert mesh.tokens(handle) == [record.token]
        assert worker.sessions == [worker.session]

    Mesh().run(scenario)


def test_a_graceful_stop_without_a_store_ends() -> None:
    async def scenario(mesh: Mesh) -> None:
        first = await mesh.owner()
        mesh.crash("store")
        began = mesh.now
        await mesh.processes[first].spawn(mesh.queues[first].lifecycle.stop())
        assert mesh.now - began < 15 * S

    Mesh().run(scenario)


def test_more_running_than_one_answer_of_the_store_can_hold_is_taken_over() -> None:
    async def scenario(mesh: Mesh) -> None:
        Worker(mesh, "worker", slots=200, lasts_s=10)
        large = job_pb2.Task(shell=job_pb2.ShellTask(command="true " + "x" * 30_000))
        job = await mesh.job(task=large)
        for _ in range(15):
            await mesh.fire_many(job, 10, push=False)
        await mesh.begun(150)  # 4.5 MB of records
        first = await mesh.owner()
        mesh.crash(first)
        assert await mesh.owner() == other(first)
        await mesh.until_settled()
        assert len(mesh.executions) == 150

    Mesh().run(scenario)
