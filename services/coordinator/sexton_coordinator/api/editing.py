"""Create, update, pause, resume, delete: what each computes and writes, in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from google.protobuf.field_mask_pb2 import FieldMask

from sexton.errors import AlreadyExists, NotFound, StaleRevision
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import job_pb2 as pb
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api.changes import (
    Changer,
    Done,
    Plan,
    after_starts,
    change_ops,
    compares,
    handles_of,
    note_timer,
)
from sexton_coordinator.api.checks import Name, refusing
from sexton_coordinator.api.definitions import (
    Checked,
    check_spec,
    merged,
    new_name,
    require_a_time,
)
from sexton_coordinator.api.former import former_put
from sexton_coordinator.api.showing import Viewer, full_message
from sexton_coordinator.jobs_store import LoadedJob
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.requests import body_hash, encode_request, recorded_answer
from sexton_coordinator.writes import JobName, state_ops
from sexton_core import policy
from sexton_core.instants import Instant
from sexton_core.policy.state import CHANGE_SLACK, Change
from sexton_core.words import ResumeMode
from sexton_core.zones import tzdata_version
from sexton_records import keys
from sexton_runtime.kv.types import (
    Compare,
    Delete,
    KeyValue,
    Op,
    Put,
    Target,
    Txn,
    absent,
    unchanged,
)
from sexton_runtime.kv.unknown import Proof, written

_CREATE: Final = "CreateJob"


class Editor:
    """Changes jobs."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._viewer = Viewer(mesh)
        self.changer: Final = Changer(mesh)

    # Create -----------------------------------------------------------------------------------

    async def create(self, name: Name, request: api.CreateJobRequest) -> pb.Job:
        """Creates a job.

        Raises:
            AlreadyExists: the name is taken.
            InvalidArgument: the definition can't be used, or the request's id had another body.

        """
        mesh = self._mesh
        job = new_name(mesh.jobs, name, mesh.randomness)
        now = mesh.now()
        require_a_time(check_spec(mesh.jobs, job, request.job.spec, 1, now).definition, now)
        shard = keys.shard_of(request.request_id, mesh.coordinator_shards)
        request_key = keys.request_key(shard, name.namespace, _CREATE, request.request_id)
        compute = partial(self._create, job, request, request_key if request.request_id else b"")
        return await self.changer.carry_out(str(name), compute)

    async def _create(
        self, name: JobName, request: api.CreateJobRequest, request_key: bytes
    ) -> Plan[pb.Job] | Done[pb.Job]:
        mesh = self._mesh
        wanted = (name.job_key, request_key) if request_key else (name.job_key,)
        found = (await mesh.store.get(wanted)).kvs
        body = _body(request)
        if request_key:
            kv = found[1]
            answer = recorded_answer(kv, body, request.request_id, pb.Job())
            if answer is not None:
                return Done(_with_etag(answer, kv.create_revision))
        if found[0].create_revision:
            raise AlreadyExists("job", str(Name(name.namespace, name.job)))
        now = mesh.now()
        checked = check_spec(mesh.jobs, name, request.job.spec, 1, now)
        with refusing("spec."):
            record, change = first_record(name, checked, now)
        record.spec.CopyFrom(checked.spec)
        record.last_request_id = mesh.randomness.token_hex(8)
        message = full_message(name, record, change.state, checked.definition, revision=0, now=now)
        if request.validate_only:
            return Done(message)
        txn = create_txn(name, record, change)
        if request_key:
            record_of_request = encode_request(body, message, now)
            txn = txn._replace(
                compares=(*txn.compares, absent(request_key)),
                then=(*txn.then, Put(request_key, record_of_request)),
            )
        return Plan(
            txn=txn,
            proof=written(txn, name.job_key),
            answer=partial(_with_etag, message),
        )

    # Update -----------------------------------------------------------------------------------

    async def update(self, name: Name, request: api.UpdateJobRequest, revision: int) -> pb.Job:
        """Changes a definition.

        Raises:
            NotFound: there is no such job.
            StaleRevision: it is another revision.
            InvalidArgument: the definition can't be used.
            IllegalState: too many edits wait for a decision.

        """
        merged(pb.JobSpec(), pb.JobSpec(), request.update_mask)
        if not request.update_mask.paths:
            scratch = new_name(self._mesh.jobs, name, self._mesh.randomness)
            check_spec(self._mesh.jobs, scratch, request.job.spec, 1, self._mesh.now())

        async def compute() -> Plan[pb.Job] | Done[pb.Job]:
            loaded = await self.changer.load(name, revision)
            edit = self.edit(loaded, request.job.spec, "", request.update_mask)
            if edit is None:
                return Done(await self._viewer.loaded(loaded))
            after, txn = edit
            if request.validate_only:
                return Done(await self._viewer.loaded(after))
            return await self._plan(txn, after)

        return await self.changer.carry_out(str(name), compute)

    def edit(
        self, loaded: LoadedJob, given: pb.JobSpec, source: str, mask: FieldMask | None = None
    ) -> tuple[LoadedJob, Txn] | None:
        """Returns a job as an edit leaves it, and the commit; None: it is so already."""
        mesh, record = self._mesh, loaded.record
        now = mesh.now()
        since = max(now, loaded.state.cursor)
        number = record.version + 1
        spec = merged(record.spec, given, mask or FieldMask())
        checked = check_spec(mesh.jobs, loaded.name, spec, number, since)
        if checked.spec == record.spec:
            return None
        if list(checked.spec.schedules) != list(record.spec.schedules):
            require_a_time(checked.definition, now)
        with refusing("spec."):
            job, change = policy.edit(loaded.job, loaded.state, checked.definition, now)
        former = records.VersionRecord(
            version=record.version,
            spec=record.spec,
            after_time_ns=record.effective_time_ns,
            until_time_ns=since,
            source=record.source,
        )
        after = self.changer.new_record(record)
        after.version = number
        after.spec.CopyFrom(checked.spec)
        after.effective_time_ns = since
        after.update_time_ns = now
        after.source = source
        after.tzdata_version = tzdata_version()
        key = keys.version_key(loaded.name.uid, record.version)
        txn = _change_txn(loaded, after, change, Put(key, former.SerializeToString()))
        return loaded._replace(job=job, state=change.state, record=after), txn

    def touch(self, loaded: LoadedJob, source: str) -> tuple[LoadedJob, Txn]:
        """Returns a job as it is once another source has applied it as it stands; and the commit.

        Whose it is decides about what prunes it.
        """
        after = self.changer.new_record(loaded.record)
        after.source = source
        after.update_time_ns = self._mesh.now()
        note_timer(after, loaded.timer)
        txn = Txn(
            compares=compares(loaded), then=(Put(loaded.name.job_key, after.SerializeToString()),)
        )
        return loaded._replace(record=after), txn

    # Pause and resume -------------------------------------------------------------------------

    async def pause(self, name: Name, reason: str) -> pb.Job:
        """Stops new starts; pausing twice is pausing once."""

        async def compute() -> Plan[pb.Job] | Done[pb.Job]:
            loaded = await self.changer.load(name)
            now = self._mesh.now()
            change = policy.pause(loaded.job, loaded.state, now)
            return await self._move(loaded, change, now, paused=True, reason=reason)

        return await self.changer.carry_out(str(name), compute)

    async def resume(self, name: Name, mode: ResumeMode) -> pb.Job:
        """Lets a job start again; resuming what is not paused changes nothing."""

        async def compute() -> Plan[pb.Job] | Done[pb.Job]:
            loaded = await self.changer.load(name)
            now = self._mesh.now()
            change = policy.resume(loaded.job, loaded.state, now, mode)
            return await self._move(loaded, change, now, paused=False, reason="")

        return await self.changer.carry_out(str(name), compute)

    async def _move(
        self, loaded: LoadedJob, change: Change, now: Instant, *, paused: bool, reason: str
    ) -> Plan[pb.Job] | Done[pb.Job]:
        if not change.changed:
            return Done(await self._viewer.loaded(loaded))
        record = self.changer.new_record(loaded.record)
        record.paused = paused
        record.pause_reason = reason
        record.update_time_ns = now
        after = loaded._replace(record=record, state=change.state)
        return await self._plan(_change_txn(loaded, record, change), after)

    async def _plan(self, txn: Txn, after: LoadedJob) -> Plan[pb.Job]:
        message = await self._viewer.loaded(after)
        return Plan(
            txn=txn,
            proof=written(txn, after.name.job_key),
            answer=partial(_with_etag, message),
        )

    # Delete -----------------------------------------------------------------------------------

    async def delete(self, name: Name, revision: int, uid: str) -> None:
        """Deletes a job. Reads its records only: what can't be understood can be deleted.

        Raises:
            NotFound: there is none, and neither etag nor uid says that it may be gone.
            StaleRevision: it is another revision.

        """

        async def compute() -> Plan[None] | Done[None]:
            mesh = self._mesh
            key = keys.job_key(name.namespace, name.job)
            (kv,) = (await mesh.store.get([key])).kvs
            record = records.JobRecord.FromString(kv.value)
            if uid and record.uid != uid:
                return Done(None)
            if not kv.create_revision:
                if revision:
                    return Done(None)
                raise NotFound("job", str(name))
            if revision and revision != kv.mod_revision:
                raise StaleRevision(f"etag of {name}", revision, kv.mod_revision)
            job = mesh.jobs.name_of(name.namespace, name.job, record.uid)
            (state_kv,) = await self.changer.read_states([job])
            return plan_delete(job, kv, state_kv, mesh.now())

        await self.changer.carry_out(str(name), compute)


