"""Jobs as the API shows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import job_pb2 as pb
from sexton_coordinator.jobs_store import LoadedJob, get_all
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.writes import JobName
from sexton_core.errors import CoreError
from sexton_core.instants import Instant
from sexton_core.policy import Definition, JobState
from sexton_core.policy.state import Handle
from sexton_core.schedules import JobSchedule, warnings_of
from sexton_records import keys
from sexton_records.state import decode_state
from sexton_records.times import set_time


def resource_name(name: JobName) -> str:
    """Returns a job's resource name."""
    return f"namespaces/{name.namespace}/jobs/{name.job}"


def warnings(definition: Definition, now: Instant) -> list[str]:
    """Returns what deserves a second look in a definition."""
    found = []
    if isinstance(definition.schedule, JobSchedule):
        found += [warning.message for warning in warnings_of(definition.schedule, now)]
    return [*found, *definition.catch_up.warnings(), *definition.run.warnings()]


def job_message(
    name: JobName, record: records.JobRecord, revision: int, state: JobState, now: Instant
) -> pb.Job:
    """Returns a job without what has to be computed: `next_time`, `live_runs`, `warnings`.

    `next_time` is set where the state tells it. `revision` 0: it is not written yet.
    """
    message = pb.Job(
        name=resource_name(name),
        uid=name.uid,
        etag=str(revision) if revision else "",
        spec=record.spec,
    )
    set_standing(message, record, state, now)
    return message


def set_standing(message: pb.Job, record: records.JobRecord, state: JobState, now: Instant) -> None:
    """Sets what a job's record and state tell besides its names and its definition."""
    message.version = record.version
    message.paused = record.paused
    message.pause_reason = record.pause_reason
    set_time(message.create_time, record.create_time_ns)
    set_time(message.update_time, record.update_time_ns)
    set_time(message.cursor_time, state.cursor)
    message.source = record.source
    if state.armed is not None and state.armed > now:
        set_time(message.next_time, state.armed)


def full_message(
    name: JobName,
    record: records.JobRecord,
    state: JobState,
    definition: Definition,
    *,
    revision: int,
    now: Instant,
) -> pb.Job:
    """Returns a job as answers to changes show it, but for `live_runs`."""
    message = job_message(name, record, revision, state, now)
    complete(message, definition, now)
    return message


def complete(message: pb.Job, definition: Definition, now: Instant) -> None:
    """Adds what has to be computed of a definition, once `set_standing` has told what it can."""
    set_next_time(message, definition, now)
    message.warnings.extend(warnings(definition, now))


def set_next_time(message: pb.Job, definition: Definition, now: Instant) -> None:
    """Sets when the schedules next ask for something, where the state did not tell it.

    It does not while the job is paused or its leader is behind.
    """
    if not message.HasField("next_time") and definition.schedule is not None:
        following = definition.schedule.next_after(now)
        if following is not None:
            set_time(message.next_time, following)


class Viewer:
    """Completes messages with what stands elsewhere in the store."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh: Final = mesh

    async def loaded(self, job: LoadedJob) -> pb.Job:
        """Returns a job in full."""
        message = full_message(
            job.name,
            job.record,
            job.state,
            job.job.current,
            revision=job.job_revision,
            now=self._mesh.now(),
        )
        await self.add_live_runs([(message, job.name.uid, job.state.live)])
        return message

    async def add_live_runs(self, jobs: Iterable[tuple[pb.Job, str, Sequence[Handle]]]) -> None:
        """Adds the runs that have not ended: a state goes on naming those that have."""
        named = [
            (message, handle.run_id, handle_key(self._mesh, uid, handle))
            for message, uid, live in jobs
            for handle in live
        ]
        kvs = await get_all(self._mesh.store, [key for _, _, key in named], keys_only=True)
        for (message, run_id, _), kv in zip(named, kvs, strict=True):
            if kv.create_revision:
                message.live_runs.append(run_id)

    def listed(
        self,
        name: JobName,
        record: records.JobRecord,
        revision: int,
        state: records.StateRecord,
        *,
        full: bool,
    ) -> tuple[pb.Job, JobState]:
        """Returns a job as lists show it, but for `live_runs`; not `full`: without its task."""
        now = self._mesh.now()
        decoded = decode_state(state, ())
        message = job_message(name, record, revision, decoded, now)
        if full or not message.HasField("next_time"):
            try:
                definition = self._mesh.jobs.decode(
                    name, record.spec, record.version, record.effective_time_ns
                ).definition
            except CoreError as error:
                message.warnings.append(f"this version of the software can't use it: {error}")
            else:
                if full:
                    complete(message, definition, now)
                else:
                    set_next_time(message, definition, now)
        if not full:
            message.spec.ClearField("task")
        return message, decoded


def handle_key(mesh: Mesh, uid: str, handle: Handle) -> bytes:
    """Returns the key of a run in flight."""
    return keys.handle_key(keys.shard_of(handle.queue, mesh.queue_shards), uid, handle)
