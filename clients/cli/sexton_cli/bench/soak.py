"""Whether a mesh under load stays as it is: memory, file and lateness over minutes.

The history of each job is purged all the while, so that nothing has a reason to grow.
"""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Final

from sexton_cli.bench.figures import Figures, ratio
from sexton_cli.bench.load import Ended, Load, apply_load, busy, by_run, ended
from sexton_cli.bench.mesh import Mesh, Shape, running
from sexton_cli.bench.throughput import due_to_settled
from sexton_core.instants import SECOND, Instant, from_datetime

KEPT_RUNS: Final = 5
"""Of each job: reached within seconds, so that what is measured is a history in balance."""
WINDOWS: Final = 10
_MIB: Final = 2**20
_NO_RATIO: Final = {"until_s", "runs"}
_PATIENCE: Final = 3.0
"""How much longer than planned the mesh may take."""
_PATIENCE_S: Final = 60.0


async def measure(jobs: int, seconds: int, folder: Path | None, shape: Shape) -> Figures:
    """Measures with so many jobs, each due once a second for so many seconds."""
    load = Load(jobs, seconds, "nothing", kept_runs=KEPT_RUNS)
    async with running(folder, shape) as mesh:
        first = from_datetime(await apply_load(mesh, load))
        before = mesh.cpu_s()
        windows = await _follow(mesh, load, first)
        after = mesh.cpu_s()
    elapsed_s = max(row["until_s"] for row in windows)
    middle, last = windows[(len(windows) - 1) // 2], windows[-1]
    return {
        "runs": load.runs,
        "runs_per_s": round(load.runs / elapsed_s),
        "offered_runs_per_s": jobs,
        "kept_runs_per_job": KEPT_RUNS,
        "cpu_us_per_run": by_run(before, after, load.runs),
        "cores_busy": busy(before, after, elapsed_s),
        "last_to_middle": {
            name: ratio(last[name], middle[name]) for name in last if name not in _NO_RATIO
        },
        "windows": windows,
    }


async def _follow(mesh: Mesh, load: Load, first: Instant) -> list[Figures]:
    """Looks at the mesh each time that another part of the runs has ended."""
    windows: list[Figures] = []
    size = -(-load.runs // WINDOWS)
    gathered: list[Ended] = []
    deadline_s = load.seconds * _PATIENCE + _PATIENCE_S
    async with (
        mesh.store() as store,
        aclosing(ended(store, load.runs, deadline_s=deadline_s)) as pages,
    ):
        found = 0
        async for page in pages:
            gathered += page
            found += len(page)
            if len(gathered) >= size or found >= load.runs:
                windows.append(_window(mesh, gathered, first))
                gathered = []
    return windows


def _window(mesh: Mesh, gathered: list[Ended], first: Instant) -> Figures:
    memory = {f"{role}_mib": mib for role, mib in mesh.memory_mib().items()}
    return {
        "until_s": round((max(run.end for run in gathered) - first) / SECOND, 1),
        "runs": len(gathered),
        **due_to_settled(gathered),
        **memory,
        "file_mib": round(mesh.file_bytes() / _MIB, 1),
    }
