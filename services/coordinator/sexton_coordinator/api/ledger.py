"""The ledger of a job: what became, or will become, of each nominal time of a range.

Nominal times come from the versions that ruled, one after the other; what became of each from the
same function that `why` asks. Read in the order state, buffer, decisions, runs: what leaves one of
them while it is read is found in a later one.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from sexton.errors import InvalidArgument, NotFound
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import checks
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.former import Incarnations
from sexton_coordinator.api.run_finding import FoundRun, found_run
from sexton_coordinator.api.showing import handle_key
from sexton_coordinator.api.tokens import make_token, read_token
from sexton_coordinator.api.versions import Versions
from sexton_coordinator.jobs_store import LoadedJob, get_all
from sexton_coordinator.mesh import Mesh
from sexton_core.ids import RunId, scheduled_run_id
from sexton_core.instants import MAX_INSTANT, Instant, format_instant
from sexton_core.policy import Evidence, Job, RecordedRun, Standing, standing_of
from sexton_core.policy.state import DecisionRange
from sexton_core.policy.timeline import Timeline
from sexton_core.words import Decision, Origin, Reason
from sexton_records import keys
from sexton_records.runs import STATE_OF, run_message
from sexton_records.state import decode_decision
from sexton_records.times import timestamp
from sexton_runtime.kv.types import KeyValue, prefix_end

CHUNK: Final = 50
"""Nominal times looked up together."""
MAX_ANSWER_BYTES: Final = 2 * 1024 * 1024
"""A page ends when it has grown to this."""
_RANGES_PER_PAGE: Final = 100

_DUE: Final = "due"
_FORECAST: Final = "forecast"
_UNDECIDED: Final = frozenset({_DUE, _FORECAST})
"""Of a deleted job nobody will decide these any more."""


class _Query(NamedTuple):
    """What is asked for: nominal times from `first` to `last`, both included."""

    name: Name
    first: Instant | None
    last: Instant
    size: int
    position: Instant | None
    descending: bool
    key: tuple[object, ...]


class LedgerReader:
    """Lists decisions."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._versions = Versions(mesh)
        self._incarnations = Incarnations(mesh)

    async def page(self, request: api.ListDecisionsRequest) -> api.ListDecisionsResponse:
        """Returns a page, and where the next one begins.

        Raises:
            InvalidArgument: a field can't be used, or the token is of another query.
            NotFound: there is no such job, and none that is still kept.

        """
        query = _query(request, self._mesh.now())
        found = await self._incarnations.latest(query.name)
        if found is None:
            raise NotFound("job", request.name)
        loaded = found.loaded
        if found.deleted_at is not None:
            query = query._replace(last=min(query.last, found.deleted_at))
        since = loaded.job.created_at + 1
        first = since if query.first is None else max(query.first, since)
        job, rules = await self._versions.history(loaded, first)
        timeline = Timeline(job, rules)
        times = _times(timeline, query._replace(first=max(first, timeline.begins + 1)))
        now = self._mesh.now()
        response = api.ListDecisionsResponse()
        size_bytes = 0
        last: Instant | None = None
        while len(response.entries) < query.size and size_bytes <= MAX_ANSWER_BYTES:
            chunk = list(islice(times, min(CHUNK, query.size - len(response.entries))))
            if not chunk:
                return response
            evidence = await self._evidence(loaded, chunk)
            for nominal in chunk:
                entry = _entry(job, loaded, timeline, nominal, now=now, found=evidence)
                if found.deleted_at is not None and entry.decision in _UNDECIDED:
                    entry.decision, entry.reason = "", Reason.DELETED
                response.entries.append(entry)
                size_bytes += entry.ByteSize()
                last = nominal
                if size_bytes > MAX_ANSWER_BYTES:
                    break
            await asyncio.sleep(0)
        assert last is not None, "a page that is full has entries"
        following = query._replace(first=max(first, timeline.begins + 1), position=last)
        if next(_times(timeline, following), None) is not None:
            response.next_page_token = make_token(query.key, [str(last)])
        return response

    async def _evidence(self, loaded: LoadedJob, chunk: Sequence[Instant]) -> _Evidence:
        """Reads what the store holds about some nominal times, in either order."""
        decided = [nominal for nominal in sorted(chunk) if nominal <= loaded.state.cursor]
        if not decided:
            return _Evidence((), {})
        ranges = await self._ranges(loaded.name.uid, decided[0], decided[-1])
        found = _Evidence(ranges, {})
        waiting = {entry.run_id for entry in loaded.state.buffered}
        wanted = [
            scheduled_run_id(loaded.name.uid, nominal)
            for nominal in decided
            if (recorded := found.range_of(nominal)) is None
            or recorded.decision is Decision.EXCLUDED
        ]
        runs = await self._runs(loaded, [run_id for run_id in wanted if run_id not in waiting])
        waited = await self._runs(loaded, [run_id for run_id in wanted if run_id in waiting])
        return found._replace(runs=runs | waited)

    async def _ranges(self, uid: str, first: Instant, last: Instant) -> list[DecisionRange]:
        """Returns the ranges of scheduled times that touch first..last, in order."""
        start, end = keys.decisions_from(uid, first), prefix_end(keys.decisions_prefix(uid))
        found: list[DecisionRange] = []
        token = b""
        while True:
            page = await self._mesh.store.scan(start, end, limit=_RANGES_PER_PAGE, page_token=token)
            for kv in page.kvs:
                record = decode_decision(records.DecisionRecord.FromString(kv.value))
                if record.origin is Origin.SCHEDULE:
                    if record.first > last:
                        return found
                    found.append(record)
            token = page.next_token
            if not token:
                return found

    async def _runs(self, loaded: LoadedJob, run_ids: Sequence[RunId]) -> dict[RunId, FoundRun]:
        """Reads runs of the job: in flight, then ended, as they go from one to the other."""
        name = loaded.name
        live = {handle.run_id: handle for handle in loaded.state.live}
        handles = {
            run_id: handle_key(self._mesh, name.uid, live[run_id])
            for run_id in run_ids
            if run_id in live
        }
        found: dict[RunId, FoundRun] = {}

        async def read(wanted: dict[RunId, bytes]) -> None:
            kvs: list[KeyValue] = await get_all(self._mesh.store, list(wanted.values()))
            for run_id, kv in zip(wanted, kvs, strict=True):
                if kv.create_revision:
                    found[run_id] = found_run(kv, handles.get(run_id, b""))

        await read(handles)
        await read(
            {
                run_id: keys.run_key(name.namespace, name.job, name.uid, run_id)
                for run_id in run_ids
                if run_id not in found
            }
        )
        return found


