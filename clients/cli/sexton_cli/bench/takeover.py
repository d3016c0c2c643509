"""How long nothing is started when the leader dies, and when a worker dies with its runs.

Under load, with `kill -9`; and once in order. The mesh writes its history meanwhile, and the
checker of `sexton verify` tells what was lost or done twice.
"""

from __future__ import annotations

import asyncio
import signal
from itertools import pairwise
from pathlib import Path
from typing import Final

from sexton_cli.bench.figures import MILLISECOND, Figures, percentile
from sexton_cli.bench.load import Load, Started, all_ended, all_started, apply_load
from sexton_cli.bench.mesh import Mesh, Shape, running
from sexton_cli.errors import CliError
from sexton_sim.verify import verify

LEASE_MS: Final = 2_000
"""How long a silent leader stays the leader, by default."""
_AFTER: Final = 0.4
"""The fault comes after this part of the load."""


async def measure(jobs: int, seconds: int, folder: Path | None) -> Figures:
    """Measures all three under so many runs per second, spread evenly, for so many seconds."""
    return {
        "offered_runs_per_s": jobs,
        "lease_ms": LEASE_MS,
        "leader_killed": await _leader(jobs, seconds, folder, signal.SIGKILL),
        "leader_stopped": await _leader(jobs, seconds, folder, signal.SIGTERM),
        "worker_killed": await _worker(jobs, seconds, folder),
    }


async def _leader(jobs: int, seconds: int, folder: Path | None, by: signal.Signals) -> Figures:
    load = Load(jobs, seconds, "stamp", spread_s=1)
    async with running(folder, Shape(coordinators=2, history=True)) as mesh:
        await apply_load(mesh, load)
        await asyncio.sleep(_AFTER * seconds)
        sent, _ = await mesh.end(mesh.leader("coordinator"), by)
        runs = await _all(mesh, load)
        judged = await _judged(mesh)
    # The widest gap between two decisions that follow each other, from the signal on.
    decided = sorted(run.decided for run in runs)
    last = max((it for it in decided if it <= sent), default=sent)
    after = [last, *(it for it in decided if it > sent)]
    gap, begin = max((b - a, a) for a, b in pairwise(after))
    late = sorted(run.started - run.due for run in runs)
    return {
        "runs": len(runs),
        "lost": load.runs - len(runs),
        "signal_to_first_fire_ms": round((begin + gap - sent) / MILLISECOND),
        "gap_ms": round(gap / MILLISECOND),
        "decided_max_ms": round(max(run.decided - run.due for run in runs) / MILLISECOND, 2),
        "p50_ms": round(percentile(late, 50) / MILLISECOND, 2),
        "max_ms": round(late[-1] / MILLISECOND, 2),
        **judged,
    }


async def _worker(jobs: int, seconds: int, folder: Path | None) -> Figures:
    """Kills one of two workers, whose runs last half a second each."""
    load = Load(jobs, seconds, "linger", spread_s=1)
    async with running(folder, Shape(workers=2, history=True)) as mesh:
        await apply_load(mesh, load)
        await asyncio.sleep(_AFTER * seconds)
        sent, _ = await mesh.end("worker-1", signal.SIGKILL)
        runs = await _all(mesh, load)
        judged = await _judged(mesh)
    again = sorted(run.started - sent for run in runs if run.deliveries > 1)
    return {
        "runs": len(runs),
        "lost": load.runs - len(runs),
        "started_again": len(again),
        "again_p50_ms": round(percentile(again, 50) / MILLISECOND) if again else None,
        "again_max_ms": round(again[-1] / MILLISECOND) if again else None,
        **judged,
    }


async def _all(mesh: Mesh, load: Load) -> list[Started]:
    await all_ended(mesh, load.runs)
    return await all_started(mesh)


async def _judged(mesh: Mesh) -> Figures:
    """Has the checker judge what the mesh has written so far."""
    verdict = await asyncio.to_thread(verify, [mesh.config.data / "history"])
    if not verdict.ok:
        raise CliError(f"a promise was broken:\n{verdict}")
    return {"violations": len(verdict.violations), "checked": verdict.checked.total()}
