"""Which faults there are and when they come: pure data, drawn from the seed before anything runs.

Each kind of fault is a name: a field of the plan, the key of a deed, and what is counted when it
has really been done to somebody.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """How often, and how likely each kind of fault is against the others; 0: never."""

    mean_pause_s: float = 2.5
    """Mean time between two faults; 0: none at all."""
    calm_s: float = 0.0
    """So much time more between two, so that each is felt alone."""

    crash_store: float = 2.0
    crash_in_commit: float = 3.0
    """The store, just before or just after a step is durable."""
    crash_member: float = 2.0
    crash_all: float = 0.3
    restart_storm: float = 0.5
    """One process, killed again as soon as it is back."""
    power_loss: float = 0.5
    """Of the store's machine: its peers are told nothing, and boot time starts anew."""
    power_loss_in_commit: float = 1.0
    power_loss_member: float = 0.7
    suspend_store: float = 1.5
    suspend_member: float = 2.0
    """For 0.5, 1 or 3 times its lease, as every suspension."""
    sleep_machine: float = 0.7
    """A lid is closed: awake time stands still, wall and boot time go on."""
    sleep_all: float = 0.2
    """The same of every machine, for up to three days."""

    cut_one_way: float = 3.0
    cut_both_ways: float = 2.0
    swizzle: float = 1.0
    """Many links are cut one by one, and mended in another order."""
    reset: float = 2.0
    lose_reply: float = 1.0
    """The connection breaks under the next reply: it was done, and nobody is told."""
    half_open: float = 1.0
    """A connection carries nothing any more, and neither end is told."""
    rough_network: float = 2.0
    slow_network: float = 0.7
    """50 to 2,000 ms on the way."""
    lossy_network: float = 0.7
    """Every second packet has to be sent again."""
    duplicates: float = 0.7
    """Every second request comes again, up to 15 s later: perhaps to another process."""
    reordering: float = 0.7

    slow_disk: float = 2.0
    """0.2 to 5 s for a step."""
    full_disk: float = 1.0
    """What grows does not fit; what frees space does."""
    jammed_disk: float = 0.5
    """Nothing fits: others have filled it to the last byte."""
    failing_disk: float = 1.0
    """A sync fails: whether the step is durable is not known."""

    jump_wall: float = 1.5
    strobe_wall: float = 0.5
    """A wall clock that jumps to and fro."""
    dispute_and_restart: float = 0.7
    """The store's clock jumps further than is believed, and the store is killed on top."""
    change_rate: float = 1.0
    extreme_rate: float = 0.7
    """Clocks at half or twice their speed, for a while."""


P = TypeVar("P", bound=FaultPlan)
_TIMES = frozenset({"mean_pause_s", "calm_s"})
"""What is no kind of fault."""
NO_FAULTS = replace(FaultPlan(), mean_pause_s=0.0)


class Fault(NamedTuple):
    """One entry of a schedule."""

    number: int
    after_s: float
    """Since the one before."""
    kind: str


def kinds_of(plan: FaultPlan | type[FaultPlan]) -> list[str]:
    """Lists the kinds of fault that a plan knows."""
    return [field.name for field in fields(plan) if field.name not in _TIMES]


def swarm(rng: random.Random, plan: type[P]) -> P:
    """Draws a plan: some kinds of fault alone and often find what all of them together hide."""
    mean_pause_s = rng.choice((0.5, 1.0, 2.5, 6.0))
    kinds = kinds_of(plan)
    share = rng.choice((0.1, 0.2, 0.5, 1.0))
    chosen = [kind for kind in kinds if rng.random() < share] or [rng.choice(kinds)]
    return plan(
        mean_pause_s=mean_pause_s,
        **{kind: rng.uniform(0.5, 2.0) if kind in chosen else 0.0 for kind in kinds},
    )


def draw_schedule(plan: FaultPlan, seed: int, duration_s: float) -> Iterator[Fault]:
    """Draws what comes when within so many seconds. Details are drawn from a fault's number."""
    kinds = [kind for kind in kinds_of(plan) if getattr(plan, kind) > 0]
    if not plan.mean_pause_s or not kinds:
        return
    weights = [getattr(plan, kind) for kind in kinds]
    rng = random.Random(f"faults-{seed}")  # noqa: S311 - determinism is the point
    at_s, number = 0.0, 0
    while True:
        after_s = rng.expovariate(1 / plan.mean_pause_s) + plan.calm_s * (number > 0)
        at_s += after_s
        if at_s >= duration_s:
            return
        number += 1
        (kind,) = rng.choices(kinds, weights)
        yield Fault(number, after_s, kind)