def first_record(name: JobName, checked: Checked, now: Instant) -> tuple[records.JobRecord, Change]:
    """Returns the record of a new job but for its definition, and its first state.

    Raises:
        NeverFiresError: its schedules have no time after `now`.

    """
    job = policy.Job(
        namespace=name.namespace,
        name=name.job,
        uid=name.uid,
        created_at=now,
        definitions=(checked.definition,),
    )
    record = records.JobRecord(
        uid=name.uid,
        version=1,
        create_time_ns=now,
        update_time_ns=now,
        effective_time_ns=now,
        tzdata_version=tzdata_version(),
    )
    return record, policy.create(job, now)


def create_txn(name: JobName, record: records.JobRecord, change: Change) -> Txn:
    """Returns the commit of a new job."""
    note_timer(record, change.next_due)
    return Txn(
        compares=(absent(name.job_key), absent(name.state_key)),
        then=(
            Put(name.job_key, record.SerializeToString()),
            *state_ops(name, change.state, change.next_due, None),
        ),
        not_after_ns=change.not_after,
    )


def _change_txn(loaded: LoadedJob, record: records.JobRecord, change: Change, *more: Op) -> Txn:
    txn = Txn(
        compares=compares(loaded),
        then=(*change_ops(loaded, record, change), *more),
        not_after_ns=change.not_after,
    )
    return after_starts(txn, handles_of(loaded), change.not_after - CHANGE_SLACK)


