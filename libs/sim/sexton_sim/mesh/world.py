"""The simulated mesh: a store, coordinators, queues, workers and users, and what is done to them.

`run(seed)` gives the same `Outcome` every time, down to the hash of everything that happened.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from sexton.errors import SextonError
from sexton.internal.v1.records_pb2 import RunRecord
from sexton.v1 import run_pb2
from sexton_coordinator.app import Coordinator
from sexton_queue.app import Queue
from sexton_queue.config import QueueConfig
from sexton_records import keys
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.status import ClockState
from sexton_runtime.kv.types import prefix_end
from sexton_runtime.randomness import SeededRandomness
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_runtime.transport import Transport
from sexton_sim.check import Verdict, check
from sexton_sim.check.executions import Times
from sexton_sim.check.mesh import check_mesh
from sexton_sim.event_log import Trace
from sexton_sim.faults import Injector
from sexton_sim.history import History
from sexton_sim.mesh.backups import Backups
from sexton_sim.mesh.executor import Fences, VirtualExecutor
from sexton_sim.mesh.faults import DEEDS
from sexton_sim.mesh.lease_calls import LeaseNotingTransport
from sexton_sim.mesh.operators import Operator, resume_queues
from sexton_sim.mesh.plan import QUEUES, MeshPlan, plan_of
from sexton_sim.mesh.repairs import Repairer
from sexton_sim.mesh.users import Api, User, say_last_words
from sexton_sim.network import Event
from sexton_sim.process import Process
from sexton_sim.simulation import Host, Outcome, Simulation
from sexton_sim.workload import STORE_ADDRESS
from sexton_store.disk import WriteBatch
from sexton_worker.app import Worker
from sexton_worker.config import WorkerConfig

__all__ = ["MeshWorld", "plan_of", "run"]

_LAST_CALLS_S = 1.0
"""What users have asked for by then is answered before the last words, which may move the mesh's
clock: a start that waits for its time would wait until after the end."""
DRAINED_WITHIN_S = 600.0
"""After healing and a quiet time, with every job paused: sessions, retries and backoffs end, and
what waits for a queue that has one run at a time. No world comes near it that makes progress."""
LEASE_S = 2.0
"""Of leaders and owners."""
_POINTS = {
    keys.ACTIVE: "fire",
    keys.RUNS: "settlement",
    keys.JOBS: "definition",
}
"""What a step is that writes a new key below these, or, for a definition, any."""
_RUNNING = run_pb2.RUN_STATE_RUNNING
_PUSH = "/sexton.internal.v1.QueueService/Push"
_Service = Coordinator | Queue | Worker


class MeshWorld(Simulation):
    """One simulation of the whole mesh."""

    def __init__(
        self,
        seed: int,
        plan: MeshPlan,
        trace: Trace | None = None,
        *,
        only: Collection[int] | None = None,
    ) -> None:
        shards = plan.shards
        engine = replace(plan.engine, coordinator_shards=shards, queue_shards=shards)
        super().__init__(seed, faults=plan.faults, engine=engine, trace=trace, wall_ns=plan.wall_ns)
        self.plan = plan
        self.fences = Fences()
        self.backups = Backups(self.disk, self.recorder, lambda: self.loop.now_ns)
        self._backups = self.backups.pieces
        self._services: dict[str, _Service] = {}
        self.injector = Injector(self, DEEDS, only=only)
        self.api_addresses = [f"127.0.0.1:{7500 + n}" for n in range(plan.coordinators)]
        self.queue_addresses = [
            [f"127.0.0.1:{7600 + 10 * shard + n}" for n in range(plan.queues)]
            for shard in range(shards)
        ]
        self.quiet = (0, 0)
        self.members = [*self._hosts()]
        self._links = [*self._speaking()]

    def link(self, rng: random.Random) -> list[str]:
        """Draws two processes that speak with each other."""
        return list(rng.choice(self._links))

    def lease_s(self, host: Host) -> float:
        """Tells how long others wait for a silent process before they go on without it."""
        return self.plan.session_ms / 1_000 if host.name.startswith("worker") else LEASE_S

    def acting(self, role: str) -> list[Host]:
        """Lists the processes of a role that lead, or own, a shard."""
        return [
            host
            for host in self.members
            if host.name.startswith(role) and self._acts(self._services.get(host.name))
        ]

    def request_stop(self, name: str) -> bool:
        """Sends SIGTERM; tells whether there was somebody who could take it."""
        service = self._services.get(name)
        process = next(host.process for host in self.hosts if host.name == name)
        if service is None or process is None or not process.alive:
            return False
        self.loop.call_soon(
            service.lifecycle.request_stop, "it was asked to", context=process.context.copy()
        )
        return True

    def restore_backup(self, rng: random.Random) -> bool:
        """Kills the store and puts a backup in its place; tells whether there was any."""
        kept = self.backups.draw(rng)
        if kept is None:
            return False
        self.store.crash()
        wall_ns, incarnation = self.store.machine.wall_ns(), f"{rng.getrandbits(128):032x}"
        replaced = self.disk.revision()
        try:
            revision = self.disk.restore(kept.disk, wall_ns=wall_ns, incarnation=incarnation)
        except ValueError:
            return False
        self.recorder.fault(
            "restore",
            self.store.name,
            backup=kept.revision,
            made_ns=kept.made_ns,
            replaced=replaced,
            revision=revision,
        )
        return True

    def _acts(self, service: _Service | None) -> bool:
        if isinstance(service, Coordinator):
            shards = range(self.plan.shards)
            return any(service.leadership.tenure(shard) is not None for shard in shards)
        return isinstance(service, Queue) and service.owner.tenure is not None

    def _points(self, batch: WriteBatch) -> Sequence[str]:
        names = {"commit": None}
        for key, value, create_revision, mod_revision, _ in batch.puts:
            new = create_revision == mod_revision
            name = _POINTS.get(key[: key.find(b"/") + 1], "")
            if key.startswith(b"leases/coordinator/"):
                name = "leader's lease"
            elif key.startswith(b"leases/queue/"):
                name = "owner's lease"
            if name and (new or name == "definition"):
                names[name] = None
            elif name == "fire" and RunRecord.FromString(value).state == _RUNNING:
                names["assignment"] = None
        return list(names)

    def _observe(self, event: Event) -> None:
        self.log.network(event)
        if event.what == "message" and event.label == _PUSH and event.source.startswith("queue"):
            self.traps.passed("notice", event.source)

    async def _main(self) -> str:
        self.network.observer = self._observe
        await self._storm(self.injector, self.plan.duration_s)
        healed_ns = self.loop.now_ns
        await asyncio.sleep(self.plan.quiet_s)
        self.quiet = (healed_ns, self.loop.now_ns)
        self.stopping = True
        await asyncio.sleep(_LAST_CALLS_S)
        last = self.loop.process("last")
        failure: str = await last.spawn(self._finish(last))
        return failure

    async def _finish(self, process: Process) -> str:
        async with self._store_client(process) as store:
            await _settle_clock(store)
            api = self._api(process)
            await resume_queues(api)
            failure = await say_last_words(api)
            return failure or await _drain(store) or await say_last_words(api)

    def _judge(self, history: History, failure: str) -> Verdict:
        verdict = check(history)
        times = Times(
            session_ns=self.plan.session_ms * 1_000_000,
            grace_ns=min(2_000, self.plan.session_ms // 3) * 1_000_000,
        )
        check_mesh(history, verdict, limits=self._limits(), quiet=self.quiet, times=times)
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
        for shard in range(plan.shards):
            for number in range(plan.queues):
                name = f"queue-{shard * plan.queues + number}"
                yield self._host(name, partial(self._run_queue, shard, number))
        for number in range(plan.workers):
            yield self._host(f"worker-{number}", partial(self._run_worker, number % plan.shards))
        for number in range(plan.users):
            yield self._host(f"user-{number}", partial(self._run_user, number))
        for number in range(plan.repairers):
            yield self._host(f"user-{plan.users + number}", self._run_repairer)
        for number in range(plan.operators):
            name = f"user-{plan.users + plan.repairers + number}"
            yield self._host(name, self._run_operator)
        if plan.backup_pause_s:
            yield self._host("backup", self._run_backup)

    def _host(self, name: str, main: Callable[[Process], Coroutine[Any, Any, None]]) -> Host:
        return Host(self, name, main)

    def _speaking(self) -> Iterator[tuple[str, str]]:
        by_role: dict[str, list[str]] = {}
        for host in self.members:
            by_role.setdefault(host.name.partition("-")[0], []).append(host.name)
        for one in (*by_role["coordinator"], *by_role["queue"], *by_role.get("backup", ())):
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
            transport=self._noting(process),
            clock=process.clock,
            randomness=self._randomness(process),
            store=STORE_ADDRESS,
            listen=self.api_addresses[number],
        )
        await self._live(process, coordinator)

    async def _run_queue(self, shard: int, number: int, process: Process) -> None:
        session_ms = self.plan.session_ms
        queue = Queue(
            QueueConfig(
                store=STORE_ADDRESS,
                shard=shard,
                listen=self.queue_addresses[shard][number],
                session_ms=session_ms,
                heartbeat_ms=min(1_000, session_ms // 5),
                grace_ms=min(2_000, session_ms // 3),
                max_running=self.plan.max_running,
            ),
            transport=self._noting(process),
            clock=process.clock,
            randomness=self._randomness(process),
        )
        await self._live(process, queue)

    async def _run_worker(self, shard: int, process: Process) -> None:
        executor = VirtualExecutor(
            process,
            self.recorder,
            self.fences,
            self._random_of(process),
            on_effect=partial(self.traps.passed, "effect"),
        )
        worker = Worker(
            config=WorkerConfig(
                queue=tuple(self.queue_addresses[shard]),
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
        await self._live(process, worker)

    async def _live(self, process: Process, service: _Service) -> None:
        self._services[process.name] = service
        try:
            await service.lifecycle.run(signals=False)
        except SextonError as error:
            self.recorder.fault("could not start", process.name, error=type(error).__name__)
        finally:
            self._services.pop(process.name, None)

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

    async def _run_repairer(self, process: Process) -> None:
        rng = self._random_of(process)
        repairer = Repairer(
            self._api(process),
            name=f"{process.name}.{process.incarnation}",
            names=[f"job-{n}" for n in range(self.plan.jobs)],
            now_s=lambda: process.clock.wall_ns() // 1_000_000_000,
            rng=rng,
        )
        while not self.stopping:
            await asyncio.sleep(rng.expovariate(1 / self.plan.pause_s))
            await repairer.act()

    async def _run_operator(self, process: Process) -> None:
        rng = self._random_of(process)
        names = [f"job-{n}" for n in range(self.plan.jobs)]
        api = self._api(process)
        operator = Operator(
            api,
            names=names,
            spec=self.plan.spec,
            now_s=lambda: process.clock.wall_ns() // 1_000_000_000,
            rng=rng,
        )
        while not self.injector.healed:
            await asyncio.sleep(rng.expovariate(1 / self.plan.pause_s))
            await operator.act()
        await resume_queues(api)
        await asyncio.Event().wait()

    async def _run_backup(self, process: Process) -> None:
        rng = self._random_of(process)
        async with PolicyChannel(self.transport.channel(STORE_ADDRESS)) as channel:
            while not self.stopping:
                await asyncio.sleep(rng.expovariate(1 / self.plan.backup_pause_s))
                with suppress(SextonError):
                    await self.backups.take_one(channel)

    def _noting(self, process: Process) -> Transport:
        return LeaseNotingTransport(self.transport, STORE_ADDRESS, self.recorder, process.name)

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


def run(
    seed: int,
    plan: MeshPlan | None = None,
    trace: Trace | None = None,
    *,
    only: Collection[int] | None = None,
) -> Outcome:
    """Runs the mesh of a seed, by its own plan unless given one.

    `trace` sees every event; `only` are the numbers of the faults that are injected, None: all.
    """
    return MeshWorld(seed, plan or plan_of(seed), trace, only=only).run()
