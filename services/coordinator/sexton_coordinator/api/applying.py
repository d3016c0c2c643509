"""Applies a whole file of jobs: checks all of it, refuses all of it, then writes in batches.

Bounded: besides the request and its answer it holds three batches of jobs as read. It gives way to
others every few jobs, because it shares the loop with everything else that this replica does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from sexton.errors import TooLarge
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import checks
from sexton_coordinator.api.changes import Done, Plan, handles_of
from sexton_coordinator.api.comparing import Comparer
from sexton_coordinator.api.creating import Creator
from sexton_coordinator.api.definitions import changed_paths
from sexton_coordinator.api.editing import Editor
from sexton_coordinator.api.entries import EXTRAS_BYTES, YIELD_EVERY, Entry, Known, check_all
from sexton_coordinator.api.notices import Notices
from sexton_coordinator.api.pruning import Pruner, Wanted, wanted_of
from sexton_coordinator.api.showing import Viewer, full_message
from sexton_coordinator.jobs_store import JobRef, LoadedJob, UnreadableJob, get_all
from sexton_coordinator.mesh import Mesh
from sexton_core.errors import CoreError
from sexton_core.policy import Definition
from sexton_records.state import decode_state
from sexton_records.times import timestamp
from sexton_runtime.kv.types import KeyValue, Outcome, Put, Txn
from sexton_runtime.kv.unknown import written

MAX_JOBS: Final = 10_000
MAX_BYTES: Final = 3 * 1024 * 1024
BATCH: Final = 200
_BATCH_BYTES: Final = 768 * 1024
"""A transaction, which all of them may be, takes 1 MiB with what it compares."""

_UNDER_WAY: Final = 3
"""Batches of one request that are committed at once: what a slow disk takes long for is shared."""

_ROUNDS: Final = 3
"""Times that what was refused is computed and committed together, before job by job: a replica that
is short of time may come too late with a whole batch."""

_NONE: Final = api.AppliedJob.CHANGE_NONE
_UPDATED: Final = api.AppliedJob.CHANGE_UPDATED


class _Work(NamedTuple):
    """What one request asks for. `comparer`: of one that writes nothing."""

    request: api.ApplyJobsRequest
    known: Known
    creator: Creator
    comparer: Comparer | None


class _Standing(NamedTuple):
    """An entry of a job that stands there already."""

    entry: Entry
    kv: KeyValue
    record: records.JobRecord


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
            Overloaded, NoSpace, OutcomeUnknown: of a job in the middle; those before it and some
                after it are applied, and applying the same again does the rest.

        """
        if len(request.jobs) > MAX_JOBS:
            raise TooLarge("jobs", len(request.jobs), MAX_JOBS, "jobs")
        if request.ByteSize() > MAX_BYTES:
            raise TooLarge("jobs", request.ByteSize(), MAX_BYTES)
        checks.note("source", request.source)
        read_time = self._mesh.now()
        known = Known(self._mesh)
        entries = await check_all(self._mesh, request, known)
        pruning: tuple[Wanted, list[KeyValue]] | None = None
        if request.prune:
            wanted = wanted_of(request, {entry.name for entry in entries}, read_time)
            pruning = wanted, await self._pruner.find(wanted)
        work = _Work(
            request,
            known,
            Creator(self._mesh, request.source, known.uids),
            Comparer(read_time) if request.validate_only else None,
        )
        answer = api.ApplyJobsResponse(read_time=timestamp(read_time))
        await self._apply_all(entries, work, answer)
        if pruning is not None:
            answer.jobs.extend(await self._pruner.prune(*pruning, work.comparer))
        return answer

    async def _apply_all(
        self, entries: Sequence[Entry], work: _Work, answer: api.ApplyJobsResponse
    ) -> None:
        """Applies batch by batch; some are committed while the next is read and computed."""
        telling = _Telling(self._notices, answer)
        under_way: deque[tuple[Sequence[Entry], asyncio.Task[None] | None]] = deque()
        before: Sequence[Entry] = ()
        try:
            for batch in _batches(entries):
                # A file of new jobs goes on with new ones: one that is there is found out about
                # by its commit, which is refused.
                unread = bool(before) and work.comparer is None and all(e.uid for e in before)
                await self._prepare(batch, work, unread=unread, wait=False)
                commit = None
                if not work.request.validate_only:
                    commit = asyncio.create_task(self._commit(batch, work))
                under_way.append((batch, commit))
                before = batch
                if len(under_way) == _UNDER_WAY:
                    await telling.tell(*under_way[0])
                    under_way.popleft()
            for each in under_way:
                await telling.tell(*each)
        except asyncio.CancelledError:
            for _, commit in under_way:
                if commit is not None:
                    commit.cancel()
            raise
        finally:
            commits = [commit for _, commit in under_way if commit is not None]
            await asyncio.gather(*commits, return_exceptions=True)

    # Reading and computing --------------------------------------------------------------------

    async def _prepare(
        self, batch: Sequence[Entry], work: _Work, *, unread: bool = False, wait: bool = True
    ) -> None:
        """Reads a batch and computes what is to be written.

        `unread`: as if nothing stood there; `wait`: for starts that are written and not due.
        """
        kvs = () if unread else await get_all(self._mesh.store, [entry.key for entry in batch])
        standing = [
            _Standing(entry, kv, records.JobRecord.FromString(kv.value))
            for entry, kv in zip(batch, kvs, strict=not unread)
            if kv.create_revision
        ]
        same = await self._tell_same([each for each in standing if _is_same(each, work)])
        others = [each for each in standing if each.entry.key not in same]
        loaded = await self._load(others, wait=wait)
        for number, entry in enumerate(batch):
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)
                work.creator.look_at_time()
            if entry.key in same:
                continue
            before = loaded.get(entry.key)
            if before is None:
                definition: Definition | None = self._create(entry, work)
            else:
                definition = self._change(entry, before, work)
            if work.comparer is not None and definition is not None:
                current = None if before is None else before.job.current
                await work.comparer.compare(entry.applied, current, definition)
        await self._viewer.add_live_runs(
            (entry.applied.job, *entry.live) for entry in batch if entry.live[1]
        )

    async def _tell_same(self, standing: Sequence[_Standing]) -> set[bytes]:
        """Answers about jobs that stand there as they are wanted, from their records alone.

        Returns the keys of those about which it did; what can't be read is left to the others.
        """
        mesh = self._mesh
        names = [mesh.jobs.name_of(*each.entry.name[:2], each.record.uid) for each in standing]
        states = await get_all(mesh.store, [name.state_key for name in names])
        told: set[bytes] = set()
        for (entry, kv, record), name, state_kv in zip(standing, names, states, strict=True):
            if len(told) % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            if not state_kv.create_revision:
                continue
            since = record.effective_time_ns
            try:
                state = decode_state(records.StateRecord.FromString(state_kv.value), ())
                definition = mesh.jobs.decode(name, record.spec, record.version, since).definition
            except (CoreError, DecodeError, LookupError, ValueError):
                continue
            now, revision = mesh.now(), kv.mod_revision
            job = full_message(name, record, state, definition, revision=revision, now=now)
            entry.applied = api.AppliedJob(job=job, change=_NONE)
            entry.live, entry.txn, entry.uid = (record.uid, state.live), None, ""
            told.add(entry.key)
        return told

    async def _load(
        self, standing: Sequence[_Standing], *, wait: bool
    ) -> Mapping[bytes, LoadedJob]:
        """Reads jobs that are to be changed, by key; those that are gone meanwhile are left out.

        Raises:
            IllegalState: one can't be read.

        """
        refs = [JobRef(each.record.uid, *each.entry.name[:2]) for each in standing]
        found: dict[bytes, LoadedJob] = {}
        changer, read = self._editor.changer, self._mesh.jobs.load
        jobs = await (changer.between_starts(refs, read, handles_of) if wait else read(refs))
        for each, job in zip(standing, jobs, strict=True):
            if isinstance(job, UnreadableJob):
                await changer.load(each.entry.name)  # raises, saying why
            elif job is not None:
                found[each.entry.key] = job
        return found

    def _create(self, entry: Entry, work: _Work) -> Definition:
        """Computes the commit of a new job; gives its definition."""
        checked = entry.check(work.known)
        entry.uid, entry.txn, entry.size_bytes, entry.applied = work.creator.create(
            entry.name, entry.key, checked, entry.fresh
        )
        entry.fresh, entry.live = None, ("", ())
        if work.comparer is not None:
            shared, entry.applied = entry.applied, api.AppliedJob()
            entry.applied.CopyFrom(shared)
        return checked.definition

    def _change(self, entry: Entry, loaded: LoadedJob, work: _Work) -> Definition | None:
        """Computes what is to be written of a job; gives the definition that is new."""
        after, source = loaded, work.request.source
        entry.txn, entry.uid = None, ""
        applied = api.AppliedJob(change=_NONE)
        if loaded.record.spec != entry.wanted:
            edit = self._editor.edit(loaded, entry.wanted, source)
            assert edit is not None, "it differs"
            after, entry.txn = edit
            applied.change = _UPDATED
            applied.changed_paths.extend(changed_paths(loaded.record.spec, after.record.spec))
        elif source and source != loaded.record.source:
            after, entry.txn = self._editor.touch(loaded, source)
        if entry.txn is not None:
            entry.size_bytes = sum(
                len(op.key) + len(op.value) for op in entry.txn.then if isinstance(op, Put)
            )
        message = full_message(
            after.name,
            after.record,
            after.state,
            after.job.current,
            revision=after.job_revision,
            now=self._mesh.now(),
        )
        applied.job.CopyFrom(message)
        entry.applied, entry.live = applied, (after.name.uid, after.state.live)
        return after.job.current if applied.change == _UPDATED else None

    # Committing -------------------------------------------------------------------------------

    async def _commit(self, batch: Sequence[Entry], work: _Work) -> None:
        """Commits what was computed for a batch; computes anew what was refused, or too late."""
        left = await self._commit_once(batch, together=True)
        for _ in range(_ROUNDS):
            if not left:
                return
            await self._prepare(left, work)
            left = await self._commit_once(left, together=False)
        await self._editor.changer.each(partial(self._apply_alone, work), left)

    async def _commit_once(self, batch: Sequence[Entry], *, together: bool) -> list[Entry]:
        """Commits what is to be written; gives what was not.

        `together`: new jobs in few transactions. What stands in the way of one keeps the others of
        its transaction back too, until they are committed alone.
        """
        left: list[Entry] = []
        most = self._mesh.store.limits.max_ops_per_txn if together else 0
        for some in _by_size([entry for entry in batch if entry.txn is not None]):
            groups = list(_joined(some, most))
            results = await self._editor.changer.commit_all(
                [(txn, entries[0].key) for txn, entries in groups]
            )
            for (_, entries), result in zip(groups, results, strict=True):
                if result.outcome is not Outcome.COMMITTED:
                    left += entries
                    continue
                for entry in entries:
                    entry.etag = str(result.revision)
        return left

    async def _apply_alone(self, work: _Work, entry: Entry) -> None:
        """Applies a job whose commit met another change."""

        async def compute() -> Plan[str] | Done[str]:
            await self._prepare([entry], work)
            txn = entry.txn
            if txn is None:
                return Done(entry.applied.job.etag)
            return Plan(txn=txn, proof=written(txn, entry.key), answer=str)

        entry.etag = await self._editor.changer.carry_out(str(entry.name), compute)


