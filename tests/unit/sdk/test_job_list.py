"""Lists of jobs that fit: the same of the real API and of the one in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from unit.coordinator.api.world import World, story
from unit.sdk.test_with_the_real_api import client_of

import sexton
from sexton import Cron, JobOrder, JobSpec, ShellTask, errors

BY_HAND = JobSpec(task=ShellTask("true"))
FROM_2030, FROM_2040 = (
    (Cron("@daily", start=datetime(year, 1, 1, tzinfo=UTC)),) for year in (2030, 2040)
)
JOBS = {
    "backup": replace(BY_HAND, description="Saves the SHOP, für alle"),
    "report": replace(BY_HAND, queue="shop-floor", schedules=FROM_2040),
    "send": replace(BY_HAND, schedules=FROM_2030),
    "tidy": replace(BY_HAND, schedules=FROM_2030),
    "shop/mail": replace(BY_HAND, schedules=(Cron("* * * * *"),)),
}
LISTS = [
    ({"words": "SHOP"}, ["backup", "report", "mail"]),
    ({"words": "für shop"}, ["backup"]),
    ({"words": "t/rep"}, ["report"]),
    ({"words": "nothing"}, []),
    ({"paused": True}, ["send"]),
    ({"paused": False, "prefix": "re"}, ["report"]),
    ({"order": JobOrder.NEXT_TIME}, ["mail", "tidy", "report"]),
    ({"names": ["shop/mail", "gone", "backup", "send"]}, ["mail", "backup", "send"]),
    ({"names": ["mail", "default/report"], "namespace": "shop"}, ["mail", "report"]),
    ({"names": ["report", "send"], "words": "floor"}, ["report"]),
    ({"names": ["report", "send"], "paused": True}, ["send"]),
    ({"names": iter(())}, []),
]


async def lists(client: sexton.AsyncClient) -> list[list[str]]:
    """Gives the names of each of the lists, of all namespaces."""
    await client.jobs.apply(JOBS)
    await client.jobs.pause("send")
    return [
        [job.name async for job in client.jobs.list(**{"all_namespaces": True, **asked})]
        for asked, _ in LISTS
    ]


def test_the_real_api_lists_the_jobs_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sexton._jobs_api._PAGE", 2)
    monkeypatch.setattr("sexton._jobs_api._NAMES", 2)

    async def scenario(world: World) -> None:
        async with client_of(world) as client:
            found = await lists(client)
        assert found == [expected for _, expected in LISTS]

    story(scenario)


async def test_the_api_in_memory_lists_the_same(address, api, monkeypatch):
    monkeypatch.setattr("sexton._jobs_api._NAMES", 2)
    api.jobs.clear()
    api._page_size = 2
    async with sexton.AsyncClient(address) as client:
        assert await lists(client) == [expected for _, expected in LISTS]


def test_a_list_goes_on_over_pages_on_which_nothing_fits_and_tells_how_far_it_is(client, api):
    client.jobs.apply({**{f"a{number}": BY_HAND for number in range(4)}, "z": BY_HAND})
    api.most_scanned = 2
    told = []
    found = client.jobs.list(words="/z", on_progress=told.append)
    assert [job.name for job in found] == ["z"]
    assert told == [2, 4, 6]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"paused": "no"}, "paused"),
        ({"words": 7}, "words"),
        ({"words": "\ud800"}, "words"),
        ({"order": "newest"}, "job_order"),
        ({"names": "nightly"}, "names"),
        ({"names": ["Nightly"]}, "job"),
        ({"names": [], "prefix": "a"}, "names"),
        ({"names": ["nightly"], "order": JobOrder.NEXT_TIME}, "names"),
    ],
)
def test_a_list_that_can_not_be_is_refused_before_anything_is_sent(client, api, asked, field):
    with pytest.raises(errors.InvalidArgument) as refused:
        next(client.jobs.list(**asked))
    assert (refused.value.field, api.calls) == (field, [])


def test_words_are_limited(client):
    with pytest.raises(errors.InvalidArgument, match="at most 200 characters"):
        next(client.jobs.list(words="x" * 201))
