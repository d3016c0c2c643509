"""What every simulation is: machines, a network, one store, and what is done to them.

A world says who else takes part and how its history is judged.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import structlog

from sexton.errors import SextonError
from sexton_runtime.randomness import SeededRandomness
from sexton_sim.check import Verdict
from sexton_sim.clock import DEFAULT_WALL_NS
from sexton_sim.disks import SimDisk
from sexton_sim.event_log import EventLog, Trace
from sexton_sim.faults.plan import FaultPlan
from sexton_sim.faults.traps import Traps
from sexton_sim.history import History, Recorder
from sexton_sim.loop import SimLoop
from sexton_sim.network import Network
from sexton_sim.process import Process
from sexton_sim.transport import SimTransport
from sexton_sim.workload import LEASE_TTL_S, STORE_ADDRESS
from sexton_store.app import Store
from sexton_store.contract import EngineConfig
from sexton_store.disk import DiskFailedError, DiskFullError, WriteBatch
from sexton_store.rpc import Backups

STORE = "store"
_RESTART_S = (0.1, 2.0)


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
    """Without the time in which everybody slept."""
    steps: int
    events: int


class Storm(Protocol):
    """Faults that come one after another."""

    async def run(self, duration_s: float) -> None:
        """Injects them for so long."""

    def heal(self) -> None:
        """Ends every fault and starts what is dead."""


class Host:
    """A process that is started again when it has ended or was killed."""

    def __init__(
        self, world: Simulation, name: str, main: Callable[[Process], Coroutine[Any, Any, None]]
    ) -> None:
        self.name = name
        self.machine = world.loop.machine(name, wall_ns=world.wall_ns)
        self.process: Process | None = None
        self._world = world
        self._main = main

    def start(self) -> None:
        """Starts it unless it runs."""
        if self.process is not None and self.process.alive:
            return
        world = self._world
        process = self.process = world.loop.process(self.name, self.machine)
        world.network.power_on(self.name)
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


class Simulation(ABC):
    """One simulation of a store and its members, from one seed."""

    def __init__(
        self,
        seed: int,
        *,
        faults: FaultPlan,
        engine: EngineConfig,
        trace: Trace | None = None,
        wall_ns: int = DEFAULT_WALL_NS,
    ) -> None:
        """`wall_ns`: what all wall clocks show at first."""
        self.seed = seed
        self.wall_ns = wall_ns
        self.faults = faults
        self.loop: SimLoop = SimLoop()
        self.random = random.Random(f"world-{seed}")  # noqa: S311 - determinism is the point
        self.log = EventLog(self.loop, trace)
        self.recorder = Recorder(lambda: self.loop.now_ns, self.log.line)
        self.network = Network(seed, observer=self.log.network)
        self.transport = SimTransport(self.network)
        self.disk = SimDisk(str(seed), self.recorder, lambda: self.loop.now_ns)
        self.stopping = False
        self.unexpected: list[str] = []
        self.injected: Counter[str] = Counter()
        self.asleep_s = 0.0
        self.traps = Traps()
        self.disk.on_step = self._pass_step
        self.store = Host(self, STORE, self._run_store)
        self.members: Sequence[Host] = ()
        self._engine = engine
        self._backups: Backups | None = None

    @property
    def hosts(self) -> list[Host]:
        """All processes, the store first."""
        return [self.store, *self.members]

    def link(self, rng: random.Random) -> list[str]:
        """Draws two processes that speak with each other."""
        return [rng.choice(self.members).name, self.store.name]

    def lease_s(self, host: Host) -> float:
        """Tells how long others wait for a silent process before they go on without it."""
        del host
        return LEASE_TTL_S

    def run(self) -> Outcome:
        """Runs it to its end and judges it."""
        with _quiet_logs():
            failure = self.loop.run(self._main())
        history = self.recorder.history()
        verdict = self._judge(history, failure)
        for problem in self.unexpected:
            verdict.violate("unexpected", problem)
        for context in self.loop.unhandled:
            verdict.violate("unhandled", context["message"], [context.get("exception")])
        if self.disk.views_open:
            verdict.violate("L9", f"{self.disk.views_open} snapshots were never closed")
        return Outcome(
            seed=self.seed,
            event_log_hash=self.log.hexdigest(),
            history=history,
            recorder=self.recorder,
            verdict=verdict,
            injected=self.injected + self.network.injected + self.disk.injected,
            virtual_s=self.loop.now_ns / 1e9 - self.asleep_s,
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

    @abstractmethod
    async def _main(self) -> str:
        """Runs everything to its end; gives what was wrong, empty: nothing."""

    @abstractmethod
    def _judge(self, history: History, failure: str) -> Verdict:
        """Holds the history against what was promised."""

    async def _storm(self, storm: Storm, duration_s: float) -> None:
        """Starts everybody, injects faults for so long, and heals them."""
        for host in self.hosts:
            host.start()
        await storm.run(duration_s)
        storm.heal()

    def _pass_step(self, when: str, batch: WriteBatch) -> bool:
        """Passes the points at which one of the store's steps becomes durable."""
        struck = [self.traps.passed(f"{when} {what}") for what in self._points(batch)]
        return any(struck)

    def _points(self, batch: WriteBatch) -> Sequence[str]:
        """Names what a step is."""
        del batch
        return ("commit",)

    async def _run_store(self, process: Process) -> None:
        store = Store(
            disk=self.disk.open(),
            transport=self.transport,
            clock=process.clock,
            randomness=SeededRandomness(f"store/{self.seed}/{process.incarnation}"),
            listen=STORE_ADDRESS,
            config=self._engine,
            insecure=True,
            backups=self._backups,
        )
        try:
            await store.lifecycle.run(signals=False)
        except (SextonError, DiskFailedError, DiskFullError) as error:
            self.recorder.fault("could not start", STORE, error=type(error).__name__)


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
