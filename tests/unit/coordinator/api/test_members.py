"""Who the mesh is."""

from __future__ import annotations

from unit.coordinator.api.world import World, story

from sexton.v1 import scheduler_pb2 as api

ROLE = api.Member.Role


def test_members_are_listed_by_role_with_leaders_first() -> None:
    async def scenario(world: World) -> None:
        leader = await world.leader()
        await world.until(world.mesh_now() + 1_000_000_000)
        answer = await world.mesh_api.ListMembers(api.ListMembersRequest())
        shown = [(ROLE.Name(m.role), m.address, m.leading) for m in answer.members]
        addresses = {"coordinator-1": "127.0.0.1:7400", "coordinator-2": "127.0.0.1:7402"}
        other = addresses[({*addresses} - {leader}).pop()]
        assert shown == [
            ("ROLE_STORE", "127.0.0.1:7600", True),
            ("ROLE_COORDINATOR", addresses[leader], True),
            ("ROLE_COORDINATOR", other, False),
            ("ROLE_QUEUE", "127.0.0.1:7700", True),
            ("ROLE_WORKER", "", False),
        ]
        assert answer.members[1].token > 0
        assert answer.members[3].details["state"] == "does not answer"
        assert answer.members[4].details["worker"] == "anna"
        assert all(abs(member.skew_ms) < 1_000 for member in answer.members)
        assert answer.HasField("mesh_time")

    story(scenario, coordinators=("coordinator-1", "coordinator-2"))


def test_a_member_that_is_dead_is_shown_until_its_lease_has_run_out() -> None:
    async def scenario(world: World) -> None:
        await world.leader()
        other = ({"coordinator-1", "coordinator-2"} - {await world.leader()}).pop()
        world.connect(await world.leader())
        world.crash(other)
        before = world.loop.now_ns
        answer = await world.mesh_api.ListMembers(api.ListMembersRequest())
        assert world.loop.now_ns - before < 1_500_000_000
        dead = [m for m in answer.members if m.details.get("state") == "does not answer"]
        assert len([m for m in dead if m.role == api.Member.ROLE_COORDINATOR]) == 1
        await world.until(world.mesh_now() + 12_000_000_000)
        answer = await world.mesh_api.ListMembers(api.ListMembersRequest())
        assert len([m for m in answer.members if m.role == api.Member.ROLE_COORDINATOR]) == 1

    story(scenario, coordinators=("coordinator-1", "coordinator-2"))
