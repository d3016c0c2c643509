"""One store on the pretend clock, and processes that use it: what the first stages need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from sexton_core.instants import Instant
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.randomness import SeededRandomness
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_sim.check import Verdict
from sexton_sim.faults import NO_FAULTS
from sexton_sim.history import History
from sexton_sim.process import Process
from sexton_sim.simulation import Simulation
from sexton_sim.workload import STORE_ADDRESS
from sexton_store.contract import EngineConfig

T = TypeVar("T")


class Scene(Simulation):
    """The real store in the simulation, on an empty disk; nothing happens but what is played."""

    def __init__(self, play: Callable[[Any], Awaitable[None]]) -> None:
        super().__init__(0, faults=NO_FAULTS, engine=EngineConfig(history=True))
        self._play = play

    @classmethod
    def show(cls, play: Callable[[Any], Awaitable[None]]) -> None:
        """Plays a scene to its end; raises where anything in it failed unseen."""
        verdict = cls(play).run().verdict
        assert verdict.ok, str(verdict)

    @property
    def now(self) -> Instant:
        """The exact time, which nobody in the scene can know."""
        return self.loop.system.clock.wall_ns()

    def start(
        self, name: str, main: Callable[[Process], Coroutine[Any, Any, None]], **machine: Any
    ) -> Process:
        """Starts a process; a machine may have a clock of its own (`wall_ns`)."""
        own = self.loop.machine(name, **machine) if machine else None
        process = self.loop.process(name, own)
        process.spawn(main(process))
        return process

    async def finish(self, name: str, main: Callable[[Process], Coroutine[Any, Any, T]]) -> T:
        """Runs a process to its end; gives what it found."""
        process = self.loop.process(name)
        return await process.spawn(main(process))

    def client(self, process: Process) -> StoreClient:
        """Gives a process its way to the store."""
        return StoreClient(
            PolicyChannel(self.transport.channel(STORE_ADDRESS)),
            clock=process.clock,
            randomness=self.randomness(process),
        )

    def randomness(self, process: Process) -> SeededRandomness:
        """Gives a process its own dice."""
        return SeededRandomness(f"{process.name}/{process.incarnation}")

    async def _main(self) -> str:
        self.store.start()
        await self._play(self)
        self.stopping = True
        return ""

    def _judge(self, history: History, failure: str) -> Verdict:
        del history, failure
        return Verdict()
