"""How late runs start: from their due time to their first instruction in the worker.

Both times are of the machine's clock: the due time is what the schedule says, the start is what the
task itself says, and what it says is in the run's record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from sexton_cli.bench.figures import Figures, percentile, times
from sexton_cli.bench.load import Load, Started, all_ended, all_started, apply_load, busy, by_run
from sexton_cli.bench.mesh import Shape, running
from sexton_core.instants import MILLISECOND, SECOND, from_datetime


async def measure(jobs: int, seconds: int, folder: Path | None, *, spread: bool) -> Figures:
    """Measures with so many jobs, each due once a second: all at once, or spread over the second.

    With one second this is a single instant at which all of them are due.
    """
    load = Load(jobs, seconds, "stamp", spread_s=int(spread))
    async with running(folder, Shape()) as mesh:
        first = from_datetime(await apply_load(mesh, load))
        before = mesh.cpu_s()
        ends = await all_ended(mesh, load.runs)
        after = mesh.cpu_s()
        memory = mesh.memory_mib(most=True)
        runs = await all_started(mesh)
    late = [run.started - run.due for run in runs]
    settled_s = (max(run.end for run in ends) - first) / SECOND
    return {
        "runs": len(runs),
        "runs_per_s": round(len(runs) / settled_s),
        "offered_runs_per_s": jobs,
        "spread": spread,
        **times("", late),
        **_by_instant(runs),
        "later_than_1_s": sum(it > SECOND for it in late),
        "all_started_s": round((max(run.started for run in runs) - first) / SECOND, 3),
        "all_settled_s": round(settled_s, 3),
        "cpu_us_per_run": by_run(before, after, len(runs)),
        "cores_busy": busy(before, after, settled_s),
        "memory_most_mib": memory,
    }


def _by_instant(runs: Sequence[Started]) -> Figures:
    """Gives how late the median and the last of a second's runs usually are.

    A hundredth of all runs is less than one second's: what disturbs one of them is not seen here.
    """
    late = defaultdict(list)
    for run in runs:
        late[run.due // SECOND].append(run.started - run.due)
    medians = sorted(percentile(sorted(each), 50) for each in late.values())
    last = sorted(max(each) for each in late.values())
    return {
        "usual_p50_ms": round(percentile(medians, 50) / MILLISECOND, 2),
        "usual_last_ms": round(percentile(last, 50) / MILLISECOND, 2),
    }
