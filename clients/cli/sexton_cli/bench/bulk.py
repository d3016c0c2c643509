"""A store with a long past, written in bulk: jobs and ended runs as a mesh would have left them.

Records go straight through the disk's own steps, some twenty thousand at once, because running a
million runs takes minutes and what is measured afterwards is the reading of them.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import job_pb2, run_pb2
from sexton_cli.bench.tasks import PAYLOAD
from sexton_coordinator.writes import JobName, state_ops
from sexton_core.ids import UID_ENTROPY_BYTES, make_uid, scheduled_run_id
from sexton_core.instants import DAY, MINUTE, Duration, Instant
from sexton_core.policy import Definition, JobState
from sexton_core.policy.state import Rule
from sexton_core.schedules import JobIdentity, ScheduleCache
from sexton_records import keys
from sexton_records.spec import canonical, decode_definition, run_template
from sexton_runtime.clock import SystemClock
from sexton_runtime.kv.types import Put
from sexton_runtime.randomness import SystemRandomness
from sexton_store import cluster as clusters
from sexton_store.disk import WriteBatch
from sexton_store.lmdb_disk import LmdbDisk
from sexton_store.timekeeper import Timekeeper

BUSY_RUNS: Final = 1_000
"""Of a job that is due every minute: one in a thousand is. The others are due once a day."""
FAILED_ONE_IN: Final = 500
_BUSY_ONE_IN: Final = 1_000
_DAILY: Final = 1_000
"""Distinct daily schedules, which the jobs share."""
_AT_ONCE: Final = 20_000
"""Records of one durable step."""
_AREAS: Final = ("billing", "catalog", "mail", "orders", "reports", "search", "stock", "users")

KeyAndValue = tuple[bytes, bytes]


class _Job(NamedTuple):
    name: JobName
    definition: Definition
    spec: job_pb2.JobSpec
    period: Duration
    runs: int


def fill(folder: Path, jobs: int, runs: int) -> None:
    """Writes a new store with so many jobs, and about so many runs that have ended.

    Every job is active and due at its next time, so that a mesh can go on from here.
    """
    asyncio.run(_fill(folder, jobs, runs))


def job_id(number: int) -> str:
    """Names a job: busy ones begin with `busy-`."""
    area = "busy" if number % _BUSY_ONE_IN == 0 else _AREAS[number % len(_AREAS)]
    return f"{area}-{number:06}"


async def _fill(folder: Path, jobs: int, runs: int) -> None:
    clock = SystemClock()
    time = Timekeeper(clock, None)
    cluster = clusters.create(SystemRandomness(), coordinator_shards=1, queue_shards=1)
    now = time.mesh_ns()
    made = list(_jobs(jobs, runs, now))
    disk = LmdbDisk.open(folder)
    try:
        for revision, step in enumerate(_steps(_records(made, now)), 1):
            puts = sorted([(key, value, revision, revision, 1) for key, value in step])
            record = clusters.encode(cluster, revision, time.mesh.record())
            await disk.write(WriteBatch(puts, (), record), use_reserve=False)
    finally:
        await disk.close()


def _jobs(jobs: int, runs: int, now: Instant) -> Iterator[_Job]:
    """Makes the jobs; those that are busy have their part of the runs first."""
    numbers = random.Random(1)  # noqa: S311 - the same jobs in each run
    busy = len(range(0, jobs, _BUSY_ONE_IN))
    each = max(0, runs - busy * BUSY_RUNS) // max(1, jobs - busy)
    cache = ScheduleCache()
    written_out: dict[str, tuple[job_pb2.JobSpec, Definition]] = {}
    for number in range(jobs):
        uid = make_uid(numbers.randbytes(UID_ENTROPY_BYTES))
        is_busy = number % _BUSY_ONE_IN == 0
        cron = "* * * * *" if is_busy else _daily(number % _DAILY)
        if cron not in written_out:
            spec = _spec(cron)
            identity = JobIdentity(namespace="default", name="job", uid=uid, since=now)
            definition = decode_definition(spec, 1, identity, cache)
            written_out[cron] = canonical(spec, definition), definition
        spec, definition = written_out[cron]
        name = JobName("default", job_id(number), uid, keys.shard_of(uid, 1))
        period, many = (MINUTE, BUSY_RUNS) if is_busy else (DAY, each)
        yield _Job(name, definition, spec, period, many)


def _spec(cron: str) -> job_pb2.JobSpec:
    spec = job_pb2.JobSpec(description="one of very many")
    spec.schedules.add(cron=cron, time_zone="UTC")
    spec.task.python.task = "nothing"
    spec.task.python.args_json = json.dumps(PAYLOAD)
    return spec


def _daily(number: int) -> str:
    return f"{number % 60} {number // 60 % 24} * * *"


def _records(jobs: Iterable[_Job], now: Instant) -> Iterator[KeyAndValue]:
    for job in jobs:
        yield from _definition(job, now)
        yield from _past(job, now)


def _definition(job: _Job, now: Instant) -> Iterator[KeyAndValue]:
    """Gives the records of a job as its creation long ago and its last fire left them."""
    name, schedule = job.name, job.definition.schedule
    assert schedule is not None, "each of them has one"
    created = now - 60 * DAY
    record = records.JobRecord(
        uid=name.uid, version=1, spec=job.spec, create_time_ns=created, update_time_ns=created,
        effective_time_ns=created,
    )  # fmt: skip
    yield name.job_key, record.SerializeToString()
    armed = schedule.next_after(now)
    state = JobState(cursor=now, armed=armed, rules=(Rule(created, 1),))
    for op in state_ops(name, state, armed, None):
        assert isinstance(op, Put), "nothing stood there before"
        yield op.key, op.value


def _past(job: _Job, now: Instant) -> Iterator[KeyAndValue]:
    """Gives the newest runs of a job, all ended, newest first."""
    name, schedule = job.name, job.definition.schedule
    assert schedule is not None, "each of them has one"
    template = run_template(name.namespace, name.job, name.uid, job.spec, job.definition)
    begin = records.RunRecord(template=template).SerializeToString()
    numbers = random.Random(name.job)  # noqa: S311 - the same runs in each run
    nominal = (schedule.next_after(now) or now) - job.period
    for _ in range(job.runs):
        failed = numbers.randrange(FAILED_ONE_IN) == 0
        late, took = numbers.randrange(5_000_000, 60_000_000), numbers.randrange(1, 400) * 10**7
        run_id = scheduled_run_id(name.uid, nominal)
        start, end = nominal + late, nominal + late + took
        state = run_pb2.RUN_STATE_FAILED if failed else run_pb2.RUN_STATE_SUCCEEDED
        run = records.RunRecord(
            run_id=run_id, origin=run_pb2.RUN_ORIGIN_SCHEDULE, nominal_ns=nominal, due_ns=nominal,
            create_time_ns=nominal + 2_000_000, state=state, not_before_ns=nominal,
            handle_not_before_ns=nominal, failures=int(failed), deliveries=1, started=True,
            completed=True, token=1, end_time_ns=end,
        )  # fmt: skip
        attempt = run.attempts.add(
            number=1, token=1, session="s-past", worker="worker-1", assign_time_ns=start - 10**6,
            start_time_ns=start, end_time_ns=end, execution_ms=took // 10**6,
            state=run_pb2.ATTEMPT_STATE_FAILED if failed else run_pb2.ATTEMPT_STATE_SUCCEEDED,
        )  # fmt: skip
        if failed:
            run.error.kind, run.error.message = "ConnectionError", "the warehouse does not answer"
            attempt.error.CopyFrom(run.error)
        ended = records.EndedRecord(
            namespace=name.namespace, job=name.job, state=state, nominal_ns=nominal
        ).SerializeToString()
        yield (
            keys.run_key(name.namespace, name.job, name.uid, run_id),
            begin + run.SerializeToString(),
        )
        yield keys.ended_key(name.shard, end, name.uid, run_id), ended
        if failed:
            yield keys.dead_key(0, end, name.uid, run_id), ended
        nominal -= job.period


def _steps(found: Iterator[KeyAndValue]) -> Iterator[list[KeyAndValue]]:
    step: list[KeyAndValue] = []
    for each in found:
        step.append(each)
        if len(step) >= _AT_ONCE:
            yield step
            step = []
    if step:
        yield step
