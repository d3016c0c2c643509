"""What workers and leaders may not say: answered with what was wrong, and nothing happens of it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from grpc import aio
from simulation.queue.mesh import NAMES, QUEUES, Mesh
from simulation.queue.worker import Worker

from sexton.errors import (
    Conflict,
    DeadlineExceeded,
    Fenced,
    InvalidArgument,
    NotLeader,
    SextonError,
    TooLarge,
)
from sexton.internal.v1 import queue_pb2
from sexton.v1 import run_pb2, worker_pb2, worker_pb2_grpc
from sexton_core.words import RunState
from sexton_runtime.rpc.policy_channel import PolicyChannel

Pull = worker_pb2.PullRequest
REF = worker_pb2.AttemptRef(handle=b"active/000/default/100/1/u/r", token=7)
S = 1_000_000_000


def hello(**fields: Any) -> worker_pb2.PullRequest:
    said = {"worker": "raw", "queues": ["default"], "kinds": ["shell"], "slots": 4} | fields
    return Pull(hello=worker_pb2.Hello(**said))


class Raw:
    """A worker's stream without a worker's manners."""

    def __init__(self, mesh: Mesh, owner: str) -> None:
        channel = PolicyChannel(mesh.transport.channel(QUEUES[NAMES.index(owner)]))
        self.call = worker_pb2_grpc.WorkerServiceStub(channel).Pull()  # type: ignore[no-untyped-call]

    async def welcome(self, **fields: Any) -> worker_pb2.Welcome:
        await self.call.write(hello(**fields))
        response: worker_pb2.PullResponse = await self.call.read()
        return response.welcome

    async def refusal(self, *requests: worker_pb2.PullRequest) -> SextonError:
        """Sends, reads to the end, and gives the error at the end."""
        with pytest.raises(SextonError) as caught:
            await self._talk(requests)
        return caught.value

    async def _talk(self, requests: Sequence[worker_pb2.PullRequest]) -> None:
        for request in requests:
            await self.call.write(request)
        while await self.call.read() is not aio.EOF:
            pass


async def raw(mesh: Mesh) -> Raw:
    return Raw(mesh, await mesh.owner())


@pytest.mark.parametrize(
    ("first", "field"),
    [
        (Pull(), "hello"),
        (Pull(credits=1), "hello"),
        (Pull(hello=worker_pb2.Hello(queues=["default"], slots=1), credits=1), "hello"),
        (hello(queues=[]), "hello.queues"),
        (hello(queues=["../etc"]), "hello.queues"),
        (hello(queues=["q" * 64]), "hello.queues"),
        (hello(tasks=["no spaces"]), "hello.tasks"),
        (hello(kinds=["python"]), "hello.kinds"),
        (hello(slots=0), "hello.slots"),
        (hello(slots=-1), "hello.slots"),
        (hello(slots=100_001), "hello.slots"),
        (hello(worker="a\0b"), "hello.worker"),
        (hello(held=[worker_pb2.AttemptRef()]), "hello.held"),
    ],
)
def test_a_hello_that_is_none_is_refused(first: worker_pb2.PullRequest, field: str) -> None:
    async def scenario(mesh: Mesh) -> None:
        error = await (await raw(mesh)).refusal(first)
        assert isinstance(error, InvalidArgument)
        assert error.field == field
        assert (await mesh.machine()).sessions.by_id == {}

    Mesh(replicas=1).run(scenario)


@pytest.mark.parametrize(
    ("said", "kind", "field"),
    [
        (hello(), InvalidArgument, "hello"),
        (Pull(credits=-1), InvalidArgument, "credits"),
        (Pull(credits=5), InvalidArgument, "credits"),
        (Pull(credits=2**31 - 1), InvalidArgument, "credits"),
        (Pull(heartbeat=-1), InvalidArgument, "heartbeat"),
        (Pull(started=[worker_pb2.AttemptRef(token=1)]), InvalidArgument, "started"),
        (Pull(returned=[worker_pb2.AttemptRef(handle=b"x")]), InvalidArgument, "returned"),
        (
            Pull(progress=[worker_pb2.Progress(attempt=REF, fraction=float("nan"))]),
            InvalidArgument,
            "progress.fraction",
        ),
        (
            Pull(completions=[worker_pb2.Completion(attempt=REF)]),
            InvalidArgument,
            "completions.state",
        ),
        (
            Pull(
                completions=[
                    worker_pb2.Completion(
                        attempt=worker_pb2.AttemptRef(handle=b"\xff garbage", token=1),
                        state=run_pb2.ATTEMPT_STATE_SUCCEEDED,
                    )
                ]
            ),
            InvalidArgument,
            "completions.attempt.handle",
        ),
        (
            Pull(
                completions=[
                    worker_pb2.Completion(
                        attempt=REF, state=run_pb2.ATTEMPT_STATE_FAILED, result_json="{}"
                    )
                ]
            ),
            InvalidArgument,
            "completions.result_json",
        ),
        (
            Pull(
                completions=[
                    worker_pb2.Completion(
                        attempt=REF, state=run_pb2.ATTEMPT_STATE_SUCCEEDED, for_good=True
                    )
                ]
            ),
            InvalidArgument,
            "completions.state",
        ),
        (
            Pull(
                completions=[
                    worker_pb2.Completion(
                        attempt=REF,
                        state=run_pb2.ATTEMPT_STATE_SUCCEEDED,
                        result_json="x" * (64 * 1024 + 1),
                    )
                ]
            ),
            TooLarge,
            "",
        ),
        (
            Pull(
                completions=[
                    worker_pb2.Completion(
                        attempt=REF,
                        state=run_pb2.ATTEMPT_STATE_SUCCEEDED,
                        output_tail="ä" * (8 * 1024 + 1),
                    )
                ]
            ),
            TooLarge,
            "",
        ),
        (
            Pull(
                completions=[
                    worker_pb2.Completion(
                        attempt=REF, state=run_pb2.ATTEMPT_STATE_SUCCEEDED, wait_ms=-1
                    )
                ]
            ),
            InvalidArgument,
            "completions.wait_ms",
        ),
    ],
)
def test_a_message_beyond_the_protocol_ends_the_stream(
    said: worker_pb2.PullRequest, kind: type[SextonError], field: str
) -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = await raw(mesh)
        await worker.welcome()
        error = await worker.refusal(said)
        assert type(error) is kind
        assert error.facts.get("field", "") == field

    Mesh(replicas=1).run(scenario)


def test_heartbeats_rise() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = await raw(mesh)
        await worker.welcome()
        await worker.call.write(Pull(heartbeat=1))
        assert (await worker.call.read()).heartbeat == 1
        error = await worker.refusal(Pull(heartbeat=1))
        assert isinstance(error, InvalidArgument)

    Mesh(replicas=1).run(scenario)


def test_nobody_is_waited_for_without_a_hello() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = await raw(mesh)
        began = mesh.now
        assert isinstance(await worker.refusal(), DeadlineExceeded)
        assert mesh.now - began < 11 * S

    Mesh(replicas=1).run(scenario)


def test_a_second_stream_of_a_session_replaces_the_first() -> None:
    async def scenario(mesh: Mesh) -> None:
        first, second = await raw(mesh), await raw(mesh)
        welcome = await first.welcome()
        again = await second.welcome(session=welcome.session)
        assert again.session == welcome.session
        assert isinstance(await first.refusal(), Conflict)
        await second.call.write(Pull(heartbeat=1))
        assert (await second.call.read()).heartbeat == 1

    Mesh(replicas=1).run(scenario)


def test_a_session_that_never_was_is_not_resumed_and_what_it_held_is_revoked() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = await raw(mesh)
        welcome = await worker.welcome(session="made-up", held=[REF])
        assert welcome.session not in ("", "made-up")
        assert list(welcome.revoked) == [REF]

    Mesh(replicas=1).run(scenario)


def test_a_worker_that_has_obeyed_a_later_owner_is_not_spoken_to() -> None:
    async def scenario(mesh: Mesh) -> None:
        error = await (await raw(mesh)).refusal(hello(owner_token=2**40))
        assert isinstance(error, NotLeader)

    Mesh(replicas=1).run(scenario)


def test_a_foreign_token_counts_for_nothing() -> None:
    async def scenario(mesh: Mesh) -> None:
        Worker(mesh, "worker", lasts_s=3)
        job = await mesh.job()
        handle = await mesh.fire(job)
        await mesh.begun()
        token = mesh.executions[0].token
        other = await raw(mesh)
        await other.welcome()
        for wrong in (token - 1, token + 1):
            ref = worker_pb2.AttemptRef(handle=handle, token=wrong)
            said = worker_pb2.Completion(attempt=ref, state=run_pb2.ATTEMPT_STATE_SUCCEEDED)
            await other.call.write(Pull(completions=[said]))
            (result,) = (await other.call.read()).results
            assert (result.accepted, result.state) == (False, run_pb2.RUN_STATE_RUNNING)
        await other.call.write(Pull(started=[worker_pb2.AttemptRef(handle=handle, token=token)]))
        (stop,) = (await other.call.read()).cancellations
        assert stop.mode == run_pb2.CANCEL_MODE_TERMINATE
        record = await mesh.until(handle, job, RunState.SUCCEEDED)
        assert record.token == token

    Mesh(replicas=1).run(scenario)


def test_completing_twice_is_answered_with_what_was_recorded() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = await raw(mesh)
        await worker.welcome()
        job = await mesh.job()
        handle = await mesh.fire(job)
        await worker.call.write(Pull(credits=1))
        (assignment,) = (await worker.call.read()).assignments
        for state in (run_pb2.ATTEMPT_STATE_SUCCEEDED, run_pb2.ATTEMPT_STATE_CANCELLED):
            said = worker_pb2.Completion(attempt=assignment.attempt, state=state)
            await worker.call.write(Pull(completions=[said]))
            (result,) = (await worker.call.read()).results
            assert (result.accepted, result.state) == (True, run_pb2.RUN_STATE_SUCCEEDED)
        # Another owner finds it in the record of the ended run.
        mesh.crash("queue-1")
        await mesh.start_queue("queue-1")
        later = await raw(mesh)
        await later.welcome()
        await later.call.write(Pull(completions=[said]))
        (result,) = (await later.call.read()).results
        assert (result.accepted, result.state) == (True, run_pb2.RUN_STATE_SUCCEEDED)
        assert await mesh.state(handle, job) is RunState.SUCCEEDED

    Mesh(replicas=1).run(scenario)


def test_credits_bound_what_a_worker_gets() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = await raw(mesh)
        await worker.welcome()
        job = await mesh.job()
        await mesh.fire_many(job, 10)
        await worker.call.write(Pull(credits=2))
        await asyncio.sleep(1)
        machine = await mesh.machine()
        assert machine.table.line.running["default"] == 2
        await worker.call.write(Pull(credits=1))
        await asyncio.sleep(1)
        assert machine.table.line.running["default"] == 3

    Mesh(replicas=1).run(scenario)


def test_half_closing_without_a_word_starts_the_grace() -> None:
    async def scenario(mesh: Mesh) -> None:
        worker = await raw(mesh)
        await worker.welcome()
        job = await mesh.job()
        handle = await mesh.fire(job)
        await worker.call.write(Pull(credits=1))
        await worker.call.read()
        await worker.call.done_writing()
        began = mesh.now
        await mesh.until(handle, job, RunState.WAITING)
        assert 1.9 * S < mesh.now - began < 3 * S

    Mesh(replicas=1).run(scenario)


@pytest.mark.parametrize(
    "request_",
    [
        queue_pb2.EndRunsRequest(),
        queue_pb2.EndRunsRequest(ends=[queue_pb2.EndRequest(handle=b"")]),
        queue_pb2.EndRunsRequest(ends=[queue_pb2.EndRequest(handle=b"active/000/x")]),
        queue_pb2.EndRunsRequest(ends=[queue_pb2.EndRequest(handle=b"state/000/x")]),
        queue_pb2.EndRunsRequest(ends=[queue_pb2.EndRequest(handle=b"active/000/" + b"a" * 500)]),
        queue_pb2.EndRunsRequest(ends=[queue_pb2.EndRequest(handle=REF.handle, mode=9)]),
    ],
)
def test_requests_to_end_what_can_be_no_run_are_refused(
    request_: queue_pb2.EndRunsRequest,
) -> None:
    async def scenario(mesh: Mesh) -> None:
        with pytest.raises(InvalidArgument):
            await mesh.stub(await mesh.owner()).EndRuns(request_)

    Mesh(replicas=1).run(scenario)


def test_too_many_ends_are_too_large() -> None:
    async def scenario(mesh: Mesh) -> None:
        ends = [queue_pb2.EndRequest(handle=REF.handle)] * 1_001
        with pytest.raises(TooLarge):
            await mesh.stub(await mesh.owner()).EndRuns(queue_pb2.EndRunsRequest(ends=ends))

    Mesh(replicas=1).run(scenario)


def test_a_replaced_leader_is_turned_away() -> None:
    async def scenario(mesh: Mesh) -> None:
        stub = mesh.stub(await mesh.owner())

        async def push(token: int) -> Any:
            hello = queue_pb2.PushHello(shard=0, leader_token=token)
            call = stub.Push()
            await call.write(queue_pb2.PushRequest(hello=hello))
            assert (await call.read()).owner_token > 0
            return call

        first = await push(5)
        await push(9)
        with pytest.raises(Fenced):
            await first.read()
        with pytest.raises(Fenced):
            await push(7)

    Mesh(replicas=1).run(scenario)


def test_garbage_in_a_push_is_no_run() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.job()
        key, _ = mesh.make_run(job)
        await mesh.push([(key, b"\xff\xff", 5), (key, b"", 5)])
        machine = await mesh.machine()
        assert machine.table.by_key == {}

    Mesh(replicas=1).run(scenario)
