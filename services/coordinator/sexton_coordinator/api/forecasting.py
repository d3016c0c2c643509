"""Counts the nominal times of all active jobs by interval: the load to come.

Jobs with equal schedules are counted once, however many they are, because few schedules of many
jobs are the rule. All else, the reading of the jobs included, is bounded by time, and the answer
then says so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Final, NamedTuple

from sexton.errors import InvalidArgument
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import checks
from sexton_coordinator.mesh import Mesh
from sexton_core.errors import CoreError
from sexton_core.instants import DAY, HOUR, SECOND, Duration, Instant, format_instant
from sexton_core.schedules import AnySpec, JobIdentity, build, depends_on_job
from sexton_records import keys
from sexton_records.schedules import decode_schedules
from sexton_records.times import timestamp
from sexton_runtime.kv.types import KeyValue, prefix_end

MAX_RANGE: Final[Duration] = 31 * DAY
_DEFAULT_RANGE: Final[Duration] = 24 * HOUR
MAX_INTERVAL_S: Final = 86_400
_DEFAULT_INTERVAL_S: Final = 60
MAX_INTERVALS: Final = 50_000
MAX_TIMES: Final = 10_000_000
WORK_S: Final = 2.0
"""How much is counted, and for how long, before the numbers are lower bounds."""
READ_S: Final = 4.0
MAX_GROUPS: Final = 50_000
"""How long jobs are read, and how many different schedules are kept, likewise."""

_NAMED: Final = 3
_NAMES_BYTES: Final = 2 * 1024 * 1024
"""Of an answer of at most 4 MiB, for the names of jobs: those of the fullest intervals."""
_STEPS_AT_ONCE: Final = 500
"""Nominal times computed in one go, some milliseconds."""
_GROUPS_AT_ONCE: Final = 10
_JOBS_AT_ONCE: Final = 200


class _Range(NamedTuple):
    """From `start` (inclusive) to `end` (exclusive); intervals begin at multiples of `length`."""

    start: Instant
    end: Instant
    length: Duration


@dataclass(slots=True)
class _Group:
    """Jobs that are due at the same times; `identity`: of the first one."""

    spec: AnySpec
    identity: JobIdentity
    jobs: int = 0
    names: list[str] = field(default_factory=list)
    """The first few."""


class _Shared(NamedTuple):
    """Schedules as many jobs may have them. `by_job`: their times are each job's own."""

    spec: AnySpec
    by_job: bool


@dataclass(slots=True)
class _Count:
    """What has been counted so far."""

    times: Counter[int] = field(default_factory=Counter)
    """Nominal times by the number of their interval."""
    fullest: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    """By interval: the jobs with most of them, and how many."""
    total: int = 0
    jobs: int = 0
    truncated: bool = False


class Forecaster:
    """Forecasts load."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh

    async def forecast(self, request: api.ForecastLoadRequest) -> api.ForecastLoadResponse:
        """Counts what is due in a range.

        Raises:
            InvalidArgument: a field can't be used.

        """
        parent = checks.parent_name("parent", request.parent, jobs=False)
        asked = _range(request, self._mesh.now())
        prefix = keys.JOBS if parent is None else keys.namespace_prefix(parent.namespace)
        groups, all_read = await self._groups(prefix)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WORK_S
        count = _Count(truncated=not all_read)
        ended = False
        for number, group in enumerate(sorted(groups, key=lambda group: -group.jobs)):
            if number % _GROUPS_AT_ONCE == 0:
                await asyncio.sleep(0)
            ended = ended or loop.time() > deadline or count.total > MAX_TIMES
            if ended:
                count.truncated = True
                break
            try:
                schedule = build(group.spec, group.identity)
            except CoreError:
                continue  # it can't be decided about either
            found: Counter[int] = Counter()
            t, steps = asked.start - 1, 0
            while (following := schedule.next_after(t)) is not None:
                if following >= asked.end or ended:
                    break
                t, steps = following, steps + 1
                found[following // asked.length] += 1
                if steps % _STEPS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                    ended = loop.time() > deadline
            count.truncated = count.truncated or ended
            _add(count, group, found)
        return _response(count, asked)

    async def _groups(self, prefix: bytes) -> tuple[list[_Group], bool]:
        """Reads the active jobs with a schedule; gives them by what they are due at.

        And whether these are all.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READ_S
        groups: dict[Hashable, _Group] = {}
        specs: dict[bytes, _Shared | None] = {}
        token = b""
        while True:
            page = await self._mesh.store.scan(prefix, prefix_end(prefix), page_token=token)
            for number, kv in enumerate(page.kvs):
                if number % _JOBS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                _group(kv, groups, specs)
            token = page.next_token
            if not token or loop.time() > deadline or len(groups) > MAX_GROUPS:
                return list(groups.values()), not token


