"""How many durable runs a mesh on this machine carries from fire to settled, and at what cost.

Starts a mesh of its own, of real processes on a temporary folder. Many jobs that share one schedule
ask for more runs per second than it can carry, from one instant on and for some seconds; the time
until the last of them is settled is what counts. Every run takes the whole way: decided, committed,
pushed, assigned, executed, completed and settled, each step on the disk before it is acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypedDict

from sexton import AsyncClient, CatchUp, CatchUpPolicy, Every, JobSpec, Overlap, PythonTask
from sexton_cli.bench import tasks
from sexton_cli.errors import CliError
from sexton_cli.up.plan import Program, UpConfig, free_base, plan
from sexton_cli.up.readiness import Readiness
from sexton_cli.up.supervisor import Supervisor
from sexton_core.ids import parse_run_id
from sexton_core.instants import SECOND, from_datetime
from sexton_records import keys
from sexton_runtime.clock import SystemClock
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_runtime.secrets import Role, SecretsConfig, load_or_create_secrets

AIM_RUNS_PER_S: Final = 2_000
SLOTS: Final = "2000"
"""Of the worker: with fewer in flight the bound would be the number, not the machine."""
_APPLIED_PER_S: Final = 300
"""Jobs that any machine creates in a second: the first instant lies beyond their creation."""
_BATCH: Final = 1_000
_START_TIMEOUT_S: Final = 60.0
_QUIET_S: Final = 30.0
"""Without a run that ends for so long, the rest is lost."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Measured(TypedDict):
    """What was measured, by name, with the unit last."""

    runs: int
    runs_per_s: int
    offered_runs_per_s: int
    aim_runs_per_s: int
    due_to_settled_p50_ms: int
    due_to_settled_p99_ms: int
    cpu_us_per_run: dict[str, int]
    cores_busy: dict[str, float]


