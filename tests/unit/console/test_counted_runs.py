"""What a number on the first page counted is what its link lists."""

from __future__ import annotations

import asyncio
import re

from unit.console.site import Site
from unit.coordinator.api.test_dead_letters import make_dead
from unit.coordinator.api.world import NS, World, story

from sexton.v1 import job_pb2


def runs_of(page: str) -> set[str]:
    return set(re.findall(r'<tr data-row id="r-([^"]*)">', page))


def test_failures_that_look_alike_lead_to_just_these_runs() -> None:
    async def scenario(world: World) -> None:
        full = await make_dead(world, 2, schedules=[])
        world.queue.fails = "the other one is away"
        away = await make_dead(world, 1, f"{NS}/jobs/other")
        run = await world.start_run("third")
        await world.ended(run)
        site = Site(world)
        await site.follower.run_once()
        links = re.findall(r'href="(/runs\?job=[^"]*alike[^"]*)"', (await site.get("/")).text)
        listed = [runs_of((await site.get(link.replace("&amp;", "&"))).text) for link in links]
        expected = [{one.rpartition("/")[2] for one in names} for names in (full, away, [run.name])]
        assert len(listed) == 3
        assert all(each in listed for each in expected)

    story(scenario, fails="disk 1 is full")


def test_late_runs_lead_to_a_list_of_just_these() -> None:
    async def scenario(world: World) -> None:
        world.queue.reads_every_s = 3_600.0  # nobody takes what waits
        await asyncio.sleep(6)
        together = job_pb2.OVERLAP_POLICY_ALLOW_ALL
        await world.make(schedules=[], overlap=together)
        late = await world.start_run("late")
        await asyncio.sleep(20)
        punctual = await world.start_run("punctual")
        site = Site(world)
        page = (await site.get("/")).text
        assert 'href="/runs?state=late"' in page
        listed = runs_of((await site.get("/runs?state=late")).text)
        assert late.name.rpartition("/")[2] in listed
        assert punctual.name.rpartition("/")[2] not in listed
        assert len(runs_of((await site.get("/runs?state=live")).text)) == 2

    story(scenario, deaf=True)
