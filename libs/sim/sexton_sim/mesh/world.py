"""The simulated mesh: a store, coordinators, queues, workers and users, and what is done to them.

`run(seed)` gives the same `Outcome` every time, down to the hash of everything that happened.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sexton.errors import SextonError
from sexton_coordinator.app import Coordinator
from sexton_queue.app import Queue
from sexton_queue.config import QueueConfig
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.status import ClockState
from sexton_runtime.kv.types import prefix_end
from sexton_runtime.lifecycle import Lifecycle
from sexton_runtime.randomness import SeededRandomness
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_sim.check import Verdict, check
from sexton_sim.check.mesh import check_mesh
from sexton_sim.event_log import Trace
from sexton_sim.faults import Injector, Weighted
from sexton_sim.history import History
from sexton_sim.mesh.executor import Fences, VirtualExecutor
from sexton_sim.mesh.plan import QUEUES, MeshFaults, MeshPlan, plan_of
from sexton_sim.mesh.users import Api, User, say_last_words
from sexton_sim.process import Process
from sexton_sim.simulation import Host, Outcome, Simulation
from sexton_sim.workload import STORE_ADDRESS
from sexton_worker.app import Worker
from sexton_worker.config import WorkerConfig

__all__ = ["MeshWorld", "plan_of", "run"]

DRAINED_WITHIN_S = 180.0
"""After healing and a quiet time, with every job paused: sessions, retries and backoffs end."""


class MeshInjector(Injector):
    """What is done to a mesh, besides what is done to every world."""

    def __init__(self, world: MeshWorld, faults: MeshFaults) -> None:
        self._mesh = world
        self._plan = faults
        super().__init__(world)

    def more_faults(self) -> Sequence[Weighted]:
        """Gives them."""
        return (
            (self._plan.stop_member, self._stop_member),
            (self._plan.crash_pair, self._crash_pair),
            (self._plan.sever, self._sever),
        )

    def _stop_member(self) -> None:
        host = self._random.choice(self._mesh.hosts)
        if self._mesh.request_stop(host.name):
            self._note("stop")
            self._world.recorder.fault("stop", host.name)

    def _crash_pair(self) -> None:
        self._note("crash_pair")
        for host in self._random.sample(self._mesh.hosts, 2):
            self._at_some_await(host, host.crash)

    def _sever(self) -> None:
        self._note("sever")
        one = self._random.choice(self._mesh.hosts)
        links = [(one.name, other.name) for other in self._mesh.hosts if other is not one]
        if self._random.random() < 0.5:
            links = [(target, source) for source, target in links]
        self._cut(links, self._random.uniform(0.5, 8))


class MeshWorld(Simulation):
    """One simulation of the whole mesh."""

    def __init__(self, seed: int, plan: MeshPlan, trace: Trace | None = None) -> None:
        super().__init__(seed, faults=plan.faults, engine=plan.engine, trace=trace)
        self.plan = plan
        self.fences = Fences()
        self._lifecycles: dict[str, Lifecycle] = {}
        self.api_addresses = [f"127.0.0.1:{7500 + n}" for n in range(plan.coordinators)]
        self.queue_addresses = [f"127.0.0.1:{7600 + n}" for n in range(plan.queues)]
        self.quiet = (0, 0)
        self.members = [*self._hosts()]
        self._links = [*self._speaking()]

    def link(self, rng: random.Random) -> list[str]:
        """Draws two processes that speak with each other."""
        return list(rng.choice(self._links))

    def request_stop(self, name: str) -> bool:
        """Sends SIGTERM; tells whether there was somebody who could take it."""
        lifecycle = self._lifecycles.get(name)
        process = next(host.process for host in self.hosts if host.name == name)
        if lifecycle is None or process is None or not process.alive:
            return False
        self.loop.call_soon(
            lifecycle.request_stop, "it was asked to", context=process.context.copy()
        )
        return True

    async def _main(self) -> str:
        faults = self.plan.faults
        assert isinstance(faults, MeshFaults), "the faults of a mesh"
        await self._storm(MeshInjector(self, faults), self.plan.duration_s)
        healed_ns = self.loop.now_ns
        await asyncio.sleep(self.plan.quiet_s)
        self.quiet = (healed_ns, self.loop.now_ns)
        self.stopping = True
        last = self.loop.process("last")
        failure: str = await last.spawn(self._finish(last))
        return failure

    async def _finish(self, process: Process) -> str:
        async with self._store_client(process) as store:
            await _settle_clock(store)
            api = self._api(process)
            failure = await say_last_words(api)
            return failure or await _drain(store) or await say_last_words(api)

    def _judge(self, history: History, failure: str) -> Verdict:
        verdict = check(history)
        check_mesh(history, verdict, limits=self._limits(), quiet=self.quiet)
        if failure:
            verdict.violate("L3", failure)
        return verdict

    def _limits(self) -> Mapping[str, int]:
        config = QueueConfig(store=STORE_ADDRESS, max_running=self.plan.max_running)
        return config.bounds()

    # Who takes part

    def _hosts(self) -> Iterator[Host]:
        plan = self.plan
        for number in range(plan.coordinators):
            yield self._host(f"coordinator-{number}", partial(self._run_coordinator, number))
        for number in range(plan.queues):
            yield self._host(f"queue-{number}", partial(self._run_queue, number))
        for number in range(plan.workers):
            yield self._host(f"worker-{number}", self._run_worker)
        for number in range(plan.users):
            yield self._host(f"user-{number}", partial(self._run_user, number))

    def _host(self, name: str, main: Callable[[Process], Coroutine[Any, Any, None]]) -> Host:
        return Host(self, name, main)

    def _speaking(self) -> Iterator[tuple[str, str]]:
        by_role: dict[str, list[str]] = {}
        for host in self.members:
            by_role.setdefault(host.name.partition("-")[0], []).append(host.name)
        for one in (*by_role["coordinator"], *by_role["queue"]):
            yield one, self.store.name
        for pair in (("coordinator", "queue"), ("worker", "queue"), ("user", "coordinator")):
            for one in by_role.get(pair[0], ()):
                for other in by_role[pair[1]]:
                    yield one, other

    def _randomness(self, process: Process) -> SeededRandomness:
        return SeededRandomness(f"{process.name}/{self.seed}/{process.incarnation}")

    def _random_of(self, process: Process) -> random.Random:
        text = f"deeds/{process.name}/{self.seed}/{process.incarnation}"
        return random.Random(text)  # noqa: S311 - determinism is the point

    async def _run_coordinator(self, number: int, process: Process) -> None:
        coordinator = Coordinator(
            transport=self.transport,
            clock=process.clock,
            randomness=self._randomness(process),
            store=STORE_ADDRESS,
            listen=self.api_addresses[number],
        )
        await self._live(process, coordinator.lifecycle)

    async def _run_queue(self, number: int, process: Process) -> None:
        session_ms = self.plan.session_ms
        queue = Queue(
            QueueConfig(
                store=STORE_ADDRESS,
                listen=self.queue_addresses[number],
                session_ms=session_ms,
                heartbeat_ms=min(1_000, session_ms // 5),
                grace_ms=min(2_000, session_ms // 3),
                max_running=self.plan.max_running,
            ),
            transport=self.transport,
            clock=process.clock,
            randomness=self._randomness(process),
        )
        await self._live(process, queue.lifecycle)

    async def _run_worker(self, process: Process) -> None:
        executor = VirtualExecutor(process, self.recorder, self.fences, self._random_of(process))
        worker = Worker(
            config=WorkerConfig(
                queue=tuple(self.queue_addresses),
                queues=QUEUES,
                name=process.name,
                slots=self.plan.slots,
                cancel_grace_s=1.0,
                drain_timeout_s=3.0,
            ),
            executor=executor,
            transport=self.transport,
            clock=process.clock,
            randomness=self._randomness(process),
            die=lambda _why: process.crash(),
        )
        await self._live(process, worker.lifecycle)

    async def _live(self, process: Process, lifecycle: Lifecycle) -> None:
        self._lifecycles[process.name] = lifecycle
        try:
            await lifecycle.run(signals=False)
        except SextonError as error:
            self.recorder.fault("could not start", process.name, error=type(error).__name__)
        finally:
            self._lifecycles.pop(process.name, None)

    async def _run_user(self, number: int, process: Process) -> None:
        rng = self._random_of(process)
        names = [f"job-{n}" for n in range(self.plan.jobs)]
        user = User(
            self._api(process),
            name=f"{process.name}.{process.incarnation}",
            names=names,
            spec=self.plan.spec,
            rng=rng,
        )
        if process.incarnation == 1:
            await asyncio.sleep(0.5)
            for name in names[number :: self.plan.users]:
                try:
                    await user.create(name)
                except SextonError:
                    await asyncio.sleep(0.1)
        while not self.stopping:
            await user.act()
            await asyncio.sleep(rng.expovariate(1 / self.plan.pause_s))

    def _api(self, process: Process) -> Api:
        return Api(
            process, self.transport, self.recorder, self.api_addresses, self._random_of(process)
        )

    def _store_client(self, process: Process) -> StoreClient:
        channel = PolicyChannel(self.transport.channel(STORE_ADDRESS))
        return StoreClient(channel, clock=process.clock, randomness=self._randomness(process))


async def _settle_clock(store: StoreClient) -> None:
    """Ends a dispute about the time, as a person would."""
    while True:
        try:
            reading = await store.clock()
            if reading.state is ClockState.DISPUTED:
                await store.accept_clock(reading.dispute)
        except SextonError:
            await asyncio.sleep(0.5)
        else:
            return


async def _drain(store: StoreClient) -> str:
    """Waits until no run is in flight. Gives what was wrong; empty: nothing."""
    end_s = asyncio.get_running_loop().time() + DRAINED_WITHIN_S
    left: Sequence[bytes] = ()
    while asyncio.get_running_loop().time() < end_s:
        try:
            page = await store.scan(b"active/", prefix_end(b"active/"), keys_only=True)
        except SextonError:
            await asyncio.sleep(0.5)
            continue
        left = [kv.key for kv in page.kvs]
        if not left:
            return ""
        await asyncio.sleep(0.5)
    return f"{len(left)} runs have not ended {DRAINED_WITHIN_S:g} s after healing: {left[:5]}"


def run(seed: int, plan: MeshPlan | None = None, trace: Trace | None = None) -> Outcome:
    """Runs the mesh of a seed, by its own plan unless given one; `trace` sees every event."""
    return MeshWorld(seed, plan or plan_of(seed), trace).run()
