"""Carries out a schedule of faults, and ends them again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from sexton_sim.faults.plan import Fault, draw_schedule
from sexton_sim.network import LinkProfile

if TYPE_CHECKING:
    from sexton_sim.simulation import Host, Simulation

Deed = Callable[["Injector", random.Random], None]
"""Does one kind of fault; all that it draws comes from the fault's own source."""
Deeds = Mapping[str, Deed]

_CALLBACKS = 150
"""A fault between two awaits strikes within so many callbacks of its process."""


class Injector:
    """Injects faults one after another; many are still there when the next one comes."""

    def __init__(
        self, world: Simulation, deeds: Deeds, *, only: Collection[int] | None = None
    ) -> None:
        """`only`: the numbers of the faults that are injected; None: all of the schedule."""
        self.world = world
        self.everybody_sleeps = False
        self._deeds = deeds
        self._only = only
        self._healers: list[Callable[[], None]] = []
        self._standstill_s = 0.0
        self._postponed: list[Callable[[], None]] = []
        self.healed = False
        """Whether all is over."""

    async def run(self, duration_s: float) -> None:
        """Injects faults for so long."""
        left_s = duration_s
        for fault in draw_schedule(self.world.faults, self.world.seed, duration_s):
            await self._pass(fault.after_s)
            left_s -= fault.after_s
            if self._only is None or fault.number in self._only:
                self._inject(fault)
        await self._pass(left_s)

    def heal(self) -> None:
        """Ends every fault and starts what is dead."""
        self.healed = True
        healers, self._healers = self._healers, []
        for healer in healers:
            healer()
        world = self.world
        world.network.set_profile(LinkProfile())
        world.network.heal_all()
        world.traps.clear()
        for host in world.hosts:
            if host.process is not None:
                host.process.fuse = 0
            host.start()
        world.recorder.fault("healed")

    # What deeds do it with

    def note(self, kind: str) -> None:
        """Counts that a fault has been done."""
        self.world.injected[kind] += 1

    def later(self, delay_s: float, healer: Callable[[], None]) -> None:
        """Heals something later, or when everything is healed."""

        def run() -> None:
            if healer in self._healers:
                self._healers.remove(healer)
                healer()

        self._healers.append(healer)
        self._call_later(delay_s, run)

    def soon(self, delay_s: float, action: Callable[[], None]) -> None:
        """Does something later, as the simulation itself; nothing once all is healed."""

        def act() -> None:
            if self.everybody_sleeps:
                self._postponed.append(act)
            elif not self.healed:
                action()

        self._call_later(delay_s, act)

    def lie_down(self, for_s: float) -> None:
        """Everybody sleeps from now on: whatever was to be done comes so much later."""
        self.everybody_sleeps = True
        self._standstill_s += for_s
        self.world.asleep_s += for_s

    def rise(self) -> None:
        """Ends what `lie_down` began."""
        self.everybody_sleeps = False
        postponed, self._postponed = self._postponed, []
        for action in postponed:
            action()

    def member(self, rng: random.Random) -> Host:
        """Draws a member."""
        return rng.choice(self.world.members)

    def at_some_await(self, host: Host, rng: random.Random, action: Callable[[], None]) -> None:
        """Does it between two callbacks of the host, whether or not time passes there."""
        if host.process is not None and host.process.alive:
            host.process.after(rng.randint(1, _CALLBACKS), action)

    def cut(self, links: Sequence[tuple[str, str]]) -> None:
        """Cuts links, each one way."""
        for source, target in links:
            self.world.network.cut(source, target)
            self.world.recorder.fault("cut", target, source=source)

    def mend(self, links: Sequence[tuple[str, str]]) -> None:
        """Mends links."""
        for source, target in links:
            self.world.network.heal(source, target)
            self.world.recorder.fault("mend", target, source=source)

    def _call_later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.world.loop.call_later(delay_s, action, context=self.world.loop.system.context)

    def _inject(self, fault: Fault) -> None:
        seed = f"fault-{self.world.seed}-{fault.number}"
        self.world.recorder.fault("inject", kind=fault.kind, number=fault.number)
        self._deeds[fault.kind](self, random.Random(seed))  # noqa: S311 - determinism

    async def _pass(self, for_s: float) -> None:
        still_s, self._standstill_s = self._standstill_s, 0.0
        await asyncio.sleep(for_s + still_s)
