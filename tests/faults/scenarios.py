"""What is done to meshes: the one list of scenarios, for processes and containers alike.

Each begins on a healthy mesh under load. Its steps do something and wait for what must come of it;
what else must hold is asked of the whole history, after each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from faults.mesh import Ability, Role
from faults.stage import (
    BUSY_WORKER,
    COORDINATORS,
    EVERYBODY,
    LEADER,
    LEASE_S,
    OWNER,
    SESSION_S,
    STANDBY,
    STORE,
    Step,
    cut,
    fill_disk,
    free_disk,
    go_on,
    grow_until_refused,
    heal_network,
    hold_down,
    isolate,
    kill,
    kill_at_random,
    let_pass,
    let_up,
    pause,
    restart,
    rough,
    scale,
    skew,
    still_the_same,
    storm,
    until_back,
    until_replaced,
)

PROCESSES: Final = "processes"
CONTAINERS: Final = "containers"
BAND_S: Final = 10.0
"""How much later than promised something may come: these machines are shared and busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One thing that is done to a mesh."""

    name: str
    does: str
    """In words."""
    steps: tuple[Step, ...]
    needs: frozenset[Ability] = frozenset()
    takeover_s: float | None = None
    """How soon somebody else acts, as promised."""
    redelivery_s: float | None = None
    """How soon runs that are lost to a worker start elsewhere, as promised."""
    ci: frozenset[str] = frozenset()
    """On which kinds of mesh every change is held to it; the others are for the soak."""


_LEASE: Final = LEASE_S + 1.0
"""The lease, and one retry."""
_GRACE: Final = 2.0 + 1.0
_SILENT: Final = SESSION_S + 1.0
_TAKEN_OVER: Final = 2 * SESSION_S + LEASE_S + 1.0
_NETWORK: Final = frozenset({Ability.NETWORK})
_BOTH: Final = frozenset({PROCESSES, CONTAINERS})
_HERE: Final = frozenset({PROCESSES})

SCENARIOS: Final = (
    Scenario(
        name="kill-leader",
        does="SIGKILL of the leading coordinator",
        steps=(kill(LEADER), until_replaced(LEADER), let_pass(2)),
        takeover_s=_LEASE,
        ci=_BOTH,
    ),
    Scenario(
        name="kill-standby",
        does="SIGKILL of a coordinator that stands by",
        steps=(kill(STANDBY), until_back(STANDBY)),
    ),
    Scenario(
        name="kill-store",
        does="SIGKILL of the store",
        steps=(kill(STORE), until_back(STORE), let_pass(2)),
        ci=_BOTH,
    ),
    Scenario(
        name="kill-queue",
        does="SIGKILL of the queue's owner",
        steps=(kill(OWNER), until_replaced(OWNER), let_pass(2)),
        takeover_s=_LEASE,
        ci=_BOTH,
    ),
    Scenario(
        name="kill-worker",
        does="SIGKILL of a worker in the middle of a run",
        steps=(kill(BUSY_WORKER), let_pass(6)),
        redelivery_s=_GRACE,
        ci=_BOTH,
    ),
    Scenario(
        name="kill-worker-and-owner",
        does="SIGKILL of a worker in the middle of a run, and of the queue's owner",
        steps=(kill(BUSY_WORKER), kill(OWNER), until_replaced(OWNER), let_pass(SESSION_S + 4)),
        takeover_s=_LEASE,
        redelivery_s=_TAKEN_OVER,
    ),
    Scenario(
        name="store-away",
        does="the store is down for 3 s",
        steps=(hold_down(STORE), let_pass(3), let_up(STORE), until_back(STORE), let_pass(2)),
    ),
    Scenario(
        name="pause-leader",
        does="SIGSTOP of the leader for three times its lease",
        steps=(pause(LEADER), until_replaced(LEADER), let_pass(4), go_on(LEADER), let_pass(3)),
        takeover_s=_LEASE,
        ci=_HERE,
    ),
    Scenario(
        name="pause-queue",
        does="SIGSTOP of the queue's owner for three times its lease",
        steps=(pause(OWNER), until_replaced(OWNER), let_pass(4), go_on(OWNER), let_pass(3)),
        takeover_s=_LEASE,
    ),
    Scenario(
        name="pause-worker",
        does="SIGSTOP of a worker for one and a half sessions",
        steps=(pause(BUSY_WORKER), let_pass(1.5 * SESSION_S), go_on(BUSY_WORKER), let_pass(3)),
        redelivery_s=_SILENT,
    ),
    Scenario(
        name="pause-store",
        does="SIGSTOP of the store for three times a lease",
        steps=(pause(STORE), let_pass(3 * LEASE_S), go_on(STORE), let_pass(3)),
        redelivery_s=_TAKEN_OVER,
    ),
    Scenario(
        name="cut-leader-one-way",
        does="nothing that the leader sends reaches the store",
        steps=(cut(LEADER, STORE), until_replaced(LEADER), let_pass(4), heal_network, let_pass(3)),
        needs=_NETWORK,
        takeover_s=_LEASE,
        ci=_HERE,
    ),
    Scenario(
        name="deafen-leader",
        does="nothing that the store answers reaches the leader",
        steps=(cut(STORE, LEADER), until_replaced(LEADER), let_pass(4), heal_network, let_pass(3)),
        needs=_NETWORK,
        takeover_s=_LEASE,
    ),
    Scenario(
        name="cut-worker",
        does="a worker in the middle of a run is cut off for one and a half sessions",
        steps=(isolate(BUSY_WORKER), let_pass(1.5 * SESSION_S), heal_network, let_pass(3)),
        needs=_NETWORK,
        redelivery_s=_SILENT,
        ci=_BOTH,
    ),
    Scenario(
        name="cut-store",
        does="no coordinator and the store hear each other for two leases",
        steps=(
            cut(COORDINATORS, STORE),
            cut(STORE, COORDINATORS),
            let_pass(2 * LEASE_S),
            heal_network,
            let_pass(3),
        ),
        needs=_NETWORK,
    ),
    Scenario(
        name="rough-network",
        does="everybody's messages are late by up to 200 ms, and one in twenty by 1.5 s",
        steps=(rough(EVERYBODY, delay_ms=100, stalls=0.03), let_pass(12), heal_network),
        needs=frozenset({Ability.ROUGH}),
        redelivery_s=_TAKEN_OVER,
    ),
    Scenario(
        name="reset-connections",
        does="connections of everybody are reset again and again",
        steps=(rough(EVERYBODY, resets=0.01), let_pass(10), heal_network, let_pass(3)),
        needs=frozenset({Ability.ROUGH}),
        redelivery_s=_TAKEN_OVER,
    ),
    Scenario(
        name="disk-full",
        does="no room is left on the store's disk, for 6 s and more",
        steps=(
            fill_disk,
            grow_until_refused,
            let_pass(6),
            still_the_same(STORE),
            free_disk,
            let_pass(4),
        ),
        needs=frozenset({Ability.DISK}),
        ci=_HERE,
    ),
    Scenario(
        name="skew-clocks",
        does="the leader's wall clock is five minutes ahead, a standby's and the owner's behind",
        steps=(
            skew(LEADER, 300),
            skew(STANDBY, -300),
            skew(OWNER, -300),
            let_pass(6),
            skew(LEADER, -300),
            let_pass(4),
        ),
        needs=frozenset({Ability.CLOCK}),
    ),
    Scenario(
        name="dispute-clock",
        does="the store's wall clock jumps ten years ahead, and the store is killed meanwhile",
        steps=(
            skew(STORE, 10 * 365.25 * 86_400),
            let_pass(4),
            kill(STORE),
            until_back(STORE),
            let_pass(4),
        ),
        needs=frozenset({Ability.CLOCK}),
    ),
    Scenario(
        name="rolling-restart",
        does="SIGTERM of everybody in turn",
        steps=(restart(EVERYBODY), let_pass(2)),
        ci=_HERE,
    ),
    Scenario(
        name="scale",
        does="workers 2, 4, 1 and coordinators 3, 5, 1, under load",
        steps=(
            scale(Role.WORKER, 4),
            scale(Role.COORDINATOR, 5),
            let_pass(4),
            scale(Role.WORKER, 1),
            scale(Role.COORDINATOR, 1),
            let_pass(4),
        ),
        needs=frozenset({Ability.SCALE}),
    ),
    Scenario(
        name="kill-at-random",
        does="SIGKILL of anybody, on average every 1.5 s, for 15 s",
        steps=(kill_at_random(15, 1.5),),
        redelivery_s=_TAKEN_OVER,
    ),
    Scenario(
        name="storm",
        does="anybody is killed, suspended and cut off, at random, for 25 s",
        steps=(storm(25),),
        redelivery_s=2 * _TAKEN_OVER,
    ),
    Scenario(
        name="all-at-once",
        does="SIGKILL of everybody at the same time",
        steps=(kill(EVERYBODY), let_pass(4)),
        redelivery_s=_TAKEN_OVER,
    ),
)
"""In the order in which they are played: what moves mesh time or hits everybody comes last."""


def chosen(kind: str, able: frozenset[Ability], *, everything: bool) -> list[Scenario]:
    """Gives the scenarios for a kind of mesh: every one that it is able of, or those of the CI."""
    return [
        scenario
        for scenario in SCENARIOS
        if scenario.needs <= able and (everything or kind in scenario.ci)
    ]
