"""What the leader answers: what other replicas forward to it, and who this member is."""
# ruff: noqa: N802 - the methods' names are the protos'

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from sexton.errors import InvalidArgument
from sexton.internal.v1 import coordinator_pb2 as pb
from sexton.internal.v1 import coordinator_pb2_grpc as grpc_services
from sexton.v1 import scheduler_pb2
from sexton_coordinator.jobs_store import JobRef
from sexton_coordinator.leader.leadership import Leadership
from sexton_coordinator.mesh import Mesh
from sexton_core.errors import FieldError
from sexton_core.ids import RunId, check_backfill_id, check_name, check_uid, parse_run_id
from sexton_core.instants import MAX_INSTANT, MILLISECOND
from sexton_core.policy.backfill import MAX_BACKFILL_RUNS
from sexton_records import keys
from sexton_records.backfills import ASKED_ORDERS, ASKED_OVERLAPS
from sexton_records.state import OVERLAP_OF
from sexton_runtime.rpc.server import Service
from sexton_runtime.secrets import Role
from sexton_runtime.version import software_version

LEADER_SERVICE = "sexton.internal.v1.LeaderService"
MEMBER_SERVICE = "sexton.internal.v1.MemberService"
_MAX_REQUEST_ID = 128
_MAX_DEAD = 1_000


def leader_services(mesh: Mesh, leadership: Leadership) -> tuple[Service, ...]:
    """Returns the services of a coordinator that other members call."""
    mesh_only = frozenset({Role.MESH})
    leader, member = LeaderServicer(leadership), MemberServicer(mesh, leadership)
    return (
        Service(
            LEADER_SERVICE,
            mesh_only,
            partial(grpc_services.add_LeaderServiceServicer_to_server, leader),
        ),
        Service(
            MEMBER_SERVICE,
            mesh_only,
            partial(grpc_services.add_MemberServiceServicer_to_server, member),
        ),
    )


class LeaderServicer(grpc_services.LeaderServiceServicer):
    """Passes what is asked for to the tenure that leads the job's shard."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership

    async def Trigger(self, request: pb.TriggerRequest, _context: Any) -> pb.TriggerResponse:
        """Starts a run through the gate."""
        _job_ref(request.namespace, request.job, request.uid)
        if request.retry_of:
            with _refusing():
                parse_run_id(request.retry_of, field="retry_of")
        if request.dead_letter:
            _check_dead_letter(request.dead_letter, request.uid, request.retry_of)
        else:
            _check_request_id(request.request_id)
        if request.overlap and request.overlap not in OVERLAP_OF:
            raise InvalidArgument("overlap", request.overlap, "a policy that this version knows")
        if not 0 <= request.nominal_ns <= MAX_INSTANT:
            raise InvalidArgument("nominal_ns", request.nominal_ns, "an instant")
        tenure = self._leadership.of_job(request.uid)
        return await tenure.trigger(request)

    async def PurgeDead(self, request: pb.PurgeDeadRequest, _context: Any) -> pb.PurgeDeadResponse:
        """Takes dead letters off the list."""
        if not 1 <= len(request.dead_letters) <= _MAX_DEAD:
            count = len(request.dead_letters)
            raise InvalidArgument("dead_letters", count, f"1 to {_MAX_DEAD:,} keys")
        for key in request.dead_letters:
            _check_dead_letter(key)
        await self._leadership.require(request.shard).purge_dead(request.dead_letters)
        return pb.PurgeDeadResponse()

    async def StartBackfill(
        self, request: pb.StartBackfillRequest, _context: Any
    ) -> pb.StartBackfillResponse:
        """Records a backfill, to be worked off."""
        asked = request.request
        _check_request_id(asked.request_id)
        if asked.overlap not in ASKED_OVERLAPS or asked.order not in ASKED_ORDERS:
            raise InvalidArgument("overlap", asked.overlap, "a policy that this version knows")
        if not 1 <= request.total <= MAX_BACKFILL_RUNS:
            raise InvalidArgument("total", request.total, f"1 to {MAX_BACKFILL_RUNS:,}")
        parts = asked.parent.split("/")
        if len(parts) != len(("namespaces", "", "jobs", "")):
            raise InvalidArgument("parent", asked.parent, "the name of a job")
        ref = _job_ref(parts[1], parts[3], request.uid)
        tenure = self._leadership.of_job(request.uid)
        return pb.StartBackfillResponse(backfill=await tenure.start_backfill(request, ref))

    async def StopBackfill(
        self, request: pb.StopBackfillRequest, _context: Any
    ) -> pb.StopBackfillResponse:
        """Has a backfill start nothing any more."""
        ref = _job_ref(request.namespace, request.job, request.uid)
        with _refusing():
            check_backfill_id(request.backfill)
        tenure = self._leadership.of_job(request.uid)
        return pb.StopBackfillResponse(backfill=await tenure.stop_backfill(ref, request.backfill))


def _job_ref(namespace: str, job: str, uid: str) -> JobRef:
    with _refusing():
        return JobRef(check_uid(uid), check_name("namespace", namespace), check_name("job", job))


def _check_request_id(text: str) -> None:
    if not 1 <= len(text) <= _MAX_REQUEST_ID or not text.isprintable():
        raise InvalidArgument("request_id", text, "1 to 128 printable characters")


def _check_dead_letter(key: bytes, uid: str = "", run_id: RunId = "") -> None:
    """Refuses what is no dead letter's key, or (where they are given) another job's or run's."""
    try:
        of = keys.parse_ended_key(key) if key.startswith(keys.DEAD) else None
    except ValueError:
        of = None
    if of is None or (uid and of[1:] != (uid, run_id)):
        raise InvalidArgument("dead_letter", key, "the key of a dead letter of this run")


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except FieldError as error:
        raise InvalidArgument(error.field, error.value, error.expected) from None


class MemberServicer(grpc_services.MemberServiceServicer):
    """Tells who this member is."""

    def __init__(self, mesh: Mesh, leadership: Leadership) -> None:
        self._mesh = mesh
        self._leadership = leadership

    async def DescribeMember(
        self, _request: pb.DescribeMemberRequest, _context: Any
    ) -> pb.DescribeMemberResponse:
        """Answers from memory: the first shard that is led, where there are several."""
        mesh = self._mesh
        member = scheduler_pb2.Member(
            role=scheduler_pb2.Member.ROLE_COORDINATOR,
            id=mesh.id,
            address=mesh.address,
            skew_ms=(mesh.clock.wall_ns() - mesh.now()) // MILLISECOND,
            software_version=software_version(),
        )
        for shard in range(mesh.coordinator_shards):
            tenure = self._leadership.tenure(shard)
            if tenure is not None:
                member.leading, member.shard, member.token = True, shard, tenure.lease.token
                break
        return pb.DescribeMemberResponse(member=member)
