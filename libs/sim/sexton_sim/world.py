"""A simulated mesh from one seed: a store, who uses it, and what is done to them.

`run(seed)` gives the same `Outcome` every time, down to the hash of everything that happened.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from sexton_sim.check import Verdict, check, check_recovery
from sexton_sim.event_log import Trace
from sexton_sim.faults import FaultPlan, Injector, swarm
from sexton_sim.faults.everywhere import DEEDS
from sexton_sim.history import History
from sexton_sim.process import Process
from sexton_sim.simulation import Host, Outcome, Simulation
from sexton_sim.workload import (
    REGISTERS,
    RULES,
    Member,
    audit,
    run_client,
    run_holder,
    run_renewer,
    run_watcher,
)
from sexton_store.contract import EngineConfig

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


class World(Simulation):
    """A store, and who uses it."""

    def __init__(
        self,
        seed: int,
        plan: Plan,
        trace: Trace | None = None,
        *,
        only: Collection[int] | None = None,
    ) -> None:
        super().__init__(seed, faults=plan.faults, engine=plan.engine, trace=trace)
        self.plan = plan
        self._injector = Injector(self, DEEDS, only=only)
        self.quiet = (0, 0)
        self.members = [*self._members()]

    async def _main(self) -> str:
        await self._storm(self._injector, self.plan.duration_s)
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
        faults=swarm(rng, FaultPlan),
        engine=EngineConfig(history=True, watch_window_events=rng.choice((20, 150, 10_000))),
    )


def run(
    seed: int,
    plan: Plan | None = None,
    trace: Trace | None = None,
    *,
    only: Collection[int] | None = None,
) -> Outcome:
    """Runs the world of a seed, by its own plan unless given one.

    `trace` sees every event; `only` are the numbers of the faults that are injected, None: all.
    """
    return World(seed, plan or plan_of(seed), trace, only=only).run()
