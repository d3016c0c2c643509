"""What is kept of deleted jobs: by whose definition and state their past is explained.

The name of a job may have been that of several, one after the other. Which one is meant follows
from the instant that is asked about.
"""

from __future__ import annotations

from typing import NamedTuple

from sexton.errors import IllegalState
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import job_pb2
from sexton_coordinator.api.checks import Name
from sexton_coordinator.jobs_store import LoadedJob
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.writes import JobName
from sexton_core.errors import CoreError
from sexton_core.instants import Instant
from sexton_core.policy import Job
from sexton_records import keys
from sexton_records.state import decode_state
from sexton_runtime.kv.types import KeyValue, Put, prefix_end


class Incarnation(NamedTuple):
    """A job as it is, or as it was when it was deleted."""

    loaded: LoadedJob
    deleted_at: Instant | None = None
    """None: it is there."""


class Incarnations:
    """Finds the job that had a name at some time."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh

    async def find(self, name: Name, at: Instant) -> Incarnation | None:
        """Returns the job that had the name at an instant, or else the last one that had it.

        None: there is none, and none that is still kept.

        Raises:
            IllegalState: it is there and can't be read.

        """
        loaded = await self._mesh.jobs.by_name(name.namespace, name.job)
        if loaded is not None and at > loaded.job.created_at:
            return Incarnation(loaded)
        start = keys.former_from(name.namespace, name.job, max(at, 0))
        end = prefix_end(keys.former_prefix(name.namespace, name.job))
        found = (await self._mesh.store.scan(start, end, limit=1)).kvs
        if found:
            former = await self._read(name, found[0])
            if loaded is None or at > former.loaded.job.created_at:
                return former
        return await self.last(name) if loaded is None else Incarnation(loaded)

    async def latest(self, name: Name) -> Incarnation | None:
        """Returns the job of a name, or else the one that had it last; None: none is kept.

        Raises:
            IllegalState: it is there and can't be read.

        """
        loaded = await self._mesh.jobs.by_name(name.namespace, name.job)
        return await self.last(name) if loaded is None else Incarnation(loaded)

    async def last(self, name: Name) -> Incarnation | None:
        """Returns the job of a name that was deleted last; None: none is kept.

        Raises:
            IllegalState: it can't be read.

        """
        prefix = keys.former_prefix(name.namespace, name.job)
        found = await self._mesh.store.scan(prefix, prefix_end(prefix), limit=1, reverse=True)
        return await self._read(name, found.kvs[0]) if found.kvs else None

    async def _read(self, name: Name, kv: KeyValue) -> Incarnation:
        deleted_at, uid = keys.parse_former_key(kv.key)
        job = self._mesh.jobs.name_of(name.namespace, name.job, uid)
        record = records.FormerRecord.FromString(kv.value)
        (remains,) = (await self._mesh.store.get([keys.deleted_key(job.shard, uid)])).kvs
        state = records.StateRecord()
        state.CopyFrom(record.state)
        state.live.extend(records.DeletedRecord.FromString(remains.value).live)
        return Incarnation(self._decoded(job, record.job, state), deleted_at)

    def _decoded(
        self, name: JobName, record: records.JobRecord, state: records.StateRecord
    ) -> LoadedJob:
        try:
            version = self._mesh.jobs.decode(
                name, record.spec, record.version, record.effective_time_ns
            )
        except CoreError as error:
            raise IllegalState(
                f"the deleted job {name.namespace}/{name.job}",
                f"unreadable ({error})",
                ["readable by this version of the software"],
            ) from None
        job = Job(
            namespace=name.namespace,
            name=name.job,
            uid=name.uid,
            created_at=record.create_time_ns,
            definitions=(version.definition,),
        )
        return LoadedJob(
            name=name,
            job=job,
            state=decode_state(state, ()),
            state_revision=0,
            timer=None,
            record=record,
            job_revision=0,
            versions={record.version: version},
            state_value=b"",
        )


def former_put(
    name: JobName, job: records.JobRecord, state: records.StateRecord, now: Instant
) -> Put:
    """Returns what keeps of a job that is deleted what its past is explained by, and no more."""
    spec = job.spec
    former = records.FormerRecord(
        job=records.JobRecord(
            version=job.version,
            spec=job_pb2.JobSpec(schedules=spec.schedules, overlap=spec.overlap),
            create_time_ns=job.create_time_ns,
            effective_time_ns=job.effective_time_ns,
        ),
        state=records.StateRecord(cursor_ns=state.cursor_ns, rules=state.rules),
    )
    if state.HasField("paused_at_ns"):
        former.state.paused_at_ns = state.paused_at_ns
    key = keys.former_key(name.namespace, name.job, now, name.uid)
    return Put(key, former.SerializeToString())
