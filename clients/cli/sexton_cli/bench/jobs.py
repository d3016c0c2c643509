"""What many jobs cost while they wait: to apply, to read, to keep, to start with, to take over.

The same is measured with a thousand jobs in the same run, because the ratios are what counts. All
jobs are due a day later or more: nothing is asked for but that they are there.
"""

from __future__ import annotations

import asyncio
import random
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter, perf_counter_ns, process_time
from typing import Final

from sexton import AsyncClient, Every, JobSpec, PythonTask
from sexton_cli.bench.figures import MILLISECOND, Figures, ratio, times
from sexton_cli.bench.load import BATCH, NAME_PREFIX, by_run
from sexton_cli.bench.mesh import Mesh, Shape, running
from sexton_cli.bench.tasks import PAYLOAD

FEW: Final = 1_000
_SCHEDULES: Final = 1_000
"""Distinct ones, which the jobs share."""
_PER_BATCH: Final = 100
"""Of them, in the jobs of one batch."""
_AT_ONCE: Final = 4
"""Calls of `apply` under way."""
_GETS: Final = 200
_LISTS: Final = 20
_LISTED: Final = 100
"""Jobs that are read of a list."""
_SETTLE_S: Final = 2.0
"""Before memory is read: what the last calls left has been collected."""


async def measure(jobs: int, folder: Path | None) -> Figures:
    """Measures a mesh with a thousand jobs and one with so many; no more than that, only one."""
    rows = [await _one(number, folder) for number in sorted({min(FEW, jobs), jobs})]
    few, many = rows[0], rows[-1]
    more = many["jobs"] - few["jobs"]
    return {
        "jobs": jobs,
        "applied_per_s": many["applied_per_s"],
        "cpu_us_per_job": many["cpu_us_per_job"],
        "store_bytes_per_job": round((many["store_bytes"] - few["store_bytes"]) / more)
        if more
        else round(many["store_bytes"] / jobs),
        "coordinator_mib_more": round(many["coordinator_mib"] - few["coordinator_mib"], 1),
        "many_to_few": {
            name: ratio(many[name], few[name]) for name in many if name.endswith("_ms")
        },
        "rows": rows,
    }


async def _one(jobs: int, folder: Path | None) -> Figures:
    async with running(folder, Shape(coordinators=2)) as mesh:
        async with mesh.client(timeout_s=300.0) as client:
            before = {**mesh.cpu_s(), "client": process_time()}
            applied_s = await _apply(client, jobs)
            after = {**mesh.cpu_s(), "client": process_time()}
        reading = await _read(mesh, jobs)
        applied_mib = mesh.memory_mib()["coordinator"]
        leading = await _lead(mesh)
        await mesh.ready()
        await asyncio.sleep(_SETTLE_S)
        memory = mesh.memory_mib()
        return {
            "jobs": jobs,
            "applied_per_s": round(jobs / applied_s),
            "cpu_us_per_job": by_run(before, after, jobs),
            **reading,
            **leading,
            "coordinator_mib": mesh.memory_of(mesh.leader("coordinator")),
            "coordinator_applied_mib": applied_mib,
            "store_mib": memory["store"],
            "store_bytes": mesh.file_bytes(),
        }


async def _apply(client: AsyncClient, jobs: int) -> float:
    """Applies the jobs, several batches at once; gives how long it took, in seconds."""
    start = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    specs = [
        JobSpec(
            task=PythonTask("nothing", PAYLOAD),
            schedules=(Every(timedelta(days=1), start=start + timedelta(seconds=number)),),
        )
        for number in range(min(_SCHEDULES, jobs))
    ]
    batches = iter(range(0, jobs, BATCH))

    async def apply() -> None:
        for begin in batches:
            numbers = range(begin, min(begin + BATCH, jobs))
            first = begin // BATCH * _PER_BATCH
            await client.jobs.apply(
                {
                    f"{NAME_PREFIX}{number}": specs[(first + number % _PER_BATCH) % len(specs)]
                    for number in numbers
                }
            )

    began = perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(apply())
    return perf_counter() - began


async def _read(mesh: Mesh, jobs: int) -> Figures:
    """Gets jobs anywhere among them, and lists the first hundred."""
    numbers = random.Random(1)  # noqa: S311 - the same jobs in each run
    got, listed = [], []
    async with mesh.client() as client:
        for _ in range(_GETS):
            name = f"{NAME_PREFIX}{numbers.randrange(jobs)}"
            sent = perf_counter_ns()
            await client.jobs.get(name)
            got.append(perf_counter_ns() - sent)
        for _ in range(_LISTS):
            sent, seen = perf_counter_ns(), 0
            async for _job in client.jobs.list():
                seen += 1
                if seen == _LISTED:
                    break
            listed.append(perf_counter_ns() - sent)
    return {**times("get_", got), **times("list_", listed)}


async def _lead(mesh: Mesh) -> Figures:
    """Kills the leader and the store; gives how long it takes until all is led and served again.

    The takeover includes the time that a lease lasts, 2 s; a start is that of a process, imports
    included.
    """
    leader = mesh.leader("coordinator")
    killed, ended = await mesh.end(leader, signal.SIGKILL)
    led = await mesh.led("coordinator", after=leader)
    started = await mesh.ready()
    # And the one that leads now, which may have applied the jobs: a fresh one's memory is wanted.
    await mesh.end(led_by := mesh.leader("coordinator"), signal.SIGTERM)
    await mesh.led("coordinator", after=led_by)
    await mesh.ready()
    stopped = (await mesh.end("store", signal.SIGTERM))[1]
    await mesh.unready("store")
    served = await mesh.ready()
    return {
        "takeover_ms": round((led - killed) / MILLISECOND),
        "coordinator_start_ms": round((started - ended) / MILLISECOND),
        "store_start_ms": round((served - stopped) / MILLISECOND),
    }
