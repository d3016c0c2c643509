"""A simulated mesh from one seed: a store, who uses it, and what is done to them.

`run(seed)` gives the same `Outcome` every time, down to the hash of everything that happened.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import structlog

from sexton.errors import SextonError
from sexton_runtime.randomness import SeededRandomness
from sexton_sim.check import Verdict, check, check_recovery
from sexton_sim.disks import SimDisk
from sexton_sim.event_log import EventLog, Trace
from sexton_sim.faults import FaultPlan, Injector, swarm
from sexton_sim.history import History, Recorder
from sexton_sim.loop import SimLoop
from sexton_sim.network import Network
from sexton_sim.process import Process
from sexton_sim.transport import SimTransport
from sexton_sim.workload import (
    REGISTERS,
    RULES,
    STORE_ADDRESS,
    Member,
    audit,
    run_client,
    run_holder,
    run_renewer,
    run_watcher,
)
from sexton_store.app import Store
from sexton_store.contract import EngineConfig
from sexton_store.disk import DiskFailedError, DiskFullError

STORE = "store"
_RESTART_S = (0.1, 2.0)
_RECOVERY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a world is made of."""

    duration_s: float = 60.0
    """How long faults are injected."""
    quiet_s: float = 15.0
    """How long it runs on after everything has been healed."""
    clients: int = 4
    holders: int = 3
    renewers: int = 1
    watched: tuple[bytes, ...] = (b"reg/", b"pair/", b"")
    """One watcher for each prefix."""
    pause_s: float = 0.1
    """Mean time between two operations of a client."""
    faults: FaultPlan = field(default_factory=FaultPlan)
    engine: EngineConfig = field(
        default_factory=lambda: EngineConfig(history=True, watch_window_events=150)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a seed."""

    seed: int
    event_log_hash: str
    history: History
    recorder: Recorder
    verdict: Verdict
    injected: Counter[str]
    virtual_s: float
    steps: int
    events: int


class Host:
    """A process that is started again when it has ended or was killed."""

    def __init__(
        self, world: World, name: str, main: Callable[[Process], Coroutine[Any, Any, None]]
    ) -> None:
        self.name = name
        self.machine = world.loop.machine(name)
        self.process: Process | None = None
        self._world = world
        self._main = main

    def start(self) -> None:
        """Starts it unless it runs."""
        if self.process is not None and self.process.alive:
            return
        world = self._world
        process = self.process = world.loop.process(self.name, self.machine)
        world.recorder.fault("start", self.name, incarnation=process.incarnation)
        task = process.spawn(self._main(process))
        task.add_done_callback(self._ended, context=world.loop.system.context)

    def crash(self) -> None:
        """Kills it; it is started again a little later."""
        if self.process is not None and self.process.alive:
            self._world.recorder.fault("crash", self.name)
            self.process.crash()
            self._world.restart_later(self)

    def _ended(self, task: asyncio.Task[None]) -> None:
        assert self.process is not None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._world.unexpected.append(f"{self.process!r}: {type(error).__name__}: {error}")
        self.process.crash()
        self._world.recorder.fault("exit", self.name)
        if not self._world.stopping:
            self._world.restart_later(self)


class World:
    """One simulation."""

    def __init__(self, seed: int, plan: Plan, trace: Trace | None = None) -> None:
        self.seed = seed
        self.plan = plan
        self.loop: SimLoop = SimLoop()
        self.random = random.Random(f"world-{seed}")  # noqa: S311 - determinism is the point
        self.log = EventLog(self.loop, trace)
        self.recorder = Recorder(lambda: self.loop.now_ns, self.log.line)
        self.network = Network(seed, observer=self.log.network)
        self.transport = SimTransport(self.network)
        self.disk = SimDisk(str(seed), self.recorder, lambda: self.loop.now_ns)
        self.stopping = False
        self.quiet = (0, 0)
        self.unexpected: list[str] = []
        self.injected: Counter[str] = Counter()
        self.store = Host(self, STORE, self._run_store)
        self.members = [*self._members()]

    @property
    def hosts(self) -> list[Host]:
        """All processes, the store first."""
        return [self.store, *self.members]

    def run(self) -> Outcome:
        """Runs it to its end and judges it."""
        with _quiet_logs():
            failure = self.loop.run(self._main())
        history = self.recorder.history()
        verdict = self._judge(history, failure)
        return Outcome(
            seed=self.seed,
            event_log_hash=self.log.hexdigest(),
            history=history,
            recorder=self.recorder,
            verdict=verdict,
            injected=self.injected + self.network.injected + self.disk.injected,
            virtual_s=self.loop.now_ns / 1e9,
            steps=self.loop.steps,
            events=self.log.events,
        )

    def restart_later(self, host: Host) -> None:
        """Starts a host again after a moment."""
        self.loop.call_later(
            self.random.uniform(*_RESTART_S), self._restart, host, context=self.loop.system.context
        )

    def _restart(self, host: Host) -> None:
        if not self.stopping:
            host.start()

    async def _main(self) -> str:
        for host in self.hosts:
            host.start()
        injector = Injector(self)
        await injector.run(self.plan.duration_s)
        injector.heal()
        healed_ns = self.loop.now_ns
        await asyncio.sleep(self.plan.quiet_s)
        self.quiet = (healed_ns, self.loop.now_ns)
        self.stopping = True
        auditor = self.loop.process("auditor")
        failure: str = await auditor.spawn(audit(self._member(auditor), patience_s=_RECOVERY_S))
        await asyncio.sleep(1)
        return failure

    def _members(self) -> Iterator[Host]:
        pause_s = self.plan.pause_s
        for number in range(self.plan.clients):
            yield self._host(f"client-{number}", lambda it: run_client(it, pause_s=pause_s))
        for number in range(self.plan.holders):
            yield self._host(f"holder-{number}", lambda it: run_holder(it, pause_s=pause_s * 3))
        for number in range(self.plan.renewers):
            yield self._host(f"renewer-{number}", run_renewer)
        for number, prefix in enumerate(self.plan.watched):

            def watch(member: Member, prefix: bytes = prefix) -> Coroutine[Any, Any, None]:
                return run_watcher(member, prefix=prefix)

            yield self._host(f"watcher-{number}", watch)

    def _host(self, name: str, main: Callable[[Member], Coroutine[Any, Any, None]]) -> Host:
        return Host(self, name, lambda process: main(self._member(process)))

    def _member(self, process: Process) -> Member:
        return Member(
            process=process,
            transport=self.transport,
            recorder=self.recorder,
            seed=str(self.seed),
            stopping=lambda: self.stopping,
        )

    async def _run_store(self, process: Process) -> None:
        store = Store(
            disk=self.disk.open(),
            transport=self.transport,
            clock=process.clock,
            randomness=SeededRandomness(f"store/{self.seed}/{process.incarnation}"),
            listen=STORE_ADDRESS,
            config=self.plan.engine,
            insecure=True,
        )
        try:
            await store.lifecycle.run(signals=False)
        except (SextonError, DiskFailedError, DiskFullError) as error:
            self.recorder.fault("could not start", STORE, error=type(error).__name__)

    def _judge(self, history: History, failure: str) -> Verdict:
        verdict = check(history, rules=RULES, registers=REGISTERS)
        names = [host.name for host in self.members]
        check_recovery(
            history,
            verdict,
            clients=[name for name in names if name.startswith("client")],
            holders=[name for name in names if name.startswith("holder")],
            watchers=[name for name in names if name.startswith("watcher")],
            quiet=self.quiet,
        )
        if failure:
            verdict.violate("L6", failure)
        for problem in self.unexpected:
            verdict.violate("unexpected", problem)
        for context in self.loop.unhandled:
            verdict.violate("unhandled", context["message"], [context.get("exception")])
        if self.disk.views_open:
            verdict.violate("L9", f"{self.disk.views_open} snapshots were never closed")
        return verdict


def plan_of(seed: int, *, duration_s: float = 60.0, quiet_s: float = 15.0) -> Plan:
    """Draws a seed's own plan: who takes part, how busy they are, what is done to them."""
    rng = random.Random(f"plan-{seed}")  # noqa: S311 - determinism is the point
    return Plan(
        duration_s=duration_s,
        quiet_s=quiet_s,
        clients=rng.randint(1, 5),
        holders=rng.randint(0, 4),
        renewers=rng.randint(0, 2),
        watched=(b"", b"reg/", b"pair/", b"leases/")[: rng.randint(0, 4)],
        pause_s=rng.choice((0.02, 0.1, 0.4)),
        faults=swarm(rng),
        engine=EngineConfig(history=True, watch_window_events=rng.choice((20, 150, 10_000))),
    )


def run(seed: int, plan: Plan | None = None, trace: Trace | None = None) -> Outcome:
    """Runs the world of a seed, by its own plan unless given one; `trace` sees every event."""
    return World(seed, plan or plan_of(seed), trace).run()


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Drops the services' log lines, unless somebody has set up logging."""
    if structlog.is_configured():
        yield
        return
    structlog.configure(processors=[_drop], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.reset_defaults()


def _drop(_logger: object, _method: str, _event: object) -> NoReturn:
    raise structlog.DropEvent
