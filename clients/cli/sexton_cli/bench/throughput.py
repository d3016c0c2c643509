"""How many durable runs a mesh on this machine carries from fire to settled, and at what cost.

Many jobs that share one schedule ask for more runs per second than the mesh can carry, from one
instant on and for some seconds; the time until the last of them is settled is what counts. Every
run takes the whole way: decided, committed, pushed, assigned, executed, completed and settled, each
step on the disk before it is acknowledged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sexton_cli.bench.figures import MILLISECOND, Figures, percentile
from sexton_cli.bench.load import Ended, Load, all_ended, apply_load, busy, by_run
from sexton_cli.bench.mesh import Mesh, Shape, running
from sexton_core.instants import SECOND, from_datetime

AIM_RUNS_PER_S: Final = 10_000


async def measure(
    jobs: int, seconds: int, folder: Path | None, shape: Shape | None = None
) -> Figures:
    """Measures with so many jobs, each due once a second for so many seconds."""
    async with running(folder, shape or Shape()) as mesh:
        return await measure_on(mesh, jobs, seconds)


async def measure_on(mesh: Mesh, jobs: int, seconds: int) -> Figures:
    """Measures a mesh that has done nothing yet."""
    load = Load(jobs, seconds, "nothing")
    first = await apply_load(mesh, load)
    before = mesh.cpu_s()
    ends = await all_ended(mesh, load.runs)
    after = mesh.cpu_s()
    elapsed_s = (max(run.end for run in ends) - from_datetime(first)) / SECOND
    return {
        "runs": len(ends),
        "runs_per_s": round(len(ends) / elapsed_s),
        "offered_runs_per_s": jobs,
        "aim_runs_per_s": AIM_RUNS_PER_S,
        **due_to_settled(ends),
        "cpu_us_per_run": by_run(before, after, len(ends)),
        "cores_busy": busy(before, after, elapsed_s),
        "memory_mib": mesh.memory_mib(),
    }


def due_to_settled(ends: list[Ended]) -> Figures:
    """Gives the percentiles of the time from due to settled."""
    ranked = sorted(run.end - run.nominal for run in ends)
    return {
        "due_to_settled_p50_ms": round(percentile(ranked, 50) / MILLISECOND),
        "due_to_settled_p99_ms": round(percentile(ranked, 99) / MILLISECOND),
    }
