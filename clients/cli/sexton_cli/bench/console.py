"""How long the console takes to make each of its views, of a mesh with a long past.

Real services on a store that was written in bulk. What is measured is the server's time, as its
header `Server-Timing` says it: the first time that each view is asked for, and a few times after.
"""

from __future__ import annotations

import asyncio
import statistics
import urllib.request
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final
from urllib.error import HTTPError

from sexton_cli.bench.bulk import fill, job_id
from sexton_cli.bench.figures import Figures
from sexton_cli.bench.mesh import Mesh, Shape, running
from sexton_runtime.secrets import Role

_AGAIN: Final = 5
"""Further looks at each view, a second apart: as long as answers are shared, at most."""
_PATIENCE_S: Final = 60.0


async def measure(jobs: int, runs: int, folder: Path | None) -> Figures:
    """Measures every view of a mesh with so many jobs and, about, so many runs that have ended."""
    began = perf_counter()
    shape = Shape(console=True, fill=partial(fill, jobs=jobs, runs=runs))
    async with running(folder, shape) as mesh:
        await _listening(mesh)
        started_s = perf_counter() - began
        followed_ms = await _followed(mesh)
        views = await _views(mesh, jobs)
        rows: list[Figures] = []
        for name, path in views.items():
            # What is still asked in the background by then is asked for this view.
            first_ms, size = await _look(mesh, path)
            again = []
            for _ in range(_AGAIN):
                await asyncio.sleep(1.0)
                again.append((await _look(mesh, path))[0])
            rows.append(
                {
                    "view": name,
                    "first_ms": first_ms,
                    "again_p50_ms": statistics.median(again),
                    "again_max_ms": max(again),
                    "kib": size // 1024,
                }
            )
        return {
            "jobs": jobs,
            "runs": runs,
            "store_mib": mesh.file_bytes() // 2**20,
            "written_and_started_s": round(started_s, 1),
            "first_numbers_ms": round(followed_ms),
            "slowest_first_ms": max(row["first_ms"] for row in rows),
            "memory_mib": mesh.memory_mib(),
            "rows": rows,
        }


async def _listening(mesh: Mesh) -> None:
    """Waits until the console serves; the mesh does not wait for it."""
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", mesh.config.console_port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


async def _followed(mesh: Mesh) -> float:
    """Waits until the console has counted the newest runs; gives how long it took from then on."""
    began = perf_counter()
    url = f"http://127.0.0.1:{mesh.config.console_port}/health"

    def is_well() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=_PATIENCE_S):
                return True
        except HTTPError:
            return False

    async with asyncio.timeout(_PATIENCE_S):
        while True:
            if await asyncio.to_thread(is_well):
                return (perf_counter() - began) * 1_000
            await asyncio.sleep(0.02)


async def _views(mesh: Mesh, jobs: int) -> Mapping[str, str]:
    """Gives each view's address, of jobs and runs in the midst of the others."""
    some, busy = job_id(jobs // 2 + 1), job_id(jobs // 2 - jobs // 2 % 1_000)
    async with mesh.client() as client:
        newest = await anext(client.runs.list(busy))
    return {
        "now": "/",
        "agenda": "/agenda",
        "jobs": "/jobs",
        "jobs, one word": f"/jobs?q={some.rpartition('-')[2]}",
        "jobs, many fit": "/jobs?q=orders",
        "jobs, next time": "/jobs?sort=next",
        "jobs, paused": "/jobs?state=paused",
        "jobs, failing": "/jobs?state=failing",
        "jobs, latest": "/jobs?sort=late",
        "job": f"/jobs/default/{some}",
        "job, busy": f"/jobs/default/{busy}",
        "runs": "/runs",
        "runs, failed": "/runs?state=failed",
        "runs of a job": f"/runs?job={busy}",
        "run": f"/runs/{newest.full_name}",
        "why": f"/why?job={busy}",
        "queues": "/queues",
        "dead letters": "/dead-letters",
        "control plane": "/mesh",
    }


async def _look(mesh: Mesh, path: str) -> tuple[float, int]:
    """Asks for a page; gives the server's time in milliseconds and the page's bytes."""
    secret = (mesh.config.secrets / Role.CLIENT.value).read_text(encoding="utf-8").strip()
    url = f"http://127.0.0.1:{mesh.config.console_port}{path}"
    headers = {"authorization": f"Bearer {secret}", "accept": "text/html"}
    request = urllib.request.Request(url, headers=headers)

    def ask() -> tuple[float, int]:
        answer: Any
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:  # noqa: S310 - ours
            body = answer.read()
            return float(answer.headers["server-timing"].partition("dur=")[2]), len(body)

    return await asyncio.to_thread(ask)
