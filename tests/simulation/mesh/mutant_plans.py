"""What mutants of the mesh are run in: plans, and what their jobs do."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from google.protobuf.duration_pb2 import Duration

from sexton.v1 import job_pb2
from sexton_sim.mesh.executor import Behaviour
from sexton_sim.mesh.plan import MeshFaults, MeshPlan

Patch = Callable[[pytest.MonkeyPatch], None]

CALM = MeshFaults(mean_pause_s=0)
SMALL = MeshPlan(duration_s=8, quiet_s=4, pause_s=0.2, session_ms=2_000, jobs=6, faults=CALM)


def often(**weights: float) -> MeshFaults:
    """A plan with these faults alone, and often."""
    none = {name: 0.0 for name in MeshFaults.__dataclass_fields__ if name != "mean_pause_s"}
    return replace(MeshFaults(mean_pause_s=1.0), **{**none, **weights})


def buffering(_rng: random.Random) -> job_pb2.JobSpec:
    """A job that is only triggered, its starts one after the other."""
    command = Behaviour(lasts_s=2.0).command()
    return job_pb2.JobSpec(
        task=job_pb2.Task(shell=job_pb2.ShellTask(command=command)),
        overlap=job_pb2.OVERLAP_POLICY_BUFFER_ALL,
    )


def failing(_rng: random.Random) -> job_pb2.JobSpec:
    """A job whose attempts take their time, often fail, and are made again at once."""
    command = Behaviour(lasts_s=2.5, fails_p=0.3).command()
    return job_pb2.JobSpec(
        schedules=[job_pb2.Schedule(every=job_pb2.Every(period=Duration(seconds=2)))],
        task=job_pb2.Task(shell=job_pb2.ShellTask(command=command)),
        overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL,
        retry=job_pb2.Retry(max_attempts=10, initial_backoff=Duration(nanos=100_000_000)),
    )


def lasting(_rng: random.Random) -> job_pb2.JobSpec:
    """A job whose executions must never overlap, and last longer than a session."""
    return job_pb2.JobSpec(
        schedules=[job_pb2.Schedule(every=job_pb2.Every(period=Duration(seconds=5)))],
        task=job_pb2.Task(
            shell=job_pb2.ShellTask(command=Behaviour(12.0, stubborn=True).command())
        ),
        exclusive=True,
    )


def dying(_rng: random.Random) -> job_pb2.JobSpec:
    """A job whose runs often become dead letters."""
    return job_pb2.JobSpec(
        schedules=[job_pb2.Schedule(every=job_pb2.Every(period=Duration(seconds=2)))],
        task=job_pb2.Task(
            shell=job_pb2.ShellTask(command=Behaviour(lasts_s=0.3, fails_p=0.6).command())
        ),
        retry=job_pb2.Retry(max_attempts=1),
    )


REPAIRED = replace(
    SMALL, duration_s=4, quiet_s=2, jobs=3, users=1, repairers=2, pause_s=0.1, spec=dying
)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    name: str
    patch: Patch
    rules: frozenset[str]
    """Any of these is the right one."""
    proof: str = ""
    """As what PROOF lists it; empty: it does not."""
    plan: MeshPlan = SMALL
    seeds: int = 10
