"""Applies a whole file of jobs: checks all of it, refuses all of it, then writes in batches.

Bounded: besides the request and its answer it holds one batch of jobs as read. It gives way to
others every few jobs, because it shares the loop with everything else that this replica does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sexton.errors import InvalidArgument, TooLarge
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import checks
from sexton_coordinator.api.changes import Done, Plan
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.comparing import Comparer
from sexton_coordinator.api.definitions import (
    SPEC,
    Checked,
    changed_paths,
    check_spec,
    new_name,
    require_a_time,
)
from sexton_coordinator.api.editing import Editor, create_txn, first_record
from sexton_coordinator.api.notices import Notices
from sexton_coordinator.api.pruning import Pruner, Wanted, wanted_of
from sexton_coordinator.api.refusals import Refusals
from sexton_coordinator.api.showing import Viewer, full_message
from sexton_coordinator.jobs_store import (
    JobRef,
    LoadedJob,
    UnreadableJob,
    get_all,
)
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.writes import JobName
from sexton_core.policy import Definition
from sexton_records import keys
from sexton_records.times import timestamp
from sexton_runtime.kv.types import KeyValue, Outcome, Put, Txn
from sexton_runtime.kv.unknown import written

MAX_JOBS: Final = 10_000
MAX_BYTES: Final = 3 * 1024 * 1024
BATCH: Final = 100
_BATCH_BYTES: Final = 1024 * 1024
"""A commit message takes 4 MiB; one transaction has at most one."""

_ROUNDS: Final = 3
"""Times that what was refused is computed and committed together, before job by job: a replica that
is short of time may come too late with a whole batch."""

_YIELD_EVERY: Final = 20
"""Jobs checked in one go, some milliseconds: the leader's lease is renewed on the same loop."""

_EXTRAS_BYTES: Final = 512 * 1024
"""Of an answer of at most 4 MiB, for what GetJob tells too; the rest is 260 bytes per job."""
_TIME_BYTES: Final = 14

_NONE: Final = api.AppliedJob.CHANGE_NONE
_CREATED: Final = api.AppliedJob.CHANGE_CREATED
_UPDATED: Final = api.AppliedJob.CHANGE_UPDATED


@dataclass(slots=True, kw_only=True)
class _Entry:
    """One job on its way."""

    name: Name
    checked: Checked
    """As it would be of a new job."""
    fresh: JobName | None
    """The incarnation that it was checked for, until it is used."""
    applied: api.AppliedJob = field(default_factory=api.AppliedJob)
    loaded: LoadedJob | None = None
    """As it stands after it was applied, where it stood before."""
    txn: Txn | None = None
    """What is to be committed; None: nothing."""

    @property
    def key(self) -> bytes:
        return keys.job_key(self.name.namespace, self.name.job)


class _Work(NamedTuple):
    """What one request asks for. `comparer`: of one that writes nothing."""

    request: api.ApplyJobsRequest
    comparer: Comparer | None


