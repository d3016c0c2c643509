"""Tells who the mesh is: leases, what their holders say of themselves, workers, the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from sexton.errors import SextonError
from sexton.internal.v1 import coordinator_pb2, queue_pb2
from sexton.internal.v1.coordinator_pb2_grpc import MemberServiceStub
from sexton.internal.v1.queue_pb2_grpc import QueueServiceStub
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.directory import Holder
from sexton_coordinator.mesh import Mesh
from sexton_records.times import timestamp

MEMBERS: Final = "members/"
_COORDINATORS: Final = "coordinator/"
_QUEUES: Final = "queue/"
_ANSWER_S: Final = 0.5
"""A member that is slower is listed as its lease shows it."""

_AT_ONCE: Final = 16
_MAX_LISTED: Final = 3_000
_MAX_DETAIL: Final = 200
"""Members, and characters of a detail: an answer has at most 4 MiB."""

_ROLES: Final = {
    "coordinator": api.Member.ROLE_COORDINATOR,
    "queue": api.Member.ROLE_QUEUE,
}
_UNREACHABLE: Final = "does not answer"

Answer = TypeVar("Answer")


class MemberLister:
    """Lists members."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._several = asyncio.Semaphore(_AT_ONCE)

    async def members(self) -> api.ListMembersResponse:
        """Returns the store, coordinators, queues and workers; leaders first within each role."""
        directory = self._mesh.directory
        leading = {
            holder.id: holder
            for prefix in (_COORDINATORS, _QUEUES)
            for holder in directory.holders(prefix)
        }
        standing = {
            (role, holder.id): holder
            for holder in directory.holders(MEMBERS)
            if (role := _role_of(holder)) is not None
        }
        for holder in leading.values():  # its own membership may have run out, or not begun
            role = _ROLES[holder.name.partition("/")[0]]
            standing.setdefault((role, holder.id), holder)
        store, *described = await asyncio.gather(
            self._store(),
            *(
                self._describe(role, holder, leading.get(holder.id))
                for (role, _), holder in standing.items()
            ),
        )
        workers = await self._workers(directory.holders(_QUEUES))
        members = sorted(
            [store, *described, *workers],
            key=lambda member: (member.role, not member.leading, member.shard, member.id),
        )
        return api.ListMembersResponse(
            members=members[:_MAX_LISTED], mesh_time=timestamp(self._mesh.now())
        )

    async def _store(self) -> api.Member:
        status, clock = await asyncio.gather(self._mesh.store.status(), self._mesh.store.clock())
        return api.Member(
            role=api.Member.ROLE_STORE,
            id=status.incarnation,
            address=self._mesh.store_address,
            leading=True,
            skew_ms=(clock.wall_time_ns - clock.mesh_time_ns) // 1_000_000,
            software_version=status.software_version,
            details={
                "revision": str(status.revision),
                "keys": str(status.keys),
                "used_bytes": str(status.used_bytes),
                "full": "yes" if status.full else "no",
                "clock": clock.state.name.lower(),
            },
        )

    async def _describe(
        self, role: api.Member.Role.ValueType, holder: Holder, lease: Holder | None
    ) -> api.Member:
        """Returns a member as it describes itself; what its leases say goes before."""
        member = api.Member()
        response = None
        if holder.address:
            stub = MemberServiceStub(self._mesh.channel(holder.address))
            request = coordinator_pb2.DescribeMemberRequest()
            response = await self._asked(lambda: stub.DescribeMember(request, timeout=_ANSWER_S))
        if response is not None and response.member.id == holder.id:
            member.CopyFrom(response.member)
        else:
            member.details["state"] = _UNREACHABLE
        member.role = role
        member.id = holder.id
        member.address = holder.address
        member.software_version = holder.software_version
        member.leading = lease is not None
        member.token = lease.token if lease is not None else 0
        if lease is not None:
            member.shard = int(lease.name.rpartition("/")[2])
        return member

    async def _workers(self, owners: Iterable[Holder]) -> list[api.Member]:
        """Returns the workers that the owners of the queues' shards know."""
        answers = await asyncio.gather(*map(self._sessions, owners))
        return [member for members in answers for member in members]

    async def _sessions(self, owner: Holder) -> list[api.Member]:
        if not owner.address:
            return []
        stub = QueueServiceStub(self._mesh.channel(owner.address))
        request = queue_pb2.DescribeQueuesRequest()
        response = await self._asked(lambda: stub.DescribeQueues(request, timeout=_ANSWER_S))
        if response is None:
            return []
        shard = int(owner.name.rpartition("/")[2])
        return [_worker(session, shard) for session in response.sessions]

    async def _asked(self, call: Callable[[], Awaitable[Answer]]) -> Answer | None:
        async with self._several:
            try:
                return await call()
            except SextonError:
                return None


def _worker(session: queue_pb2.SessionInfo, shard: int) -> api.Member:
    state = "connected" if session.connected else "away"
    return api.Member(
        role=api.Member.ROLE_WORKER,
        id=session.session,
        shard=shard,
        software_version=session.software_version,
        details={
            "worker": session.worker[:_MAX_DETAIL],
            "queues": ", ".join(session.queues)[:_MAX_DETAIL],
            "tasks": ", ".join(session.tasks)[:_MAX_DETAIL],
            "kinds": ", ".join(session.kinds)[:_MAX_DETAIL],
            "slots": str(session.slots),
            "running": str(session.running),
            "silent_ms": str(session.silent_ms),
            "state": "draining" if session.draining else state,
        },
    )


def _role_of(holder: Holder) -> api.Member.Role.ValueType | None:
    """Returns the role in the name of a membership, `members/{role}/{id}`."""
    return _ROLES.get(holder.name.split("/")[1])
