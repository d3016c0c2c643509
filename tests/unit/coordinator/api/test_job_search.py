"""Lists of jobs that fit: by words, by pause, by name, and in the order in which they are due."""

from __future__ import annotations

import pytest
from unit.coordinator.api.world import MINUTES, NS, World, story

from sexton.v1 import job_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import job_listing, job_order


async def listed(world: World, size: int = 100, **asked: object) -> list[str]:
    """Lists all pages; gives the names, shortened."""
    names: list[str] = []
    token = ""
    while True:
        request = api.ListJobsRequest(page_size=size, page_token=token, **asked)  # type: ignore[arg-type]
        page = await world.jobs_api.ListJobs(request)
        names += [job.name.removeprefix("namespaces/") for job in page.jobs]
        token = page.next_page_token
        if not token:
            return names


def daily(hour: int) -> list[job_pb2.Schedule]:
    return [job_pb2.Schedule(cron=f"0 {hour} * * *", time_zone="UTC")]


def test_words_are_looked_for_in_names_queues_and_descriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        await world.make(f"{NS}/jobs/backup", description="Saves the SHOP, für alle")
        await world.make(f"{NS}/jobs/report", queue="shop-floor")
        await world.make("namespaces/shop/jobs/mail")
        await world.make(f"{NS}/jobs/other", labels={"team": "shop"})
        assert await listed(world, words="shop") == [
            "default/jobs/backup",
            "default/jobs/report",
            "shop/jobs/mail",
        ]
        assert await listed(world, words="shop BACK") == ["default/jobs/backup"]
        assert await listed(world, words="t/rep") == ["default/jobs/report"]
        assert await listed(world, words="FÜR") == ["default/jobs/backup"]
        assert await listed(world, words="nothing") == []
        assert await listed(world, words="shop", parent="namespaces/shop") == ["shop/jobs/mail"]
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=f"{NS}/jobs/report"))
        assert await listed(world, paused=True) == ["default/jobs/report"]
        assert await listed(world, paused=False, words="shop") == [
            "default/jobs/backup",
            "shop/jobs/mail",
        ]
        # In pieces: what does not fit is behind a page as what fits is.
        monkeypatch.setattr(job_listing, "_SEARCHED", 1)
        monkeypatch.setattr(job_listing, "MAX_SEARCHED", 1)
        first = await world.jobs_api.ListJobs(api.ListJobsRequest(words="mail"))
        assert (len(first.jobs), first.scanned, bool(first.next_page_token)) == (0, 1, True)
        assert await listed(world, words="shop", size=1) == [
            "default/jobs/backup",
            "default/jobs/report",
            "shop/jobs/mail",
        ]

    story(scenario)


def test_jobs_are_listed_in_the_order_in_which_they_are_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_order, "_TIMERS", 2)

    async def scenario(world: World) -> None:
        for name, schedules in (
            ("a", daily(9)), ("b", daily(7)), ("c", MINUTES), ("d", daily(8)), ("by-hand", []),
        ):  # fmt: skip
            await world.make(f"{NS}/jobs/{name}", schedules=schedules)
        for size in (1, 2, 3, 100):
            names = await listed(world, size, order=api.JOB_ORDER_NEXT_TIME)
            assert [name[-1] for name in names] == ["c", "b", "d", "a"]
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=f"{NS}/jobs/b"))
        names = await listed(world, order=api.JOB_ORDER_NEXT_TIME)
        assert [name[-1] for name in names] == ["c", "d", "a"]

    story(scenario)


def test_jobs_are_listed_by_their_names_in_the_order_asked_for() -> None:
    async def scenario(world: World) -> None:
        for name in "abc":
            await world.make(f"{NS}/jobs/{name}", description="third" if name == "c" else "")
        wanted = [f"{NS}/jobs/{name}" for name in ("c", "gone", "a", "b")]
        for size in (1, 2, 100):
            names = await listed(world, size, names=wanted)
            assert [name[-1] for name in names] == ["c", "a", "b"]
        assert await listed(world, names=wanted, words="third") == ["default/jobs/c"]

    story(scenario)
