"""What is done to a simulated mesh: a schedule drawn from its seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from sexton_sim.network import LinkProfile
from sexton_sim.workload import LEASE_TTL_S

if TYPE_CHECKING:
    from sexton_sim.simulation import Host, Simulation

Weighted = tuple[float, Callable[[], None]]
ROUGH = LinkProfile(latency_s=0.001, jitter_s=0.02, stall_p=0.02, reset_p=0.004, duplicate_p=0.03)
"""A bad network: packets lost, connections reset, requests that come twice."""
_CALLBACKS = 150
"""A fault between two awaits strikes within so many callbacks of its process."""
_HOUR_NS = 3_600_000_000_000
_JUMPS_NS = (_HOUR_NS, -_HOUR_NS, 10 * 365 * 24 * _HOUR_NS, 500_000_000, -500_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """How often, and how likely each fault is against the others; 0: never."""

    mean_pause_s: float = 2.5
    """Mean time between two faults; 0: none at all."""
    crash_store: float = 2.0
    crash_in_commit: float = 3.0
    crash_member: float = 2.0
    power_loss: float = 0.5
    suspend_store: float = 1.5
    suspend_member: float = 2.0
    sleep_machine: float = 0.7
    cut_one_way: float = 3.0
    cut_both_ways: float = 2.0
    reset: float = 2.0
    rough_network: float = 2.0
    slow_disk: float = 2.0
    full_disk: float = 1.0
    failing_disk: float = 1.0
    jump_wall: float = 1.5
    change_rate: float = 1.0


def swarm(rng: random.Random, plan: type[FaultPlan] = FaultPlan) -> FaultPlan:
    """Draws a plan: some kinds of fault alone and often find what all of them together hide."""
    mean_pause_s = rng.choice((0.5, 1.0, 2.5, 6.0))
    kinds = [field.name for field in fields(plan) if field.name != "mean_pause_s"]
    share = rng.choice((0.2, 0.5, 1.0))
    chosen = [kind for kind in kinds if rng.random() < share] or [rng.choice(kinds)]
    return plan(
        mean_pause_s=mean_pause_s,
        **{kind: rng.uniform(0.5, 2.0) if kind in chosen else 0.0 for kind in kinds},
    )


NO_FAULTS = replace(FaultPlan(), mean_pause_s=0.0)


class Injector:
    """Injects faults one after another; many are still there when the next one comes."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self._random = random.Random(f"faults-{world.seed}")  # noqa: S311 - determinism
        self._healers: list[Callable[[], None]] = []
        plan = world.faults
        faults: list[Weighted] = [
            (plan.crash_store, self._crash_store),
            (plan.crash_in_commit, self._crash_in_commit),
            (plan.crash_member, self._crash_member),
            (plan.power_loss, self._lose_power),
            (plan.suspend_store, self._suspend_store),
            (plan.suspend_member, self._suspend_member),
            (plan.sleep_machine, self._sleep_machine),
            (plan.cut_one_way, self._cut_one_way),
            (plan.cut_both_ways, self._cut_both_ways),
            (plan.reset, self._reset),
            (plan.rough_network, self._roughen),
            (plan.slow_disk, self._slow_disk),
            (plan.full_disk, self._fill_disk),
            (plan.failing_disk, self._fail_disk),
            (plan.jump_wall, self._jump_wall),
            (plan.change_rate, self._change_rate),
            *self.more_faults(),
        ]
        self._faults = [fault for weight, fault in faults if weight > 0]
        self._weights = [weight for weight, _ in faults if weight > 0]

    def more_faults(self) -> Sequence[Weighted]:
        """Gives what only this kind of world has, each with its weight."""
        return ()

    async def run(self, duration_s: float) -> None:
        """Injects faults for so long."""
        loop = self._world.loop
        end_s = loop.time() + duration_s
        pause_s = self._world.faults.mean_pause_s
        while pause_s:
            wait_s = self._random.expovariate(1 / pause_s)
            if loop.time() + wait_s >= end_s:
                break
            await asyncio.sleep(wait_s)
            (fault,) = self._random.choices(self._faults, self._weights)
            fault()
        await asyncio.sleep(max(0.0, end_s - loop.time()))

    def heal(self) -> None:
        """Ends every fault and starts what is dead."""
        healers, self._healers = self._healers, []
        for healer in healers:
            healer()
        world = self._world
        world.network.heal_all()
        world.disk.before_durable = world.disk.after_durable = None
        for host in world.hosts:
            if host.process is not None:
                host.process.fuse = 0
            host.start()
        world.recorder.fault("healed")

    # Processes

    def _crash_store(self) -> None:
        self._note("crash")
        self._at_some_await(self._world.store, self._world.store.crash)

    def _crash_in_commit(self) -> None:
        """Kills the store at its next step, just before or just after it is durable."""
        self._note("crash_in_commit")
        disk = self._world.disk
        if self._random.random() < 0.5:
            disk.before_durable = self._world.store.crash
        else:
            disk.after_durable = self._world.store.crash

    def _crash_member(self) -> None:
        self._note("crash_member")
        member = self._member()
        self._at_some_await(member, member.crash)

    def _at_some_await(self, host: Host, action: Callable[[], None]) -> None:
        """Does it between two callbacks of the host, whether or not time passes there."""
        if host.process is not None and host.process.alive:
            host.process.after(self._random.randint(1, _CALLBACKS), action)

    def _lose_power(self) -> None:
        """Turns the store's machine off: nobody is told, and boot time starts anew."""
        store = self._world.store
        if store.process is None or not store.process.alive:
            return
        self._note("power_loss")
        self._world.network.power_off(store.name)
        store.crash()
        store.machine.reboot()
        self._world.recorder.fault("reboot", store.name)

    def _suspend_store(self) -> None:
        self._suspend(self._world.store, self._random.choice((0.5, 1, 3)) * LEASE_TTL_S)

    def _suspend_member(self) -> None:
        self._suspend(self._member(), self._random.choice((0.5, 1, 3)) * LEASE_TTL_S)

    def _suspend(self, host: Host, for_s: float) -> None:
        process = host.process
        if process is None or not process.alive:
            return
        self._note("suspend")

        def suspend() -> None:
            self._world.recorder.fault("suspend", host.name)
            process.suspend()
            self._later(for_s, resume)

        def resume() -> None:
            if process.alive:
                process.resume()
                self._world.recorder.fault("resume", host.name)

        self._at_some_await(host, suspend)

    def _sleep_machine(self) -> None:
        """Closes a laptop's lid: awake time stands still, wall and boot time go on."""
        host = self._random.choice(self._world.hosts)
        if not host.machine.awake:
            return
        self._note("sleep")
        self._world.recorder.fault("sleep", host.name)
        host.machine.suspend()

        def wake() -> None:
            host.machine.resume()
            self._world.recorder.fault("wake", host.name)

        self._later(self._random.uniform(0.5, 12), wake)

    # Network

    def _cut_one_way(self) -> None:
        ends = self._world.link(self._random)
        self._random.shuffle(ends)
        self._cut([(ends[0], ends[1])], self._random.uniform(0.2, 20))

    def _cut_both_ways(self) -> None:
        one, other = self._world.link(self._random)
        self._cut([(one, other), (other, one)], self._random.uniform(0.2, 20))

    def _cut(self, links: list[tuple[str, str]], for_s: float) -> None:
        network = self._world.network
        for source, target in links:
            network.cut(source, target)
            self._world.recorder.fault("cut", target, source=source)

        def heal() -> None:
            self._random.shuffle(links)
            for source, target in links:
                network.heal(source, target)
                self._world.recorder.fault("mend", target, source=source)

        self._later(for_s, heal)

    def _reset(self) -> None:
        self._world.network.reset(*self._world.link(self._random))

    def _roughen(self) -> None:
        self._note("rough")
        network = self._world.network
        network.set_profile(ROUGH)
        self._world.recorder.fault("rough")
        self._later(self._random.uniform(1, 10), lambda: network.set_profile(LinkProfile()))

    # Disk

    def _slow_disk(self) -> None:
        self._note("slow_disk")
        disk = self._world.disk
        disk.slow_s = self._random.choice((0.2, 1.0, 5.0))
        self._world.recorder.fault("slow_disk", slow_s=disk.slow_s)

        def heal() -> None:
            disk.slow_s = 0.0

        self._later(self._random.uniform(1, 8), heal)

    def _fill_disk(self) -> None:
        self._note("full_disk")
        disk = self._world.disk
        disk.fill(spare_bytes=self._random.randrange(2_000))
        self._world.recorder.fault("full_disk")
        self._later(self._random.uniform(1, 8), disk.empty)

    def _fail_disk(self) -> None:
        self._note("failing_disk")
        with_effect = self._random.random() < 0.5
        self._world.disk.fail_next(with_effect=with_effect)
        self._world.recorder.fault("failing_disk", with_effect=with_effect)

    # Clocks

    def _jump_wall(self) -> None:
        host = self._random.choice([self._world.store, self._member()])
        by_ns = self._random.choice(_JUMPS_NS)
        self._note("jump_wall")
        host.machine.jump_wall(by_ns)
        self._world.recorder.clock("jump", host.name, by_ns=by_ns)

    def _change_rate(self) -> None:
        host = self._random.choice(self._world.hosts)
        rate = self._random.choice((0.95, 1.0, 1.05))
        self._note("change_rate")
        host.machine.set_rate(rate)
        self._world.recorder.clock("rate", host.name, rate=rate)

    def _member(self) -> Host:
        return self._random.choice(self._world.members)

    def _note(self, what: str) -> None:
        self._world.injected[what] += 1

    def _later(self, delay_s: float, healer: Callable[[], None]) -> None:
        def run() -> None:
            if healer in self._healers:
                self._healers.remove(healer)
                healer()

        self._healers.append(healer)
        self._world.loop.call_later(delay_s, run, context=self._world.loop.system.context)
