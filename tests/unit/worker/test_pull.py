"""The stream to the owner, on virtual time: found, lost, found again, and what that costs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from integration.worker.owner import Owner, serving

from sexton.v1 import job_pb2
from sexton.v1 import worker_pb2 as pb
from sexton_runtime.randomness import SeededRandomness
from sexton_sim.clock import SimClock
from sexton_sim.loop import SimLoop
from sexton_sim.network import Network
from sexton_sim.process import Process
from sexton_sim.transport import SimTransport
from sexton_worker.app import Worker
from sexton_worker.config import WorkerConfig
from sexton_worker.contract import Ended, Listener, Order

FIRST, SECOND = "127.0.0.1:7700", "127.0.0.1:7701"
HEALTH = "127.0.0.1:7800"


class FakeExecutor:
    """Begins whatever it is told, and ends it when the test says so or it is killed."""

    def __init__(self) -> None:
        self.tasks: Sequence[str] = ()
        self.kinds: Sequence[str] = ("shell",)
        self.running: dict[int, Order] = {}
        self.begun = asyncio.Event()
        self.killed: list[int] = []
        self.immortal = False
        self.end_at = 0
        self.listener: Listener | None = None

    async def start(self, listener: Listener) -> None:
        self.listener = listener

    async def stop(self) -> None:
        self.running.clear()

    def prepare(self, order: Order) -> object:
        return f"ready for {order.run_id}"

    def begin(self, order: Order) -> None:
        self.running[order.ref.token] = order
        self.begun.set()

    async def begins(self, token: int) -> None:
        while token not in self.running:
            self.begun.clear()
            await self.begun.wait()

    def cancel(self, token: int) -> None:
        self.finish(token, Ended.failure("cancelled", ""))

    def kill(self, token: int) -> None:
        self.killed.append(token)
        if not self.immortal:
            self.finish(token, Ended.failure("signal 9", ""))

    def extend(self, end_at: int, dead_at: int) -> None:
        assert dead_at > end_at
        self.end_at = end_at

    def finish(self, token: int, ended: Ended) -> None:
        del self.running[token]
        assert self.listener is not None
        asyncio.get_running_loop().call_soon(self.listener.ended, token, ended)


class Story:
    """Two replicas of a queue and one worker."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.network = Network(1)
        self.owner, self.other = Owner(heartbeat_ms=1_000), Owner(heartbeat_ms=1_000)
        self.other.leader = ""
        self.executor = FakeExecutor()
        self.died: list[str] = []
        self.worker: Worker | None = None
        self.first = self._serve("first", self.owner, FIRST)
        self.second = self._serve("second", self.other, SECOND)
        self.process = self._work()

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.owner.connected()
            await scenario()

        self.loop.run(main())

    def now(self) -> float:
        return self.loop.time()

    async def take_over(self) -> None:
        """Makes the other replica the owner."""
        self.other.leader, self.other.token = None, 2
        await self.other.connected()

    def _serve(self, name: str, owner: Owner, listen: str) -> Process:
        process = self.loop.process(name)

        async def serve() -> None:
            async with serving(owner, transport=SimTransport(self.network), listen=listen):
                await asyncio.Event().wait()

        process.spawn(serve())
        return process

    def _work(self) -> Process:
        process = self.loop.process("worker")

        async def work() -> None:
            self.worker = Worker(
                config=WorkerConfig(
                    queue=(FIRST, SECOND), slots=5, drain_timeout_s=5, health_listen=HEALTH
                ),
                executor=self.executor,
                transport=SimTransport(self.network),
                clock=SimClock(process.machine),
                randomness=SeededRandomness(1),
                die=self.died.append,
            )
            await self.worker.lifecycle.run(signals=False)

        process.spawn(work())
        return process


async def health(story: Story, service: str) -> str:
    async with SimTransport(story.network).channel(HEALTH) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        answer = await health_pb2_grpc.HealthStub(channel).Check(request)
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_silent_owner_is_left_for_the_next_and_nothing_is_lost(story: Story) -> None:
    async def scenario() -> None:
        token = story.owner.shell("true")
        await story.owner.begun(token)
        story.first.suspend()
        began = story.now()
        await story.take_over()
        assert story.now() - began < 10
        (ref,) = story.other.hellos[-1].held
        assert ref.token == token
        assert story.executor.killed == []
        story.executor.finish(token, Ended(succeeded=True))
        await story.other.completion(token)

    story.run(scenario)


def test_an_owner_that_fell_silent_is_asked_last(story: Story) -> None:
    async def scenario() -> None:
        await story.owner.beats(2)
        story.first.suspend()
        began = story.now()
        await story.take_over()
        # Four heartbeats, and no hello to the one that does not answer, which takes three seconds.
        assert story.now() - began < 5

    story.run(scenario)