class Applier:
    """Applies files."""

    def __init__(self, mesh: Mesh, editor: Editor, notices: Notices) -> None:
        self._mesh = mesh
        self._notices = notices
        self._pruner = Pruner(mesh, editor)
        self._editor = editor
        self._viewer = Viewer(mesh)

    async def apply(self, request: api.ApplyJobsRequest) -> api.ApplyJobsResponse:
        """Applies the jobs of a request.

        Raises:
            InvalidArgument: some can't be used; nothing was written.
            TooLarge: they, or those to be pruned, are too many; nothing was written.
            Overloaded, NoSpace, OutcomeUnknown: of a job in the middle; those before it are
                applied, and applying the same again goes on from there.

        """
        if len(request.jobs) > MAX_JOBS:
            raise TooLarge("jobs", len(request.jobs), MAX_JOBS, "jobs")
        if request.ByteSize() > MAX_BYTES:
            raise TooLarge("jobs", request.ByteSize(), MAX_BYTES)
        checks.note("source", request.source)
        read_time = self._mesh.now()
        entries = await self._check(request)
        pruning: tuple[Wanted, list[KeyValue]] | None = None
        if request.prune:
            wanted = wanted_of(request, {entry.name for entry in entries}, read_time)
            pruning = wanted, await self._pruner.find(wanted)
        work = _Work(request, Comparer(read_time) if request.validate_only else None)
        answer = api.ApplyJobsResponse(read_time=timestamp(read_time))
        await self._apply_all(entries, work, answer)
        if pruning is not None:
            answer.jobs.extend(await self._pruner.prune(*pruning, work.comparer))
        return answer

    async def _apply_all(
        self, entries: Sequence[_Entry], work: _Work, answer: api.ApplyJobsResponse
    ) -> None:
        """Applies batch by batch; one is committed while the next is read and computed."""
        committing: asyncio.Task[None] | None = None
        before: Sequence[_Entry] = ()
        room = _EXTRAS_BYTES
        try:
            for batch in [*_batches(entries), ()]:
                await self._prepare(batch, work)
                if committing is not None:
                    await committing
                await self._notices.add(*(entry.applied.job for entry in before))
                for entry in before:
                    room = _trim(entry.applied, room)
                    answer.jobs.append(entry.applied)
                    entry.loaded = entry.txn = None
                before = batch
                if not work.request.validate_only:
                    committing = asyncio.create_task(self._commit(batch, work))
        except asyncio.CancelledError:
            if committing is not None:
                committing.cancel()
            raise
        finally:
            if committing is not None:
                await asyncio.gather(committing, return_exceptions=True)

    async def _check(self, request: api.ApplyJobsRequest) -> list[_Entry]:
        """Checks everything, as it stands before anything is written."""
        refusals = Refusals("job", len(request.jobs))
        entries: list[_Entry] = []
        seen: set[Name] = set()
        mesh = self._mesh
        for index, job in enumerate(request.jobs):
            if index % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
            with refusals.collecting(f"jobs[{index}]", job.name):
                name = checks.job_name("name", job.name)
                if name in seen:
                    raise InvalidArgument("name", job.name, "each name once")
                seen.add(name)
                fresh = new_name(mesh.jobs, name, mesh.randomness)
                checked = check_spec(mesh.jobs, fresh, job.spec, 1, mesh.now())
                entries.append(_Entry(name=name, checked=checked, fresh=fresh))
        refusals.refuse()
        now = mesh.now()
        over = [
            (number, entry)
            for number, entry in enumerate(entries)
            if (schedule := entry.checked.definition.schedule) is not None
            and schedule.next_after(now) is None
        ]
        kvs = await get_all(mesh.store, [entry.key for _, entry in over])
        for (number, entry), kv in zip(over, kvs, strict=True):
            before = records.JobRecord.FromString(kv.value).spec.schedules
            if kv.create_revision and list(before) == list(entry.checked.spec.schedules):
                continue  # its times are over, and it may still be edited
            with refusals.collecting(f"jobs[{number}]", str(entry.name)):
                require_a_time(entry.checked.definition, now)
        refusals.refuse()
        return entries

    async def _prepare(self, batch: Sequence[_Entry], work: _Work) -> None:
        """Reads a batch and computes what is to be written."""
        mesh = self._mesh
        kvs = await get_all(mesh.store, [entry.key for entry in batch])
        refs = [
            JobRef(records.JobRecord.FromString(kv.value).uid, *entry.name[:2])
            for entry, kv in zip(batch, kvs, strict=True)
            if kv.create_revision
        ]
        found = dict(zip((ref.uid for ref in refs), await mesh.jobs.load(refs), strict=True))
        by_name = {
            (job.name.namespace, job.name.job): job
            for job in found.values()
            if isinstance(job, LoadedJob)
        }
        unreadable = {uid for uid, job in found.items() if isinstance(job, UnreadableJob)}
        for number, (entry, kv) in enumerate(zip(batch, kvs, strict=True)):
            if number % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
            if unreadable and records.JobRecord.FromString(kv.value).uid in unreadable:
                await self._editor.changer.load(entry.name)  # raises, saying why
            loaded = by_name.get(entry.name[:2])
            definition = self._plan(entry, loaded, work)
            if work.comparer is not None and definition is not None:
                before = None if loaded is None else loaded.job.current
                await work.comparer.compare(entry.applied, before, definition)
        await self._add_live_runs(batch)

    def _plan(self, entry: _Entry, loaded: LoadedJob | None, work: _Work) -> Definition | None:
        """Computes what is to be written; gives the definition that is new."""
        entry.loaded, entry.txn = None, None
        if loaded is None:
            return self._plan_new(entry, work)
        after, source = loaded, work.request.source
        change_made = _NONE
        if loaded.record.spec != entry.checked.spec:
            edit = self._editor.edit(loaded, entry.checked.spec, source)
            assert edit is not None, "it differs"
            after, entry.txn = edit
            change_made = _UPDATED
        elif source and source != loaded.record.source:
            after, entry.txn = self._editor.touch(loaded, source)
        entry.loaded = after
        message = full_message(
            after.name,
            after.record,
            after.state,
            after.job.current,
            revision=after.job_revision,
            now=self._mesh.now(),
        )
        entry.applied = api.AppliedJob(job=message, change=change_made)
        if change_made is _NONE:
            return None
        entry.applied.changed_paths.extend(changed_paths(loaded.record.spec, after.record.spec))
        return after.job.current

    def _plan_new(self, entry: _Entry, work: _Work) -> Definition:
        """Computes the commit of a new job."""
        mesh = self._mesh
        now = mesh.now()
        name, checked = entry.fresh, entry.checked
        if name is None or any(schedule.max_runs for schedule in checked.spec.schedules):
            # Drawn anew after a commit that may yet arrive; and runs are counted from now on.
            name = new_name(mesh.jobs, entry.name, mesh.randomness)
            checked = check_spec(mesh.jobs, name, checked.spec, 1, now)
        entry.fresh = None
        with checks.refusing(SPEC):
            record, change = first_record(name, checked, now)
        record.source = work.request.source
        entry.txn = create_txn(name, record, change)
        message = full_message(name, record, change.state, checked.definition, revision=0, now=now)
        entry.applied = api.AppliedJob(job=message, change=_CREATED)
        return checked.definition

    async def _add_live_runs(self, batch: Sequence[_Entry]) -> None:
        await self._viewer.add_live_runs(
            (entry.applied.job, entry.loaded.name.uid, entry.loaded.state.live)
            for entry in batch
            if entry.loaded is not None
        )

    async def _commit(self, batch: Sequence[_Entry], work: _Work) -> None:
        """Commits what was computed for a batch; computes anew what was refused, or too late."""
        left = await self._commit_once(batch)
        for _ in range(_ROUNDS):
            if not left:
                return
            await self._prepare(left, work)
            left = await self._commit_once(left)
        for entry in left:
            await self._apply_alone(entry, work)

    async def _commit_once(self, batch: Sequence[_Entry]) -> list[_Entry]:
        """Commits what is to be written; gives what was not."""
        left: list[_Entry] = []
        for some in _by_size([entry for entry in batch if entry.txn is not None]):
            plans = [
                Plan(txn=entry.txn, proof=written(entry.txn, entry.key), answer=str)
                for entry in some
                if entry.txn is not None
            ]
            results = await self._editor.changer.commit_all(plans)
            for entry, result in zip(some, results, strict=True):
                if result.outcome is Outcome.COMMITTED:
                    entry.applied.job.etag = str(result.revision)
                else:
                    left.append(entry)
        return left

    async def _apply_alone(self, entry: _Entry, work: _Work) -> None:
        """Applies a job whose commit met another change."""

        async def compute() -> Plan[str] | Done[str]:
            await self._prepare([entry], work)
            txn = entry.txn
            if txn is None:
                return Done(entry.applied.job.etag)
            return Plan(txn=txn, proof=written(txn, entry.key), answer=str)

        entry.applied.job.etag = await self._editor.changer.carry_out(str(entry.name), compute)


