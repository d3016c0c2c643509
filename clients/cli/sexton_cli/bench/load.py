"""The load of the benches: jobs that are due together, and what became of their runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Final, NamedTuple

from sexton import AsyncClient, CatchUp, CatchUpPolicy, Every, JobSpec, Overlap, PythonTask
from sexton.internal.v1.records_pb2 import RunRecord
from sexton.jobs import Retention
from sexton_cli.bench.mesh import Mesh
from sexton_cli.bench.tasks import PAYLOAD
from sexton_cli.errors import CliError
from sexton_core.ids import parse_run_id
from sexton_records import keys
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.types import prefix_end

BATCH: Final = 1_000
"""Jobs applied in one call."""
NAME_PREFIX: Final = "bench-"
_TRIAL: Final = 500
"""Jobs that are applied first, to learn how long the others take."""
_CAUTION: Final = 2.5
"""How much longer they may take: another machine's load comes and goes."""
_LEAD_S: Final = 5.0
_QUIET_S: Final = 30.0
"""Without a run that ends for so long, the rest is lost."""
_LOOK_S: Final = 0.5
_CALM_S: Final = 1.0


class Load(NamedTuple):
    """Jobs, each due every `period_s` seconds for `seconds`; in each second equally many of them.

    spread_s: over how much of the time after it the starts of one instant are spread; 0: not.
    kept_runs: ended runs that are kept of each job.
    """

    jobs: int
    seconds: int
    task: str
    period_s: int = 1
    spread_s: int = 0
    kept_runs: int = 1_000

    @property
    def runs(self) -> int:
        """Counts the runs that are asked for within the seconds."""
        phases = min(self.period_s, self.seconds, self.jobs)
        return sum(
            len(range(phase, self.jobs, self.period_s))
            * len(range(phase, self.seconds, self.period_s))
            for phase in range(phases)
        )

    def spec(self, phase: int, first: datetime) -> JobSpec:
        """Gives the definition of the jobs that are due `phase` seconds after the first instant."""
        return JobSpec(
            task=PythonTask(self.task, PAYLOAD),
            schedules=(
                Every(
                    timedelta(seconds=self.period_s),
                    start=first + timedelta(seconds=phase),
                    end=first + timedelta(seconds=max(self.seconds - 1, phase)),
                    jitter=timedelta(seconds=self.spread_s),
                ),
            ),
            overlap=Overlap.ALLOW_ALL,
            catch_up=CatchUp(policy=CatchUpPolicy.ALL, window=timedelta(hours=1), max=1_000),
            retention=Retention(max_runs=self.kept_runs),
        )


async def apply_load(mesh: Mesh, load: Load) -> datetime:
    """Creates the jobs; gives the instant from which they are due, which is still to come.

    Raises:
        CliError: creating them took so long that it has passed.

    """
    async with mesh.client(timeout_s=300.0) as client:
        began = perf_counter()
        trial = min(_TRIAL, load.jobs)
        unscheduled = JobSpec(task=PythonTask(load.task, PAYLOAD))
        await client.jobs.apply({f"trial-{number}": unscheduled for number in range(trial)})
        trial_s = perf_counter() - began
        lead_s = _LEAD_S + _CAUTION * trial_s * load.jobs / trial
        first = (datetime.now(UTC) + timedelta(seconds=lead_s)).replace(microsecond=0)
        specs = [load.spec(phase, first) for phase in range(min(load.jobs, load.period_s))]
        await apply_many(client, load.jobs, lambda number: specs[number % load.period_s])
    left_s = (first - datetime.now(UTC)).total_seconds()
    if left_s < 0:
        raise CliError("the jobs took longer to create than was expected; use fewer")
    await asyncio.sleep(left_s)
    return first


async def apply_many(client: AsyncClient, jobs: int, spec: Callable[[int], JobSpec]) -> None:
    """Applies `bench-0` and so on, in batches."""
    for begin in range(0, jobs, BATCH):
        numbers = range(begin, min(begin + BATCH, jobs))
        await client.jobs.apply({f"{NAME_PREFIX}{number}": spec(number) for number in numbers})


