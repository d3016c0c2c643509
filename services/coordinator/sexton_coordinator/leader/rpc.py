"""What the leader answers: starts forwarded by other replicas, and who this member is."""

from __future__ import annotations

from functools import partial
from typing import Any

from sexton.errors import InvalidArgument
from sexton.internal.v1 import coordinator_pb2 as pb
from sexton.internal.v1 import coordinator_pb2_grpc as grpc_services
from sexton.v1 import scheduler_pb2
from sexton_coordinator.leader.leadership import Leadership
from sexton_coordinator.mesh import Mesh
from sexton_core.errors import FieldError
from sexton_core.ids import check_name, check_uid
from sexton_core.instants import MILLISECOND
from sexton_records.state import OVERLAP_OF
from sexton_runtime.rpc.server import Service
from sexton_runtime.secrets import Role
from sexton_runtime.version import software_version

LEADER_SERVICE = "sexton.internal.v1.LeaderService"
MEMBER_SERVICE = "sexton.internal.v1.MemberService"
_MAX_REQUEST_ID = 128


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
    """Passes starts to the tenure that leads the job's shard."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership

    async def Trigger(  # noqa: N802 - the proto's name
        self, request: pb.TriggerRequest, _context: Any
    ) -> pb.TriggerResponse:
        """Starts a run through the gate."""
        try:
            check_name("namespace", request.namespace)
            check_name("job", request.job)
            check_uid(request.uid)
        except FieldError as error:
            raise InvalidArgument(error.field, error.value, error.expected) from None
        request_id = request.request_id
        if not 1 <= len(request_id) <= _MAX_REQUEST_ID or not request_id.isprintable():
            raise InvalidArgument("request_id", request_id, "1 to 128 printable characters")
        if request.overlap and request.overlap not in OVERLAP_OF:
            raise InvalidArgument("overlap", request.overlap, "a policy that this version knows")
        return pb.TriggerResponse(answer=await self._leadership.trigger(request))


class MemberServicer(grpc_services.MemberServiceServicer):
    """Tells who this member is."""

    def __init__(self, mesh: Mesh, leadership: Leadership) -> None:
        self._mesh = mesh
        self._leadership = leadership

    async def DescribeMember(  # noqa: N802 - the proto's name
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
