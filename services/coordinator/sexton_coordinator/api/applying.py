"""Applies a whole file of jobs: checks all of it, refuses all of it, then writes in batches.

Bounded: besides the request and its answer it holds one batch of jobs as read. It gives way to
others every few jobs, because it shares the loop with everything else that this replica does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from sexton.errors import InvalidArgument, OutcomeUnknown, TooLarge
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import checks
from sexton_coordinator.api.changes import Done, Plan
from sexton_coordinator.api.checks import Name
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
from sexton_coordinator.api.refusals import Refusals
from sexton_coordinator.api.showing import Viewer, full_message
from sexton_coordinator.jobs_store import JobRef, LoadedJob, UnreadableJob, get_all
from sexton_coordinator.mesh import Mesh
from sexton_records import keys
from sexton_records.times import timestamp
from sexton_runtime.kv.types import Outcome, Put, Txn, TxnResult
from sexton_runtime.kv.unknown import resolve, written

MAX_JOBS: Final = 10_000
MAX_BYTES: Final = 3 * 1024 * 1024
BATCH: Final = 100
_BATCH_BYTES: Final = 1024 * 1024
"""A commit message takes 4 MiB; one transaction has at most one."""

_YIELD_EVERY: Final = 20
"""Jobs checked in one go, some milliseconds: the leader's lease is renewed on the same loop."""

_EXTRAS_BYTES: Final = 1024 * 1024
"""Of an answer of at most 4 MiB, for what GetJob tells too; the rest is 260 bytes per job."""

_NONE: Final = api.AppliedJob.CHANGE_NONE
_CREATED: Final = api.AppliedJob.CHANGE_CREATED
_UPDATED: Final = api.AppliedJob.CHANGE_UPDATED


@dataclass(slots=True, kw_only=True)
class _Entry:
    """One job on its way."""

    name: Name
    checked: Checked
    """As it would be of a new job."""
    applied: api.AppliedJob = field(default_factory=api.AppliedJob)
    loaded: LoadedJob | None = None
    """As it stands after it was applied, where it stood before."""
    txn: Txn | None = None
    """What is to be committed; None: nothing."""

    @property
    def key(self) -> bytes:
        return keys.job_key(self.name.namespace, self.name.job)


class Applier:
    """Applies files."""

    def __init__(self, mesh: Mesh, editor: Editor, notices: Notices) -> None:
        self._mesh = mesh
        self._notices = notices
        self._editor = editor
        self._viewer = Viewer(mesh)

    async def apply(self, request: api.ApplyJobsRequest) -> api.ApplyJobsResponse:
        """Applies the jobs of a request.

        Raises:
            InvalidArgument: some can't be used; nothing was written.
            TooLarge: they are too many.
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
        answer = api.ApplyJobsResponse(read_time=timestamp(read_time))
        room = _EXTRAS_BYTES
        for batch in _batches(entries):
            await self._prepare(batch, request.source)
            if not request.validate_only:
                await self._commit(batch, request.source)
            await self._notices.add(*(entry.applied.job for entry in batch))
            for entry in batch:
                room = _trim(entry.applied, room)
                answer.jobs.append(entry.applied)
                entry.loaded = entry.txn = None
        return answer

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
                scratch = new_name(mesh.jobs, name, mesh.randomness)
                checked = check_spec(mesh.jobs, scratch, job.spec, 1, mesh.now())
                entries.append(_Entry(name=name, checked=checked))
        refusals.refuse()
        for first in range(0, len(entries), BATCH):
            batch = entries[first : first + BATCH]
            kvs = await get_all(mesh.store, [entry.key for entry in batch])
            now = mesh.now()
            for number, (entry, kv) in enumerate(zip(batch, kvs, strict=True), start=first):
                before = records.JobRecord.FromString(kv.value).spec.schedules
                if kv.create_revision and list(before) == list(entry.checked.spec.schedules):
                    continue
                with refusals.collecting(f"jobs[{number}]", str(entry.name)):
                    require_a_time(entry.checked.definition, now)
        refusals.refuse()
        return entries

    async def _prepare(self, batch: Sequence[_Entry], source: str) -> None:
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
            self._plan(entry, by_name.get(entry.name[:2]), source)
        await self._add_live_runs(batch)

    def _plan(self, entry: _Entry, loaded: LoadedJob | None, source: str) -> None:
        mesh = self._mesh
        now = mesh.now()
        if loaded is None:
            name = new_name(mesh.jobs, entry.name, mesh.randomness)
            with checks.refusing(SPEC):
                version = mesh.jobs.decode(name, entry.checked.spec, 1, now)
                checked = Checked(version.spec, version.definition)
                record, change = first_record(name, checked, now)
            record.source = source
            entry.loaded = None
            entry.txn = create_txn(name, record, change)
            entry.applied = api.AppliedJob(
                job=full_message(
                    name, record, change.state, checked.definition, revision=0, now=now
                ),
                change=_CREATED,
            )
            return
        after, entry.txn, change_made = loaded, None, _NONE
        if loaded.record.spec != entry.checked.spec:
            edit = self._editor.edit(loaded, entry.checked.spec, source)
            assert edit is not None, "it differs"
            after, entry.txn = edit
            change_made = _UPDATED
        entry.loaded = after
        message = full_message(
            after.name,
            after.record,
            after.state,
            after.job.current,
            revision=after.job_revision,
            now=now,
        )
        entry.applied = api.AppliedJob(job=message, change=change_made)
        entry.applied.changed_paths.extend(changed_paths(loaded.record.spec, after.record.spec))

    async def _add_live_runs(self, batch: Sequence[_Entry]) -> None:
        await self._viewer.add_live_runs(
            (entry.applied.job, entry.loaded.name.uid, entry.loaded.state.live)
            for entry in batch
            if entry.loaded is not None
        )

    async def _commit(self, batch: Sequence[_Entry], source: str) -> None:
        """Commits what was computed for a batch; computes anew what was refused."""
        writing = [entry for entry in batch if entry.txn is not None]
        for some in _by_size(writing):
            results = await self._results([entry.txn for entry in some if entry.txn is not None])
            for entry, result in zip(some, results, strict=True):
                if result.outcome is Outcome.COMMITTED:
                    entry.applied.job.etag = str(result.revision)
                else:
                    await self._apply_alone(entry, source)

    async def _results(self, txns: Sequence[Txn]) -> Sequence[TxnResult]:
        store, randomness = self._mesh.store, self._mesh.randomness
        if not txns:
            return ()
        try:
            return await store.commit(txns)
        except OutcomeUnknown:
            return [
                await resolve(store, txn, proof=written(txn, _job_key(txn)), randomness=randomness)
                for txn in txns
            ]

    async def _apply_alone(self, entry: _Entry, source: str) -> None:
        """Applies a job whose commit met another change."""

        async def compute() -> Plan[str] | Done[str]:
            await self._prepare([entry], source)
            txn = entry.txn
            if txn is None:
                return Done(entry.applied.job.etag)
            return Plan(txn=txn, proof=written(txn, entry.key), answer=str)

        entry.applied.job.etag = await self._editor.changer.carry_out(str(entry.name), compute)


def _job_key(txn: Txn) -> bytes:
    return next(op.key for op in txn.then if op.key.startswith(keys.JOBS))


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
