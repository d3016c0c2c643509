"""Finds a run by its name: in flight, or ended, of this incarnation of its job or a former one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final, NamedTuple

from sexton.internal.v1 import records_pb2 as records
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.showing import handle_key
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.writes import JobName
from sexton_core.ids import RunId, parse_run_id
from sexton_core.policy.state import Handle
from sexton_core.words import Origin
from sexton_records import keys
from sexton_records.state import handle_of
from sexton_runtime.kv.types import KeyValue, prefix_end

MAX_INCARNATIONS: Final = 100
"""Former incarnations of a job whose runs are looked through."""

_MAX_DELETED: Final = 1_000
"""Deleted jobs of a shard that are looked through: they are there until their runs have ended."""

_AFTER_SLASH: Final = b"0"


class FoundRun(NamedTuple):
    """A run as read. `handle` is its key while it is in flight; empty: it has ended."""

    record: records.RunRecord
    revision: int
    handle: bytes


class RunFinder:
    """Finds runs."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh

    async def find(self, name: Name) -> FoundRun | None:
        """Returns a run; None: there is none, or it is no longer kept."""
        run_id = name.run
        hint = uid_hint(run_id)
        async for job, handles in self.in_flight(name, hint):
            found = await self.of_incarnation(job, handles, run_id)
            if found is not None:
                return found
        async for uid in self.incarnations(name, hint):
            found = await self._ended(name.namespace, name.job, uid, run_id)
            if found is not None:
                return found
        return None

    async def exists(self, name: Name) -> bool:
        """Tells whether there is a job, or a run of one of its former incarnations."""
        if await self.current(name) is not None:
            return True
        async for _ in self.in_flight(name):
            return True
        async for _ in self.incarnations(name):
            return True
        return False

    async def current(self, name: Name) -> JobName | None:
        """Returns a job's present incarnation."""
        key = keys.job_key(name.namespace, name.job)
        (kv,) = (await self._mesh.store.get([key])).kvs
        if not kv.create_revision:
            return None
        uid = records.JobRecord.FromString(kv.value).uid
        return self._mesh.jobs.name_of(name.namespace, name.job, uid)

    async def in_flight(
        self, name: Name, hint: str = ""
    ) -> AsyncIterator[tuple[JobName, list[Handle]]]:
        """Yields what may be in flight of each incarnation whose uid begins with `hint`."""
        job = await self.current(name)
        if job is not None and job.uid.startswith(hint):
            (kv,) = (await self._mesh.store.get([job.state_key])).kvs
            live = records.StateRecord.FromString(kv.value).live
            yield job, [handle_of(handle) for handle in live]
        for shard in range(self._mesh.coordinator_shards):
            prefix = keys.deleted_prefix(shard)
            start = prefix + hint.encode()
            page = await self._mesh.store.scan(start, prefix_end(start), limit=_MAX_DELETED)
            for kv in page.kvs:
                deleted = records.DeletedRecord.FromString(kv.value)
                if (deleted.namespace, deleted.job) == (name.namespace, name.job):
                    uid = kv.key[len(prefix) :].decode()
                    yield (
                        JobName(name.namespace, name.job, uid, shard),
                        [handle_of(handle) for handle in deleted.live],
                    )

    async def of_incarnation(
        self, job: JobName, live: Iterable[Handle], run_id: RunId
    ) -> FoundRun | None:
        """Returns a run of one incarnation: in flight if `live` names it, else ended.

        In flight is looked at first: a run ends in the commit that writes it down as ended.
        """
        handle = next((handle for handle in live if handle.run_id == run_id), None)
        if handle is not None:
            key = handle_key(self._mesh, job.uid, handle)
            (kv,) = (await self._mesh.store.get([key])).kvs
            if kv.create_revision:
                return found_run(kv, key)
        return await self._ended(job.namespace, job.job, job.uid, run_id)

    async def incarnations(self, name: Name, hint: str = "") -> AsyncIterator[str]:
        """Yields the uids under which ended runs of a job are kept, at most `MAX_INCARNATIONS`."""
        prefix = keys.runs_prefix(name.namespace, name.job)
        start, end = prefix + hint.encode(), prefix_end(prefix + hint.encode())
        for _ in range(MAX_INCARNATIONS):
            page = await self._mesh.store.scan(start, end, limit=1, keys_only=True)
            if not page.kvs:
                return
            uid = page.kvs[0].key[len(prefix) :].split(b"/")[0]
            yield uid.decode()
            start = prefix + uid + _AFTER_SLASH

    async def _ended(self, namespace: str, job: str, uid: str, run_id: RunId) -> FoundRun | None:
        key = keys.run_key(namespace, job, uid, run_id)
        (kv,) = (await self._mesh.store.get([key])).kvs
        return found_run(kv, b"") if kv.create_revision else None


def found_run(kv: KeyValue, handle: bytes) -> FoundRun:
    """Returns the run of a record as read."""
    return FoundRun(records.RunRecord.FromString(kv.value), kv.mod_revision, handle)


def uid_hint(run_id: RunId) -> str:
    """Returns with what the uid of a run's job begins, as far as the run's id tells."""
    parsed = parse_run_id(run_id)
    return parsed.source if parsed.origin is Origin.SCHEDULE else ""
