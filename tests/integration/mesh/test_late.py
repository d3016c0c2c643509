"""Workers that fall silent instead of dying: a suspended one, and one that speaks too late.

The mesh has short sessions, so that they end within the patience of a test.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from integration.mesh.mesh_process import PATIENCE_S, MeshProcess, alive, family

from sexton import JobSpec, RunState
from sexton.v1 import run_pb2, worker_pb2
from sexton.v1.worker_pb2_grpc import WorkerServiceStub
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.policy_channel import PolicyChannel

pytestmark = pytest.mark.slow

SHORT = {
    "SEXTON_QUEUE_SESSION_MS": "3000",
    "SEXTON_QUEUE_HEARTBEAT_MS": "500",
    "SEXTON_QUEUE_GRACE_MS": "1000",
}


@pytest.fixture(scope="module", name="short")
def _short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcess]:
    flags = ("--coordinators", "1", "--queues", "1", "--workers", "2", "--drain", "0")
    mesh = MeshProcess(tmp_path_factory.mktemp("mesh"), *flags, environment=SHORT)
    try:
        yield mesh.start()
    finally:
        mesh.stop()


def test_what_a_suspended_worker_had_started_is_dead_before_it_starts_elsewhere(
    short: MeshProcess,
):
    with short.client() as client:
        client.jobs.create("long", JobSpec(task=short.witness("long", 600.0, later=1.0)))
        run = client.jobs.trigger("long").run
        assert run is not None
        (first,) = short.wait_for_lines("long", 1)
        workers = [each for each in short.processes().values() if each.role == "worker"]
        frozen = next(each for each in workers if first.pid in family(each.pid))
        short.send(frozen, signal.SIGSTOP)
        try:
            # While it is suspended nobody but the shim of its run can have ended what runs.
            second = short.wait_for_lines("long", 2)[1]
            assert not alive(first.pid)
        finally:
            short.send(frozen, signal.SIGCONT)
        assert (second.attempt, second.token > first.token) == (2, True)
        ended = client.runs.wait(run, timeout_s=PATIENCE_S)
    assert ended.state is RunState.SUCCEEDED
    ends = [line for line in short.lines("long") if line.event == "end"]
    assert [(line.attempt, line.token) for line in ends] == [(2, second.token)]


async def test_a_late_completion_is_refused_and_the_next_attempts_counts(short: MeshProcess):
    with short.client() as client:
        spec = JobSpec(task=short.witness("by-hand"), queue="by-hand")
        await asyncio.to_thread(client.jobs.create, "by-hand", spec)
        run = (await asyncio.to_thread(client.jobs.trigger, "by-hand")).run
        async with worker(short, "late") as late, asyncio.timeout(PATIENCE_S):
            first = await late.assignment()
            await late.say(started=[first.attempt])
            # From here on it sends no heartbeat: its session ends while it is still connected.
            async with worker(short, "next", beating=True) as other:
                second = await other.assignment()
                assert (first.number, second.number) == (1, 2)
                assert second.attempt.token > first.attempt.token
                async with worker(short, "late", session=late.session) as again:
                    assert again.session != late.session
                    assert not await again.complete(first)
                assert await other.complete(second)
                assert not await other.complete(first)
        ended = await asyncio.to_thread(client.runs.wait, run, timeout_s=PATIENCE_S)
    assert ended.state is RunState.SUCCEEDED
    assert [(each.number, each.state.value) for each in ended.attempts] == [
        (1, "lost"),
        (2, "succeeded"),
    ]


class Worker:
    """A worker's side of the protocol, spoken by hand."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._writing = asyncio.Lock()  # gRPC carries one message of a stream at a time
        self.session = ""

    async def say(self, **said: Any) -> None:
        async with self._writing:
            await self._call.write(worker_pb2.PullRequest(**said))

    async def hear(self, field: str) -> Any:
        """Waits for a message that holds the field, and gives it."""
        while True:
            answer = await self._call.read()
            assert isinstance(answer, worker_pb2.PullResponse), answer
            found = getattr(answer, field)
            if field == "welcome" or found:
                return found

    async def assignment(self) -> worker_pb2.Assignment:
        await self.say(credits=1)
        (assignment,) = await self.hear("assignments")
        return assignment

    async def complete(self, assignment: worker_pb2.Assignment) -> bool:
        """Says that it has succeeded, and tells whether that was accepted."""
        completion = worker_pb2.Completion(
            attempt=assignment.attempt, state=run_pb2.ATTEMPT_STATE_SUCCEEDED
        )
        await self.say(completions=[completion])
        (result,) = await self.hear("results")
        return bool(result.accepted)

    async def beat(self) -> None:
        number = 0
        while True:
            number += 1
            await self.say(heartbeat=number)
            await asyncio.sleep(0.3)


@asynccontextmanager
async def worker(
    mesh: MeshProcess, name: str, *, session: str = "", beating: bool = False
) -> AsyncIterator[Worker]:
    """Connects a worker of this name to the queue's owner."""
    address = (await asyncio.to_thread(mesh.leader, "queue")).address
    secret = (Path(mesh.data) / "secrets" / "worker").read_text().strip()
    async with PolicyChannel(GrpcTransport().channel(address), secret=secret) as channel:
        stub: Any = WorkerServiceStub(channel)
        call = stub.Pull()
        beats: asyncio.Task[None] | None = None
        try:
            spoken = Worker(call)
            hello = worker_pb2.Hello(
                session=session, worker=name, queues=["by-hand"], kinds=["shell"], slots=1
            )
            await spoken.say(hello=hello)
            spoken.session = (await spoken.hear("welcome")).session
            if beating:
                beats = asyncio.create_task(spoken.beat())
            yield spoken
        finally:
            if beats is not None:
                beats.cancel()
                await asyncio.gather(beats, return_exceptions=True)
            call.cancel()
