"""What a run costs with few jobs and with many, at the same number of runs per second.

Each job is due once in `jobs / rate` seconds, so that all of them take part, however many there
are. What an idle mesh with so many jobs uses is told beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sexton_cli.bench.figures import Figures, ratio
from sexton_cli.bench.load import Load, apply_load, by_run, ended
from sexton_cli.bench.mesh import Shape, running

JOBS: Final = (100, 1_000, 10_000, 100_000)


async def measure(jobs: Sequence[int], rate: int, seconds: int, folder: Path | None) -> Figures:
    """Measures with each number of jobs, `rate` runs per second for so many seconds."""
    rows = [await _one(number, rate, seconds, folder) for number in jobs]
    least = rows[0]["cpu_us_per_run"]
    for row in rows:
        row["cpu_to_fewest_jobs"] = ratio(row["cpu_us_per_run"], least)
    return {"runs_per_s": rate, "seconds": seconds, "rows": rows}


async def _one(jobs: int, rate: int, seconds: int, folder: Path | None) -> Figures:
    load = Load(jobs, seconds, "nothing", period_s=max(1, jobs // rate))
    async with running(folder, Shape()) as mesh:
        await apply_load(mesh, load)
        before = mesh.cpu_s()
        await asyncio.sleep(seconds)
        after = mesh.cpu_s()
        runs = 0
        async with mesh.store() as store:
            async for page in ended(store, load.runs):
                runs += len(page)
        memory = mesh.memory_mib()
    by_service = by_run(before, after, load.runs)
    return {
        "jobs": jobs,
        "runs": load.runs,
        "cpu_us_per_run": by_service.pop("all"),
        **{f"{role}_us": us for role, us in by_service.items()},
        "coordinator_mib": memory["coordinator"],
        "queue_mib": memory["queue"],
    }