class _Telling:
    """Makes the answer to a request, batch by batch."""

    def __init__(self, notices: Notices, answer: api.ApplyJobsResponse) -> None:
        self._notices = notices
        self._answer = answer
        self._room = EXTRAS_BYTES
        self._noted: Mapping[int, api.AppliedJob] = {}  # what later jobs may share

    async def tell(self, batch: Sequence[Entry], commit: asyncio.Task[None] | None) -> None:
        """Waits for a batch's commit, and tells what became of its jobs."""
        if commit is not None:
            await commit
        answers = {id(entry.applied): entry.applied for entry in batch}
        unknown = [each.job for key, each in answers.items() if key not in self._noted]
        await self._notices.add(*unknown)
        self._noted = {id(entry.applied): entry.applied for entry in batch if entry.uid}
        for entry in batch:
            self._room = entry.tell(self._answer, self._room)


def _is_same(standing: _Standing, work: _Work) -> bool:
    """Tells whether a job stands there as it is wanted, and is told to be of its source."""
    record, source = standing.record, work.request.source
    return record.spec == standing.entry.wanted and source in ("", record.source)


def _batches(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    for first in range(0, len(entries), BATCH):
        yield entries[first : first + BATCH]


def _by_size(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Yields entries whose commits fit one message."""
    some: list[Entry] = []
    size = 0
    for entry in entries:
        if some and size + entry.size_bytes > _BATCH_BYTES:
            yield some
            some, size = [], 0
        some.append(entry)
        size += entry.size_bytes
    if some:
        yield some


def _joined(entries: Sequence[Entry], most_ops: int) -> Iterator[tuple[Txn, Sequence[Entry]]]:
    """Yields transactions, and whose they are: new jobs that follow each other share one."""
    group: list[Entry] = []
    ops = 0
    for entry in entries:
        assert entry.txn is not None, "only what is to be committed"
        own = len(entry.txn.compares) + len(entry.txn.then)
        if group and (ops + own > most_ops or not (entry.uid and group[-1].uid)):
            yield _join(group), group
            group, ops = [], 0
        group.append(entry)
        ops += own
    if group:
        yield _join(group), group


def _join(entries: Sequence[Entry]) -> Txn:
    txns = [entry.txn for entry in entries if entry.txn is not None]
    if len(txns) == 1:
        return txns[0]
    return Txn(
        compares=tuple([compare for txn in txns for compare in txn.compares]),
        then=tuple([op for txn in txns for op in txn.then]),
        not_after_ns=min([txn.not_after_ns for txn in txns]),
    )