async def measure(
    jobs: int, seconds: int, folder: Path | None, *, console: bool = False
) -> Measured:
    """Measures with so many jobs, each due once a second for so many seconds.

    With a `console` beside the mesh every run is traced.
    """
    with tempfile.TemporaryDirectory(prefix="sexton-bench-", dir=folder) as place:
        async with _mesh(Path(place), console=console) as mesh:
            first = await _create(mesh, jobs, seconds)
            wall_s = (first - datetime.now(UTC)).total_seconds()
            if wall_s < 0:
                raise CliError("the jobs took longer to create than was expected; use fewer")
            await asyncio.sleep(wall_s)
            before = mesh.cpu_s()
            ends = await _settled(mesh, jobs * seconds)
            after = mesh.cpu_s()
    start = from_datetime(first)
    elapsed_s = (max(end for end, _ in ends) - start) / SECOND
    took_ms = sorted((end - nominal) / SECOND * 1e3 for end, nominal in ends)
    used_s = {role: after[role] - before[role] for role in after}
    used_s["all"] = sum(used_s.values())
    return {
        "runs": len(ends),
        "runs_per_s": round(len(ends) / elapsed_s),
        "offered_runs_per_s": jobs,
        "aim_runs_per_s": AIM_RUNS_PER_S,
        "due_to_settled_p50_ms": round(took_ms[len(took_ms) // 2]),
        "due_to_settled_p99_ms": round(took_ms[len(took_ms) * 99 // 100]),
        "cpu_us_per_run": {role: round(s / len(ends) * 1e6) for role, s in used_s.items()},
        "cores_busy": {role: round(s / elapsed_s, 2) for role, s in used_s.items()},
    }


class _Mesh:
    """A mesh of the bench's own while it runs."""

    def __init__(
        self, config: UpConfig, programs: Sequence[Program], supervisor: Supervisor
    ) -> None:
        self.config = config
        self.api = next(p.address for p in programs if p.role == "coordinator")
        self.store = next(p.address for p in programs if p.role == "store")
        self._programs = programs
        self._supervisor = supervisor

    def cpu_s(self) -> dict[str, float]:
        """Gives the processor time that the processes have used, by role."""
        used: dict[str, float] = defaultdict(float)
        for program in self._programs:
            pid = self._supervisor.pid(program.name)
            if pid is None:
                raise CliError(f"{program.name} has ended; its log says why: {self.config.logs}")
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
            user, system = stat.rpartition(")")[2].split()[11:13]
            used[program.role] += (int(user) + int(system)) / _TICKS_PER_S
        return used


@asynccontextmanager
async def _mesh(place: Path, *, console: bool) -> AsyncIterator[_Mesh]:
    offsets = (0, 1, 2, 17, 80)
    base = free_base(20_000, offsets)
    if base is None:
        raise CliError("there are no free ports between 20100 and 32700")
    config = UpConfig(
        data=place,
        app=tasks.__name__,
        port_base=base,
        coordinators=1,
        queues=1,
        workers=1,
        console=console,
    )
    programs = plan(config)
    load_or_create_secrets(SecretsConfig(dir=config.secrets), Role, SystemRandomness())
    said: list[str] = []
    supervisor = Supervisor(
        programs,
        place,
        say=said.append,
        environment={"SEXTON_WORKER_SLOTS": SLOTS, "SEXTON_LOG_LEVEL": "warning"},
    )
    running = asyncio.create_task(supervisor.run())
    try:
        async with Readiness(programs) as readiness, asyncio.timeout(_START_TIMEOUT_S):
            while readiness.missing() and not running.done():
                await readiness.wait_changed(1.0)
        if running.done():
            raise CliError("\n".join(["the mesh did not start", *said]))
        yield _Mesh(config, programs, supervisor)
    except TimeoutError:
        raise CliError("\n".join(["the mesh did not become ready", *said])) from None
    finally:
        supervisor.stop(0.0)
        await running


async def _create(mesh: _Mesh, jobs: int, seconds: int) -> datetime:
    """Creates the jobs and gives the instant at which all of them are due for the first time."""
    lead = timedelta(seconds=3 + jobs / _APPLIED_PER_S)
    first = (datetime.now(UTC) + lead).replace(microsecond=0)
    spec = JobSpec(
        task=PythonTask(tasks.NAME),
        schedules=(
            Every(timedelta(seconds=1), start=first, end=first + timedelta(seconds=seconds - 1)),
        ),
        overlap=Overlap.ALLOW_ALL,
        catch_up=CatchUp(policy=CatchUpPolicy.ALL, window=timedelta(hours=1), max=1_000),
    )
    client = AsyncClient(mesh.api, secret_file=mesh.config.secrets / Role.CLIENT.value)
    async with client:
        for begin in range(0, jobs, _BATCH):
            numbers = range(begin, min(begin + _BATCH, jobs))
            await client.jobs.apply({f"bench-{number}": spec for number in numbers})
    return first


async def _settled(mesh: _Mesh, number: int) -> list[tuple[int, int]]:
    """Waits until so many runs have ended; gives each one's end and nominal time."""
    secret = (mesh.config.secrets / Role.MESH.value).read_text().strip()
    channel = PolicyChannel(GrpcTransport().channel(mesh.store), secret=secret)
    clock, randomness = SystemClock(), SystemRandomness()
    prefix = keys.ended_prefix(0)
    start, end = prefix, prefix[:-1] + bytes([prefix[-1] + 1])
    found: list[tuple[int, int]] = []
    loop = asyncio.get_running_loop()
    heard_s = loop.time()
    async with channel, StoreClient(channel, clock=clock, randomness=randomness) as store:
        while len(found) < number:
            page = await store.scan(start, end, keys_only=True)
            for kv in page.kvs:
                instant, _, run_id = keys.parse_ended_key(kv.key)
                found.append((instant, parse_run_id(run_id).time))
                start = kv.key + b"\0"
                heard_s = loop.time()
            if loop.time() - heard_s > _QUIET_S:
                raise CliError(f"{len(found)} of {number} runs have ended, and no more come")
            if not page.next_token:
                await asyncio.sleep(0.5)
    return found
