"""Deletes the jobs that stand in their source no more, when that source is applied.

A job is pruned only if the source was the last to apply it, and nothing has changed about it since
the caller first read what stands there: who changes a job by hand, or applies it from elsewhere,
keeps it. The delete compares what was judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from sexton.errors import InvalidArgument, TooLarge
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import checks
from sexton_coordinator.api.changes import Done, Plan
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.comparing import Comparer
from sexton_coordinator.api.editing import Editor, plan_delete
from sexton_coordinator.jobs_store import get_all
from sexton_coordinator.mesh import Mesh
from sexton_core.errors import CoreError
from sexton_core.ids import check_name
from sexton_core.instants import Instant
from sexton_records import keys
from sexton_runtime.kv.types import KeyValue, Outcome, prefix_end

MAX_PRUNED: Final = 10_000
"""Jobs that one call deletes, less half as many as it brings: its answer names them all. More of
them look like a mistake, and nothing is done."""
_BATCH: Final = 100


class Wanted(NamedTuple):
    """What a request asks to have pruned."""

    source: str
    namespaces: tuple[str, ...]
    keep: Collection[bytes]
    """The keys of the definitions that stay."""
    read_time: Instant
    most: int


class Pruner:
    """Finds and deletes."""

    def __init__(self, mesh: Mesh, editor: Editor) -> None:
        self._mesh = mesh
        self._editor = editor

    async def find(self, wanted: Wanted) -> list[KeyValue]:
        """Returns the definitions that are to go, in order of name.

        Raises:
            TooLarge: they are so many that it looks like a mistake.

        """
        found: list[KeyValue] = []
        for namespace in wanted.namespaces:
            async for others in self._others(namespace, wanted.keep):
                found += [kv for kv in others if _is_to_go(wanted, kv)]
                if len(found) > wanted.most:
                    raise TooLarge("jobs to be pruned", len(found), wanted.most, "jobs")
        return found

    async def _others(
        self, namespace: str, keep: Collection[bytes]
    ) -> AsyncIterator[Sequence[KeyValue]]:
        """Yields the definitions of a namespace but for those that stay, page by page.

        Of those that stay only the keys are read, unless they are few among the others: then a page
        as it is costs less than reading most of it key by key.
        """
        store = self._mesh.store
        prefix = keys.namespace_prefix(namespace)
        start, keys_only = prefix, True
        while True:
            page = await store.scan(start, prefix_end(prefix), keys_only=keys_only)
            others = [kv for kv in page.kvs if kv.key not in keep]
            if keys_only:
                yield await get_all(store, [kv.key for kv in others])
            else:
                yield others
            if not page.next_token:
                return
            start, keys_only = page.kvs[-1].key + b"\0", 2 * len(others) <= len(page.kvs)
            await asyncio.sleep(0)

    async def prune(
        self, wanted: Wanted, found: Sequence[KeyValue], comparer: Comparer | None
    ) -> list[api.AppliedJob]:
        """Deletes jobs, or with a comparer tells what that would do; gives those that go."""
        answers: list[api.AppliedJob] = []
        for part in _parts(found):
            if comparer is not None:
                gone = [True] * len(part)
            else:
                gone = await self._delete(wanted, part)
            for kv, went in zip(part, gone, strict=True):
                if went:
                    answers.append(await self._answer(kv, comparer))
            await asyncio.sleep(0)
        return answers

    async def _delete(self, wanted: Wanted, part: Sequence[KeyValue]) -> list[bool]:
        """Deletes some jobs in one commit, those that changed meanwhile each on its own."""
        mesh = self._mesh
        names = [
            mesh.jobs.name_of(
                *keys.parse_job_key(kv.key), records.JobRecord.FromString(kv.value).uid
            )
            for kv in part
        ]
        states = await self._editor.changer.read_states(names)
        now = mesh.now()
        plans = [
            plan_delete(name, kv, state, now)
            for name, kv, state in zip(names, part, states, strict=True)
        ]
        results = await self._editor.changer.commit_all([(each.txn, each.proof) for each in plans])
        gone = [result.outcome is Outcome.COMMITTED for result in results]
        left = [at for at, went in enumerate(gone) if not went]
        alone = partial(self._delete_alone, wanted)
        went_too = await self._editor.changer.each(alone, [part[at] for at in left])
        for at, went in zip(left, went_too, strict=True):
            gone[at] = went
        return gone

    async def _delete_alone(self, wanted: Wanted, kv: KeyValue) -> bool:
        """Deletes a job whose commit met a change, if it is still to go; tells whether it went."""
        name = Name(*keys.parse_job_key(kv.key))
        return await self._editor.changer.carry_out(str(name), partial(self._plan, wanted, kv.key))

    async def _plan(self, wanted: Wanted, key: bytes) -> Plan[bool] | Done[bool]:
        mesh = self._mesh
        (kv,) = (await mesh.store.get([key])).kvs
        if not kv.create_revision or not _is_to_go(wanted, kv):
            return Done(False)
        uid = records.JobRecord.FromString(kv.value).uid
        name = mesh.jobs.name_of(*keys.parse_job_key(key), uid)
        (state,) = await self._editor.changer.read_states([name])
        plan = plan_delete(name, kv, state, mesh.now())
        return Plan(txn=plan.txn, proof=plan.proof, answer=lambda _revision: True)

    async def _answer(self, kv: KeyValue, comparer: Comparer | None) -> api.AppliedJob:
        namespace, job = keys.parse_job_key(kv.key)
        record = records.JobRecord.FromString(kv.value)
        applied = api.AppliedJob(change=api.AppliedJob.CHANGE_PRUNED)
        applied.job.name = f"namespaces/{namespace}/jobs/{job}"
        applied.job.uid = record.uid
        applied.job.version = record.version
        if comparer is not None:
            name = self._mesh.jobs.name_of(namespace, job, record.uid)
            try:
                version = self._mesh.jobs.decode(
                    name, record.spec, record.version, record.effective_time_ns
                )
            except CoreError:
                return applied  # what can't be understood can be deleted
            await comparer.compare(applied, version.definition, None)
        return applied


def wanted_of(request: api.ApplyJobsRequest, names: Collection[Name], now: Instant) -> Wanted:
    """Checks what a request, whose jobs have these names, says about pruning.

    Raises:
        InvalidArgument: it names no source or no namespace, or a field can't be used.

    """
    if not request.source:
        raise InvalidArgument("source", "", "a name: only what it was the last to apply is pruned")
    for namespace in request.prune_namespaces:
        with checks.refusing():
            check_name("prune_namespaces", namespace)
    namespaces = set(request.prune_namespaces) or {name.namespace for name in names}
    if not namespaces:
        raise InvalidArgument("prune_namespaces", "", "where to prune, for the file has no jobs")
    kept = {checks.job_name("prune_keep", name) for name in request.prune_keep}
    read_time = now
    if request.HasField("prune_read_time"):
        read_time = min(checks.instant("prune_read_time", request.prune_read_time), now)
    return Wanted(
        source=request.source,
        namespaces=tuple(sorted(namespaces)),
        keep={keys.job_key(name.namespace, name.job) for name in (*names, *kept)},
        read_time=read_time,
        most=MAX_PRUNED - len(names) // 2,
    )


def _is_to_go(wanted: Wanted, kv: KeyValue) -> bool:
    if kv.key in wanted.keep or wanted.source.encode() not in kv.value:
        return False  # of a million others' jobs no record is decoded
    record = records.JobRecord.FromString(kv.value)
    return record.source == wanted.source and record.update_time_ns <= wanted.read_time


def _parts(found: Sequence[KeyValue]) -> Iterator[Sequence[KeyValue]]:
    for first in range(0, len(found), _BATCH):
        yield found[first : first + _BATCH]
