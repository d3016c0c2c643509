"""What a simulated mesh is made of, and what its jobs are like."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from google.protobuf.duration_pb2 import Duration

from sexton.v1 import job_pb2 as pb
from sexton_sim.clock import DEFAULT_WALL_NS
from sexton_sim.faults import kinds_of, swarm
from sexton_sim.mesh.executor import Behaviour
from sexton_sim.mesh.faults import MeshFaults
from sexton_store.contract import EngineConfig

NAMESPACE = "default"
_ALONE_EVERY = 3
_ALONE_S = 14.0
"""What a fault may do is over by then: silent connections, back-offs, leases."""
_ALONE = ("crash_worker", "crash_worker_after_effect", "stop_acting", "full_disk")
QUEUES = ("default", "side")
DrawSpec = Callable[[random.Random], pb.JobSpec]

_OVERLAPS = tuple(pb.OverlapPolicy.values())[1:]
_ZONE = "Europe/Berlin"
_BEFORE_THE_GAP_NS = 1_806_195_590_000_000_000
"""2027-03-28T00:59:50Z: ten seconds on, two o'clock is followed by three."""
_BEFORE_THE_FOLD_NS = 1_824_944_390_000_000_000
"""2027-10-31T00:59:50Z: ten seconds on, three o'clock is followed by two."""
_CATCH_UPS = tuple(pb.CatchUp.Policy.values())[1:]


def draw_spec(rng: random.Random) -> pb.JobSpec:
    """Draws a definition: every overlap and catch-up policy, short periods, all kinds of tasks."""
    behaviour = Behaviour(
        lasts_s=rng.choice((0.05, 0.3, 1.0, 2.5, 6.0)),
        fails_p=rng.choice((0.0, 0.0, 0.2, 0.7)),
        stubborn=rng.random() < 0.1,
    )
    spec = pb.JobSpec(
        task=_draw_task(rng, behaviour),
        queue=rng.choice(QUEUES),
        priority=rng.choice((0, 0, 50, 100)),
        overlap=rng.choice(_OVERLAPS),
        catch_up=_draw_catch_up(rng),
        timeout=Duration(seconds=rng.choice((4, 600))),
        retry=pb.Retry(
            max_attempts=rng.choice((1, 2, 4)),
            max_deliveries=rng.choice((4, 10)),
            initial_backoff=Duration(nanos=rng.choice((100_000_000, 800_000_000))),
            max_backoff=Duration(seconds=2),
        ),
    )
    if rng.random() < 0.9:
        spec.schedules.append(_draw_schedule(rng))
        if rng.random() < 0.2:
            spec.schedules.append(_draw_schedule(rng))
        if rng.random() < 0.2:
            for schedule in spec.schedules:
                schedule.jitter.FromMilliseconds(700)
    if rng.random() < 0.3:
        spec.max_buffered = rng.choice((1, 2))
    if rng.random() < 0.2:
        spec.max_live = rng.choice((1, 2, 3))
    if rng.random() < 0.2:
        spec.exclusive = True
    if rng.random() < 0.2:
        spec.delivery = pb.DELIVERY_AT_MOST_ONCE
        spec.retry.max_attempts = 1
    if rng.random() < 0.1:
        spec.start_within.FromSeconds(rng.choice((1, 5)))
    if rng.random() < 0.1:
        spec.deadline.FromSeconds(rng.choice((2, 20)))
    return spec


def _draw_task(rng: random.Random, behaviour: Behaviour) -> pb.Task:
    if rng.random() < 0.2:
        return pb.Task(http=pb.HttpTask(url=behaviour.url()))
    return pb.Task(shell=pb.ShellTask(command=behaviour.command()))


def _draw_catch_up(rng: random.Random) -> pb.CatchUp:
    late_s = rng.choice((1, 3, 15))
    catch_up = pb.CatchUp(policy=rng.choice(_CATCH_UPS), late_after=Duration(seconds=late_s))
    if rng.random() < 0.5:
        catch_up.window.FromSeconds(late_s + rng.choice((0, 5, 60)))
    if rng.random() < 0.3:
        catch_up.max = rng.choice((1, 3))
    return catch_up


