"""The follower against the coordinators' own API, and against a mesh that is too fast for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from unit.console.site import Site, WorldClock
from unit.coordinator.api.world import World, story

from sexton import errors
from sexton.v1 import run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_console.mesh.follower import Follower, seen_of
from sexton_console.mesh.numbers import Numbers
from sexton_console.mesh.takeovers import LeaderWatch
from sexton_console.web.pages.job import run_row

T0 = 1_800_000_000


def test_each_run_that_ends_is_counted_once() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=[])
        follower = Site(world).follower
        assert await follower.run_once() == 0
        assert follower.problem == ""
        run = await world.ended(await world.start_run("a"))
        assert await follower.run_once() == 1
        assert await follower.run_once() == 0
        await world.ended(await world.start_run("b"))
        assert await follower.run_once() == 1
        (first, _) = follower.numbers.outcomes("default/report")
        assert first.run == run.name.split("/")[-1]

    story(scenario)


class Fast:
    """A mesh on which more ends than is read: whole pages, and always a further one."""

    def __init__(self) -> None:
        self.end_s = T0
        self.pages = 0

    async def runs(self, *, after: Any, size: int, token: str, **_: Any) -> api.ListRunsResponse:
        self.pages += 1
        page = int(token or 0)
        found = []
        for number in range(size):
            ended = self.end_s - (page * size + number) * 0.0005
            stamp = Timestamp()
            stamp.FromNanoseconds(round(ended * 1e9))
            found.append(
                run_pb2.Run(
                    name=f"namespaces/default/jobs/j/runs/r{round(ended * 1e4)}",
                    state=run_pb2.RUN_STATE_SUCCEEDED, end_time=stamp, due_time=stamp,
                )
            )  # fmt: skip
        return api.ListRunsResponse(runs=found, next_page_token=str(page + 1))


class At:
    def __init__(self, mesh: Fast) -> None:
        self._mesh = mesh

    def wall_ns(self) -> int:
        return round(self._mesh.end_s * 1e9)

    monotonic_ns = wall_ns


async def test_a_mesh_that_is_too_fast_is_read_in_part_and_estimated() -> None:
    mesh = Fast()
    untyped: Any = mesh
    clock: Any = At(mesh)
    follower = Follower(untyped, clock)
    await follower.run_once()
    mesh.pages = 0
    mesh.end_s += 10
    assert await follower.run_once() == 500
    assert mesh.pages == 1
    assert follower.numbers.estimated(mesh.end_s)
    counted = sum(minute.done for minute in follower.numbers.minutes(mesh.end_s)[-2:])
    # 2,000 a second; the first look saw 3,000 of the past, the second stands for twelve seconds.
    assert 25_000 < counted < 30_000


@pytest.mark.parametrize(("ended_ms", "took_s"), [(30, 0.03), (-100, 0)])
def test_a_run_takes_no_time_while_a_worker_keeps_it(ended_ms: int, took_s: float) -> None:
    def at(milliseconds: int) -> Timestamp:
        stamp = Timestamp()
        stamp.FromMilliseconds(T0 * 1_000 + milliseconds)
        return stamp

    run = run_pb2.Run(
        name="namespaces/default/jobs/j/runs/r",
        state=run_pb2.RUN_STATE_SUCCEEDED,
        due_time=at(0),
        end_time=at(ended_ms),
        attempts=[run_pb2.Attempt(number=1, assign_time=at(-200), worker="one")],
    )
    row = run_row(run)
    assert (row.late_s, row.took_s) == (0, pytest.approx(took_s))
    numbers = Numbers()
    numbers.add(seen_of(run))
    (outcome,) = numbers.outcomes("default/j")
    assert (outcome.late_s, outcome.took_s) == (0, pytest.approx(took_s, abs=1e-5))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errors.Unavailable("nobody is there"), "The mesh does not answer: nobody is there"),
        (ValueError("odd"), "The console could not read an answer of the mesh; its log has it."),
    ],
)
async def test_a_mesh_that_is_away_or_odd_is_said_and_looked_for_again(
    error: Exception, said: str
) -> None:
    asked = asyncio.Event()

    class Away:
        async def runs(self, **_: Any) -> api.ListRunsResponse:
            asked.set()
            raise error

    untyped: Any = Away()
    clock: Any = At(Fast())
    follower = Follower(untyped, clock)
    await follower.start()
    await asked.wait()
    await asyncio.sleep(0)
    assert follower.problem == said
    assert follower._running is not None
    assert not follower._running.done()
    await follower.stop()
    await follower.stop()


def test_takeovers_are_seen_by_tokens_that_rise() -> None:
    untyped: Any = None
    watch = LeaderWatch(untyped, untyped)

    def leads(member: str, token: int) -> api.ListMembersResponse:
        role = api.Member.ROLE_COORDINATOR
        return api.ListMembersResponse(
            members=[
                api.Member(role=role, id=member, token=token, leading=True, address=member),
                api.Member(role=role, id="standby"),
                api.Member(role=api.Member.ROLE_STORE, id="s", leading=True),
            ]
        )

    watch.take(leads("a", 5), 1.0)
    watch.take(leads("a", 5), 2.0)
    watch.take(leads("b", 9), 3.0)
    watch.take(leads("a", 5), 4.0)  # an answer of before
    assert [(t.holder, t.token, t.since_s, t.until_s) for t in watch.takeovers()] == [
        ("b", 9, 3.0, 0.0),
        ("a", 5, 1.0, 3.0),
    ]


def test_a_watch_of_leaders_begins_and_ends() -> None:
    async def scenario(world: World) -> None:
        watch = LeaderWatch(Site(world).api, WorldClock(world))
        await watch.start()
        await asyncio.sleep(1)
        assert {term.role for term in watch.takeovers()} == {"coordinator", "queue"}
        await watch.stop()
        await watch.stop()

    story(scenario)