def _batches(entries: Sequence[_Entry]) -> Iterator[Sequence[_Entry]]:
    for first in range(0, len(entries), BATCH):
        yield entries[first : first + BATCH]


def _by_size(entries: Sequence[_Entry]) -> Iterator[Sequence[_Entry]]:
    """Yields entries whose commits fit one message."""
    some: list[_Entry] = []
    size = 0
    for entry in entries:
        assert entry.txn is not None, "only what is to be committed"
        own = sum(len(op.key) + len(op.value) for op in entry.txn.then if isinstance(op, Put))
        if some and size + own > _BATCH_BYTES:
            yield some
            some, size = [], 0
        some.append(entry)
        size += own
    if some:
        yield some


def _trim(applied: api.AppliedJob, room: int) -> int:
    """Leaves out what GetJob tells too where an answer would grow too large.

    Returns the bytes that are left for the jobs after it.
    """
    job = applied.job
    for times in (applied.gained_times, applied.lost_times):
        room -= _TIME_BYTES * len(times)
        if room < 0:
            del times[:]
            room = 0
    for texts, notice in (
        (applied.changed_paths, "*"),
        (job.warnings, "there are warnings; GetJob has them"),
        (job.notices, "there are notices; GetJob has them"),
        (job.live_runs, ""),
    ):
        size = sum(len(text.encode()) + 3 for text in texts)
        if size > room:
            del texts[:]
            texts.extend(filter(None, [notice]))
        else:
            room -= size
    for name, size in (("source", len(job.source.encode())), ("spec", job.spec.ByteSize())):
        if size > room:
            job.ClearField(name)  # type: ignore[arg-type]  # both are fields of a job
        else:
            room -= size
    return room