def _draw_schedule(rng: random.Random) -> pb.Schedule:
    period_s = rng.choice((1, 2, 3, 5, 10))
    drawn = rng.random()
    if drawn < 0.1:
        # In the gap or the fold of the nights in which some plans begin.
        schedule = pb.Schedule(
            cron=f"{rng.choice((0, 5))} {rng.choice((0, 30))} 2 * * *",
            time_zone=_ZONE,
            dst=rng.choice(pb.DstRule.values()[1:]),
        )
    elif drawn < 0.35:
        zone = rng.choice(("UTC", _ZONE))
        schedule = pb.Schedule(cron=f"*/{period_s} * * * * *", time_zone=zone)
    else:
        schedule = pb.Schedule(every=pb.Every(period=Duration(seconds=period_s)))
    if rng.random() < 0.1:
        schedule.max_runs = 3
    if rng.random() < 0.1:
        second = rng.randrange(0, 60, period_s)
        schedule.exclude.append(pb.Calendar(name="rest", crons=[f"{second} * * * * *"]))
    return schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshPlan:
    """What a simulated mesh is made of."""

    duration_s: float = 15.0
    """How long faults are injected, and people change jobs."""
    quiet_s: float = 20.0
    """How long it runs on after everything has been healed."""
    shards: int = 1
    """Of coordinators, and of queues. Workers serve one shard of queues each, in turn."""
    coordinators: int = 2
    queues: int = 2
    """Replicas of each shard."""
    workers: int = 3
    slots: int = 4
    users: int = 2
    repairers: int = 0
    """Who retry runs, work off dead letters and run ranges again."""
    operators: int = 0
    """Who pause queues, drain workers and prune, while faults are injected."""
    jobs: int = 8
    """Names that jobs can have. Each user creates its share at first."""
    pause_s: float = 0.4
    """Mean time between two calls of a user."""
    backup_pause_s: float = 0.0
    """Mean time between two backups; 0: none are made."""
    wall_ns: int = DEFAULT_WALL_NS
    """What all wall clocks show at first."""
    session_ms: int = 4_000
    max_running: str = ""
    """Bounds on assigned runs by queue, as the queue's configuration has them."""
    spec: DrawSpec = draw_spec
    faults: MeshFaults = field(default_factory=MeshFaults)
    engine: EngineConfig = field(default_factory=lambda: EngineConfig(history=True))


def plan_of(seed: int, *, duration_s: float = 15.0) -> MeshPlan:
    """Draws a seed's own plan: who takes part, how busy they are, what is done to them.

    In every third seed all works but for one fault at a time: what follows is that one's.
    """
    plan = _stormy(seed, duration_s)
    turn, rest = divmod(seed, _ALONE_EVERY)
    if not rest:
        alone = _ALONE[turn % len(_ALONE)]
        kinds = {kind: float(kind == alone) for kind in kinds_of(MeshFaults)}
        faults = MeshFaults(mean_pause_s=4.0, calm_s=_ALONE_S, **kinds)
        plan = replace(plan, faults=faults, workers=2 * plan.shards, operators=0)
    return plan


def _stormy(seed: int, duration_s: float) -> MeshPlan:
    rng = random.Random(f"mesh-plan-{seed}")  # noqa: S311 - determinism is the point
    shards = rng.choice((1, 1, 1, 2))
    return MeshPlan(
        duration_s=duration_s,
        shards=shards,
        coordinators=rng.choice((2, 2, 3)),
        workers=rng.randint(shards, 4),
        slots=rng.choice((1, 4, 20)),
        users=rng.randint(1, 3),
        jobs=rng.choice((3, 6, 10)),
        pause_s=rng.choice((0.2, 0.6, 2.0)),
        backup_pause_s=rng.choice((0.0, 1.0, 4.0)),
        wall_ns=rng.choice((DEFAULT_WALL_NS, _BEFORE_THE_GAP_NS, _BEFORE_THE_FOLD_NS)),
        session_ms=rng.choice((2_000, 5_000, 30_000)),
        max_running=rng.choice(("", "", "side=1", "default=2,side=1")),
        faults=swarm(rng, MeshFaults),
        engine=EngineConfig(history=True, watch_window_events=rng.choice((50, 1_000, 100_000))),
        repairers=rng.choice((0, 1)),
        operators=rng.choice((0, 1)),
    )