def _group(
    kv: KeyValue, groups: dict[Hashable, _Group], specs: dict[bytes, _Shared | None]
) -> None:
    """Counts a job among those with equal schedules, which are read once."""
    record = records.JobRecord.FromString(kv.value)
    if record.paused or not record.spec.schedules:
        return
    asked = b"".join(schedule.SerializeToString() for schedule in record.spec.schedules)
    if asked not in specs:
        try:
            spec = decode_schedules(record.spec.schedules)
        except CoreError:
            spec = None
        specs[asked] = None if spec is None else _Shared(spec, depends_on_job(spec))
    shared = specs[asked]
    if shared is None:
        return
    namespace, job = keys.parse_job_key(kv.key)
    key: Hashable = kv.key if shared.by_job else asked
    group = groups.get(key)
    if group is None:
        identity = JobIdentity(
            namespace=namespace, name=job, uid=record.uid, since=record.effective_time_ns
        )
        group = groups[key] = _Group(shared.spec, identity)
    group.jobs += 1
    if len(group.names) < _NAMED:
        group.names.append(f"namespaces/{namespace}/jobs/{job}")


def _range(request: api.ForecastLoadRequest, now: Instant) -> _Range:
    start = now
    if request.HasField("start_time"):
        start = checks.instant("start_time", request.start_time)
    end = start + _DEFAULT_RANGE
    if request.HasField("end_time"):
        end = checks.instant("end_time", request.end_time)
    if not start < end <= start + MAX_RANGE:
        expected = f"a time later than {format_instant(start)}, by at most 31 days"
        raise InvalidArgument("end_time", format_instant(end), expected)
    if not 0 <= request.interval_s <= MAX_INTERVAL_S:
        expected = f"1 to {MAX_INTERVAL_S:,} seconds, or 0 for {_DEFAULT_INTERVAL_S}"
        raise InvalidArgument("interval_s", request.interval_s, expected)
    length = (request.interval_s or _DEFAULT_INTERVAL_S) * SECOND
    if -(-(end - start) // length) > MAX_INTERVALS:
        least = -(-(end - start) // (MAX_INTERVALS * SECOND))
        expected = f"at least {least} seconds: a range has at most {MAX_INTERVALS:,} intervals"
        raise InvalidArgument("interval_s", length // SECOND, expected)
    return _Range(start, end, length)


def _add(count: _Count, group: _Group, found: Counter[int]) -> None:
    """Adds what a group's schedule asks for, once for each of its jobs."""
    count.jobs += group.jobs
    count.total += group.jobs * found.total()
    for interval, times in found.items():
        count.times[interval] += group.jobs * times
        fullest = count.fullest.setdefault(interval, [])
        if len(fullest) < _NAMED or times > -fullest[-1][0]:
            fullest += [(-times, name) for name in group.names]
            fullest.sort()
            del fullest[_NAMED:]


def _response(count: _Count, asked: _Range) -> api.ForecastLoadResponse:
    response = api.ForecastLoadResponse(
        total=count.total, jobs=count.jobs, truncated=count.truncated
    )
    named: set[int] = set()
    room = _NAMES_BYTES
    for interval in nlargest(len(count.times), count.times, key=count.times.__getitem__):
        room -= sum(len(name) + 3 for _, name in count.fullest[interval])
        if room < 0:
            break
        named.add(interval)
    for interval in sorted(count.times):
        names = [name for _, name in count.fullest[interval]] if interval in named else []
        response.intervals.append(
            api.LoadInterval(
                start_time=timestamp(interval * asked.length),
                count=count.times[interval],
                jobs=names,
            )
        )
    return response