class Ended(NamedTuple):
    """A run that has ended; times are nanoseconds of mesh time."""

    nominal: int
    end: int


async def ended(
    store: StoreClient, number: int, *, deadline_s: float | None = None
) -> AsyncGenerator[list[Ended], None]:
    """Yields runs as they end, until so many have.

    Raises:
        CliError: no more come, or they took longer than the deadline.

    """
    prefix = keys.ended_prefix(0)
    start, end = prefix, prefix_end(prefix)
    loop = asyncio.get_running_loop()
    began_s = heard_s = loop.time()
    found = 0
    while found < number:
        page = await store.scan(start, end, keys_only=True)
        runs = []
        for kv in page.kvs:
            instant, _, run_id = keys.parse_ended_key(kv.key)
            runs.append(Ended(parse_run_id(run_id).time, instant))
            start = kv.key + b"\0"
        if runs:
            heard_s = loop.time()
            found += len(runs)
            yield runs
        late = deadline_s is not None and loop.time() - began_s > deadline_s
        if late or loop.time() - heard_s > _QUIET_S:
            raise CliError(f"{found} of {number} runs have ended, and no more come")
        if not page.next_token:
            await asyncio.sleep(_LOOK_S)


async def all_ended(mesh: Mesh, number: int) -> list[Ended]:
    """Waits until so many runs have ended.

    They are read when no more of them come: to read along would be work of the store's and of this
    process's that no user's mesh does, a tenth of what the runs cost.
    """
    async with mesh.store() as store:
        await _calm(store)
        return [run async for runs in ended(store, number) for run in runs]


async def _calm(store: StoreClient) -> None:
    """Returns when no run has ended for a moment, or none at all for long."""
    prefix = keys.ended_prefix(0)
    before: object = None
    for _ in range(round(_QUIET_S / _CALM_S)):
        while True:
            await asyncio.sleep(_CALM_S)
            page = await store.scan(
                prefix, prefix_end(prefix), limit=1, reverse=True, keys_only=True
            )
            if page.kvs == before:
                break
            before = page.kvs
        if before:
            return


class Started(NamedTuple):
    """A run whose task told when it was started; times are nanoseconds.

    decided: when its leader decided it.
    started: when its last attempt was started in a worker.
    deliveries: attempts of every kind.
    """

    due: int
    decided: int
    started: int
    deliveries: int


async def all_started(mesh: Mesh) -> list[Started]:
    """Reads the records of all runs that have ended."""
    found = []
    async with mesh.store() as store:
        start = keys.runs_prefix("default", NAME_PREFIX).removesuffix(b"/")
        end, token = prefix_end(start), b""
        while True:
            page = await store.scan(start, end, page_token=token)
            for kv in page.kvs:
                record = RunRecord.FromString(kv.value)
                if not record.result_json:
                    raise CliError(f"a run did not succeed: {record.run_id} {record.error.message}")
                found.append(
                    Started(
                        record.due_ns,
                        record.create_time_ns,
                        json.loads(record.result_json),
                        record.deliveries,
                    )
                )
            token = page.next_token
            if not token:
                return found


def by_run(before: Mapping[str, float], after: Mapping[str, float], runs: int) -> dict[str, int]:
    """Gives the processor time per run by service, in microseconds, and all services' together."""
    used = {role: after[role] - before[role] for role in after}
    used["all"] = sum(used.values())
    return {role: round(seconds / runs * 1e6) for role, seconds in used.items()}


def busy(
    before: Mapping[str, float], after: Mapping[str, float], seconds: float
) -> dict[str, float]:
    """Gives how many cores the services kept busy."""
    used = {role: after[role] - before[role] for role in after}
    used["all"] = sum(used.values())
    return {role: round(it / seconds, 2) for role, it in used.items()}