class _Evidence(NamedTuple):
    """What the store holds about some nominal times. `ranges`: in the order of their ends."""

    ranges: Sequence[DecisionRange]
    runs: dict[RunId, FoundRun]

    def range_of(self, nominal: Instant) -> DecisionRange | None:
        """Returns the range that contains a nominal time."""
        at = bisect_left(self.ranges, nominal, key=lambda record: record.last)
        if at < len(self.ranges) and self.ranges[at].first <= nominal:
            return self.ranges[at]
        return None


def _query(request: api.ListDecisionsRequest, now: Instant) -> _Query:
    name = checks.job_name("name", request.name)
    size = checks.page_size(request.page_size)
    first, last = None, now
    if request.HasField("start_time"):
        first = checks.instant("start_time", request.start_time)
    if request.HasField("end_time"):
        last = checks.instant("end_time", request.end_time)
        if first is not None and last < first:
            expected = f"a time at or after {format_instant(first)}"
            raise InvalidArgument("end_time", format_instant(last), expected)
    key = (
        "ListDecisions",
        request.name,
        first,
        last if request.HasField("end_time") else None,
        request.descending,
    )
    position = None
    if request.page_token:
        (text,) = read_token(key, request.page_token, (1,))
        position = int(text)
    return _Query(name, first, last, size, position, request.descending, key)


def _times(timeline: Timeline, query: _Query) -> Iterator[Instant]:
    """Yields the nominal times that are asked for behind the position, calendars aside."""
    assert query.first is not None, "it was set to where the job's times begin"
    if query.descending:
        nominal = query.position if query.position is not None else min(query.last, MAX_INSTANT) + 1
        while (before := timeline.previous_before(nominal, unfiltered=True)) is not None:
            if before < query.first:
                return
            nominal = before
            yield nominal
        return
    nominal = query.position if query.position is not None else query.first - 1
    while (following := timeline.next_after(nominal, unfiltered=True)) is not None:
        if following > query.last:
            return
        nominal = following
        yield nominal


def _entry(
    job: Job,
    loaded: LoadedJob,
    timeline: Timeline,
    nominal: Instant,
    *,
    now: Instant,
    found: _Evidence,
) -> api.LedgerEntry:
    """Returns what became, or will become, of one nominal time."""
    run = found.runs.get(scheduled_run_id(job.uid, nominal))
    recorded = found.range_of(nominal)
    evidence = Evidence(
        None
        if run is None
        else RecordedRun(run.record.run_id, STATE_OF[run.record.state], run.record.create_time_ns),
        recorded,
    )
    entry = api.LedgerEntry(
        nominal_time=timestamp(nominal),
        job_version=timeline.stretch(nominal).definition.version,
    )
    match standing_of(job, loaded.state, timeline, nominal, now=now, evidence=evidence):
        case Standing.FIRED:
            assert run is not None, "it is what says so"
            entry.decision = Decision.FIRED
            entry.reason = run.record.reason
            entry.job_version = run.record.template.version
            entry.run.CopyFrom(run_message(run.record, run.revision, full=False))
            entry.decide_time.CopyFrom(timestamp(run.record.create_time_ns))
        case Standing.RECORDED:
            assert recorded is not None, "it is what says so"
            entry.decision = recorded.decision
            entry.reason = recorded.reason
            entry.blocked_by = _run_name(loaded, recorded.blocked_by)
            entry.decide_time.CopyFrom(timestamp(recorded.decided_at))
        case Standing.EXCLUDED:
            entry.decision = Decision.EXCLUDED
            entry.reason = Reason.CALENDAR
        case Standing.BUFFERED:
            run_id = scheduled_run_id(job.uid, nominal)
            start = next(s for s in loaded.state.buffered if s.run_id == run_id)
            entry.decision = Decision.BUFFERED
            entry.reason = Reason.WAITS
            entry.blocked_by = _run_name(loaded, start.waits_for)
            entry.decide_time.CopyFrom(timestamp(start.buffered_at))
        case Standing.FORGOTTEN:
            pass
        case Standing.PAUSED:
            entry.decision = _DUE if timeline.due(nominal) <= now else _FORECAST
            entry.reason = Reason.PAUSED
        case Standing.OVERDUE:
            entry.decision = _DUE
        case Standing.AHEAD:
            entry.decision = _FORECAST
    return entry


def _run_name(loaded: LoadedJob, run_id: RunId | None) -> str:
    name = loaded.name
    return str(Name(name.namespace, name.job, run_id)) if run_id else ""
