"""Runs through the real queue: assigned, executed, settled; with everything healthy."""

import asyncio

from simulation.queue.mesh import Mesh
from simulation.queue.worker import Worker, fail

from sexton.v1 import run_pb2
from sexton_core.words import RunState


def test_a_run_is_assigned_executed_and_settled() -> None:
    mesh = Mesh()

    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker")
        job = await mesh.job()
        handle = await mesh.fire(job)
        record = await mesh.until(handle, job, RunState.SUCCEEDED)
        assert record.completed
        assert mesh.tokens(handle) == [record.token]
        assert [attempt.number for attempt in record.attempts] == [1]
        assert record.attempts[0].state == run_pb2.ATTEMPT_STATE_SUCCEEDED
        assert record.result_json == "{}"
        assert await mesh.keys_below(b"active/") == []
        assert len(await mesh.keys_below(b"ended/")) == 1
        assert await mesh.keys_below(b"dead/") == []
        await worker.close()
        await asyncio.sleep(1)
        assert await mesh.keys_below(b"sessions/") == []

    mesh.run(scenario)


def test_a_failing_run_is_tried_again_with_a_higher_token_then_a_dead_letter() -> None:
    mesh = Mesh()

    async def scenario(mesh: Mesh) -> None:
        Worker(mesh, "worker", outcome=fail, lasts_s=0.01)
        job = await mesh.job()
        handle = await mesh.fire(job)
        record = await mesh.until(handle, job, RunState.FAILED)
        tokens = mesh.tokens(handle)
        assert len(tokens) == 3
        assert tokens == sorted(set(tokens))
        assert record.token == tokens[-1]
        assert [attempt.token for attempt in record.attempts] == tokens
        assert record.error.kind == "exit 3"
        assert len(await mesh.keys_below(b"dead/")) == 1
        begins = [one.began for one in mesh.executions]
        assert begins[1] - begins[0] >= 0.9e9
        assert begins[2] - begins[1] >= 1.8e9

    mesh.run(scenario)


def test_answers_to_completions_travel_with_the_next_assignment_and_wait_for_none() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = Worker(mesh, "worker", slots=1, lasts_s=0.01)
        job = await mesh.job()
        handles = [await mesh.fire(job) for _ in range(8)]
        for handle in handles:
            await mesh.until(handle, job, RunState.SUCCEEDED)
        await asyncio.sleep(0.1)
        assert len(worker.results) == 8
        assert worker.bare_answers <= 1

    Mesh().run(scenario)