def plan_delete(name: JobName, kv: KeyValue, state_kv: KeyValue, now: Instant) -> Plan[None]:
    """Plans a delete: what may be live moves to `deleted/`, where the leader works it off.

    What `why` needs goes to `former/`.

    The waiting starts stay in `buffered/`; the leader, who works them off too, records with each
    that it was dropped.
    """
    state = records.StateRecord.FromString(state_kv.value)
    deleted_key = keys.deleted_key(name.shard, name.uid)
    remains = records.DeletedRecord(
        namespace=name.namespace, job=name.job, live=state.live, delete_time_ns=now
    )
    timers: Sequence[Op] = ()
    if state.HasField("timer_ns"):
        timers = (Delete(keys.timer_key(name.shard, state.timer_ns, name.uid)),)
    txn = Txn(
        compares=(
            unchanged(kv),
            Compare(name.state_key, Target.MOD_REVISION, state_kv.mod_revision),
            absent(deleted_key),
        ),
        then=(
            Delete(name.job_key),
            Delete(name.state_key),
            *timers,
            Put(deleted_key, remains.SerializeToString()),
            former_put(name, records.JobRecord.FromString(kv.value), state, now),
        ),
        use_reserve=True,
    )
    txn = after_starts(txn, [handle.not_before_ns for handle in state.live], now)

    def gone(kvs: Sequence[KeyValue]) -> int:
        deleted, job = kvs
        if deleted.create_revision:
            return deleted.create_revision
        other = records.JobRecord.FromString(job.value).uid != name.uid
        return max(job.mod_revision, 1) if other else 0

    return Plan(
        txn=txn,
        proof=Proof(keys=(deleted_key, name.job_key), revision=gone),
        answer=lambda _revision: None,
    )


def _body(request: api.CreateJobRequest) -> bytes:
    body = api.CreateJobRequest()
    body.CopyFrom(request)
    body.ClearField("request_id")
    return body_hash(body)


def _with_etag(message: pb.Job, revision: int) -> pb.Job:
    message.etag = str(revision)
    return message