def test_what_ends_at_once_is_told_in_one_message_and_what_goes_on_a_moment_later(
    story: Story,
) -> None:
    async def scenario() -> None:
        quick = story.owner.shell("true")
        await story.executor.begins(quick)
        began = story.now()
        story.executor.finish(quick, Ended(succeeded=True))
        await story.owner.completion(quick)
        assert story.now() - began < 0.005
        assert story.owner.started == []
        await asyncio.sleep(0.5)
        sent = story.now()
        lasting = story.owner.shell("sleep 60")
        await story.owner.begun(lasting)
        assert 0.01 <= story.now() - sent < 0.02

    story.run(scenario)


def test_what_comes_before_its_time_begins_at_it(story: Story) -> None:
    async def scenario() -> None:
        assignment = story.owner.assignment(job_pb2.Task(shell=job_pb2.ShellTask(command="true")))
        assignment.start_in_ns = 200_000_000
        sent = story.now()
        story.owner.send(pb.PullResponse(assignments=[assignment]))
        token = assignment.attempt.token
        await story.executor.begins(token)
        assert 0.2 <= story.now() - sent < 0.21

    story.run(scenario)


def test_where_many_attempts_end_what_is_said_of_them_is_gathered(story: Story) -> None:
    async def scenario() -> None:
        for _ in range(200):
            token = story.owner.shell("true")
            await story.executor.begins(token)
            story.executor.finish(token, Ended(succeeded=True))
            await asyncio.sleep(0.001)
        await story.owner.completion(token)
        assert len(story.owner.completions) == 200
        assert story.owner.messages < 100

    story.run(scenario)


def test_an_outage_below_the_limit_costs_no_run(story: Story) -> None:
    async def scenario() -> None:
        token = story.owner.shell("true")
        await story.owner.begun(token)
        story.first.suspend()
        story.second.suspend()
        await asyncio.sleep(18)
        story.second.resume()
        await story.take_over()
        assert list(story.executor.running) == [token]

    story.run(scenario)


def test_beyond_the_limit_everything_is_dead_before_a_new_session(story: Story) -> None:
    async def scenario() -> None:
        token = story.owner.shell("true")
        await story.owner.begun(token)
        await story.owner.beats(2)
        story.first.suspend()
        story.second.suspend()
        while not story.executor.killed:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)
        late = story.process.machine.boot_ns() - story.executor.end_at
        assert 0 <= late < 20_000_000
        story.other.session = "s-2"
        story.second.resume()
        await story.take_over()
        assert story.other.hellos[-1].session == ""
        assert not story.other.hellos[-1].held
        assert not story.died

    story.run(scenario)


def test_what_does_not_die_ends_the_worker_and_no_session_is_asked_for(story: Story) -> None:
    async def scenario() -> None:
        story.executor.immortal = True
        await story.owner.begun(story.owner.shell("true"))
        story.owner.answers_heartbeats = False
        story.owner.leader = ""
        silent = story.now()
        while not story.died:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.1)
        assert 25 < story.now() - silent < 28
        seen = len(story.other.hellos)
        assert all(hello.session == "s-1" for hello in story.other.hellos[1:])
        await asyncio.sleep(5)
        assert len(story.other.hellos) == seen

    story.run(scenario)


def test_a_suspended_worker_begins_nothing_of_what_waited_for_it(story: Story) -> None:
    async def scenario() -> None:
        await story.owner.beats(1)
        story.process.suspend()
        late = story.owner.shell("true")
        await asyncio.sleep(40)
        story.owner.session = "s-2"
        story.process.resume()
        await story.owner.connected(2)
        assert late not in story.executor.running
        assert late not in story.owner.started

    story.run(scenario)


def test_a_drained_worker_closes_its_session(story: Story) -> None:
    async def scenario() -> None:
        token = story.owner.shell("true")
        await story.owner.begun(token)
        assert story.worker is not None
        story.worker.lifecycle.request_stop("the test says so")
        await asyncio.sleep(1)
        assert not story.owner.closed
        story.executor.finish(token, Ended(succeeded=True))
        await story.owner.until(lambda: story.owner.closed)
        assert [done.attempt.token for done in story.owner.completions] == [token]

    story.run(scenario)


def test_its_health_says_whether_the_queue_has_welcomed_it(story: Story) -> None:
    async def scenario() -> None:
        assert await health(story, "") == "SERVING"
        assert await health(story, "queue") == "SERVING"

        story.first.crash()
        await asyncio.sleep(5)
        assert await health(story, "") == "SERVING"
        assert await health(story, "queue") == "NOT_SERVING"

        await story.take_over()
        assert await health(story, "queue") == "SERVING"

    story.run(scenario)
