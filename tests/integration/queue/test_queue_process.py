"""The queue as processes over real gRPC: work, secrets, SIGTERM and kill."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from integration.queue.queue_process import Service, queue, store
from unit.queue.lines import UID, T, waiting

from sexton.errors import NotLeader, PermissionDenied
from sexton.internal.v1 import coordinator_pb2, coordinator_pb2_grpc, queue_pb2, queue_pb2_grpc
from sexton.v1 import run_pb2, worker_pb2, worker_pb2_grpc
from sexton_queue.__main__ import main
from sexton_records import keys
from sexton_runtime.clock import SystemClock
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.types import Put, Txn
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.policy_channel import PolicyChannel

pytestmark = pytest.mark.slow
PATIENCE_S = 20.0
Pull = worker_pb2.PullRequest


class Mesh:
    """A store and two replicas."""

    def __init__(self, folder: Path) -> None:
        self.store = store(folder).start()
        self.queues = [queue(folder, self.store.address).start() for _ in range(2)]

    def end(self) -> None:
        for service in [*self.queues, self.store]:
            code, stderr = service.end()
            assert "Traceback" not in stderr
            assert code in (0, -signal.SIGKILL), stderr

    def revive(self) -> None:
        """Starts again what has ended."""
        for service in self.queues:
            if service.process is None or service.process.poll() is not None:
                service.end()
                service.start()

    def channel(self, service: Service, role: str = "mesh") -> PolicyChannel:
        channel = GrpcTransport().channel(service.address)
        return PolicyChannel(channel, secret=self.store.secret(role))

    async def leading(self, service: Service) -> bool:
        async with GrpcTransport().channel(service.address) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            try:
                answer = await stub.Check(health_pb2.HealthCheckRequest(service="leader"))
            except aio.AioRpcError:
                return False
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def owner(self) -> Service:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for service in self.queues:
                    if await self.leading(service):
                        return service
                await asyncio.sleep(0.02)

    async def named_by(self, channel: PolicyChannel) -> str:
        """The owner that a standby names, once it has read who holds the lease."""
        stub = queue_pb2_grpc.QueueServiceStub(channel)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with pytest.raises(NotLeader) as refused:
                    await stub.DescribeQueues(queue_pb2.DescribeQueuesRequest())
                if refused.value.leader:
                    return refused.value.leader
                await asyncio.sleep(0.02)

    async def fire(self, number: int) -> bytes:
        """Commits a run, of a job that exists, into the line."""
        run = waiting(number, delay=time.time_ns() - T)
        async with (
            self.channel(self.store) as channel,
            StoreClient(channel, clock=SystemClock(), randomness=SystemRandomness()) as client,
        ):
            txn = Txn(then=(Put(keys.state_key(0, UID), b""), Put(run.key, run.value)))
            (result,) = await client.commit([txn])
        async with self.channel(await self.owner()) as channel:
            call = queue_pb2_grpc.QueueServiceStub(channel).Push()
            hello = queue_pb2.PushHello(shard=0, leader_token=1)
            await call.write(queue_pb2.PushRequest(hello=hello))
            await call.read()
            pushed = queue_pb2.PushedRun(handle=run.key, revision=result.revision, record=run.value)
            await call.write(queue_pb2.PushRequest(runs=[pushed]))
            await asyncio.sleep(0.1)
            call.cancel()
        return run.key


class Worker:
    """A stream to the owner."""

    def __init__(self, mesh: Mesh, service: Service) -> None:
        self.channel = mesh.channel(service, "worker")
        self.call: Any = worker_pb2_grpc.WorkerServiceStub(self.channel).Pull()

    async def hello(self, session: str = "", held: Any = ()) -> worker_pb2.Welcome:
        hello = worker_pb2.Hello(
            session=session, worker="w", queues=["default"], kinds=["shell"], slots=4, held=held
        )
        await self.call.write(Pull(hello=hello))
        response = await self.call.read()
        return response.welcome

    async def next(self, field: str) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                response = await self.call.read()
                assert response is not aio.EOF
                found = getattr(response, field)
                if found:
                    return found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    mesh = Mesh(tmp_path_factory.mktemp("mesh"))
    yield mesh
    mesh.end()


@pytest.fixture
def mesh(shared: Mesh) -> Mesh:
    """Two replicas, whatever has become of those of the test before."""
    shared.revive()
    return shared


async def test_a_run_survives_sigterm_of_its_owner_and_is_settled_by_the_next(mesh: Mesh) -> None:
    first = await mesh.owner()
    worker = Worker(mesh, first)
    welcome = await worker.hello()
    handle = await mesh.fire(1)
    await worker.call.write(Pull(credits=4))
    (assignment,) = await worker.next("assignments")
    assert assignment.attempt.handle == handle
    assert assignment.session == welcome.session
    await worker.call.write(Pull(heartbeat=1, started=[assignment.attempt]))
    assert await worker.next("heartbeat") == 1

    began = time.monotonic()
    assert first.process is not None
    first.process.send_signal(signal.SIGTERM)
    assert await worker.next("reconnect") is True
    (second,) = [one for one in mesh.queues if one is not first]
    assert await mesh.owner() is second
    assert time.monotonic() - began < PATIENCE_S
    again = Worker(mesh, second)
    resumed = await again.hello(welcome.session, [assignment.attempt])
    assert resumed.session == welcome.session
    assert resumed.owner_token > welcome.owner_token
    assert list(resumed.revoked) == []
    done = worker_pb2.Completion(attempt=assignment.attempt, state=run_pb2.ATTEMPT_STATE_SUCCEEDED)
    await again.call.write(Pull(completions=[done]))
    (result,) = await again.next("results")
    assert (result.accepted, result.state) == (True, run_pb2.RUN_STATE_SUCCEEDED)
    await worker.channel.close()
    await again.channel.close()
    assert first.process.wait(PATIENCE_S) == 0


async def test_a_killed_owner_is_followed_and_the_standby_says_who_owns(mesh: Mesh) -> None:
    first = await mesh.owner()
    (second,) = [one for one in mesh.queues if one is not first]
    async with mesh.channel(second) as channel:
        assert await mesh.named_by(channel) == first.address
        members = coordinator_pb2_grpc.MemberServiceStub(channel)
        asked = coordinator_pb2.DescribeMemberRequest()
        answer = await members.DescribeMember(asked)
        assert (answer.member.leading, answer.member.address) == (False, second.address)
        first.end(signal.SIGKILL)
        assert await mesh.owner() is second
        answer = await members.DescribeMember(asked)
        assert answer.member.leading
        assert answer.member.token > 0


async def test_each_door_takes_its_own_secret_only(mesh: Mesh) -> None:
    owner = await mesh.owner()
    async with mesh.channel(owner, "worker") as channel:
        stub = queue_pb2_grpc.QueueServiceStub(channel)
        with pytest.raises(PermissionDenied):
            await stub.DescribeQueues(queue_pb2.DescribeQueuesRequest())
    async with GrpcTransport().channel(owner.address) as channel:
        call: Any = worker_pb2_grpc.WorkerServiceStub(channel).Pull()
        with pytest.raises(aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "queue.store: is missing"),
        (["--store", "x:1", "--session-ms", "1000"], "is too short"),
        (["--store", "x:1", "--max-running", "mails=many"], "give NAME=NUMBER"),
        (["--store", "x:1", "--max-running", "mails=-1"], "give 0 or more"),
        (["--store", "x:1", "--listen", "0.0.0.0:0"], "can be reached from other machines"),
    ],
)
def test_wrong_flags_say_what_to_do(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(flags) == 2
    assert said in capsys.readouterr().err


def test_a_replica_without_a_store_can_be_stopped(tmp_path: Path) -> None:
    service = queue(tmp_path, "127.0.0.1:1").start()
    code, stderr = service.end()
    assert code == 0
    assert "Traceback" not in stderr
