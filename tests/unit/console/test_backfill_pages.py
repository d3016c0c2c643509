"""Backfills in the console: planned first, started once, listed, cancelled."""

from __future__ import annotations

import html
import re

import pytest
from unit.console.site import READER, Site
from unit.coordinator.api.test_backfills import DAYS
from unit.coordinator.api.world import World, every, story

PAGE = "/jobs/default/report/backfills"
PLAN = "/jobs/default/report/backfill?from=2026-09-01T00:00&to=2026-09-03T00:00"


def times_of(page: str) -> list[str]:
    return re.findall(r"<li><time[^>]*>([^<]*)</time></li>", page)


def test_what_would_run_is_shown_before_anything_starts() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=DAYS)
        site = Site(world)
        plan = await site.get(PLAN)
        assert "Backfill default/report: 3 runs?" in plan.text
        days = ["Tue 01 Sep 00:00:00", "Wed 02 Sep 00:00:00", "Thu 03 Sep 00:00:00"]
        assert times_of(plan.text) == days
        assert times_of((await site.get(f"{PLAN}&order=newest_first")).text) == days[::-1]
        assert "None goes on" in (await site.get(PAGE)).text

    story(scenario)


def test_a_plan_of_many_times_shows_the_first_hundred_and_says_how_many_follow() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=every(3_600))
        plan = (await Site(world).get(PLAN.replace("03T00", "10T00"))).text
        assert "<li>and 117 more</li>" in plan
        assert len(times_of(plan)) == 100

    story(scenario)


def test_a_backfill_is_started_once_however_often_its_form_is_sent_and_then_listed() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=DAYS)
        site = Site(world)
        form = {"request_id": "f" * 32}
        answers = [await site.post(PLAN, form, accept="*/*") for _ in range(2)]
        assert answers[0].text == answers[1].text
        page = (await site.get(PAGE)).text
        (row,) = re.findall(r'<tr id="b-[^"]*">.*?</tr>', page, re.DOTALL)
        assert 's-starting"' in row
        assert re.search(r"[01] of 3<", row)
        assert "/cancel" in row

    story(scenario)


def test_a_cancelled_backfill_starts_nothing_further_and_says_what_was_started() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=DAYS)
        site = Site(world)
        await site.post(PLAN, {"request_id": "f" * 32}, accept="*/*")
        (cancel,) = re.findall(r'href="([^"]*/cancel)"', (await site.get(PAGE)).text)
        asked = await site.get(cancel)
        assert "Those that it has started go on." in asked.text
        done = await site.post(cancel, {}, accept="*/*")
        assert re.search(r"[01] of 3 were started", done.text)
        page = (await site.get(PAGE)).text
        assert 's-cancelled"' in page
        assert "/cancel" not in page

    story(scenario)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "from"),
        ("from=2026-09-01T00:00", "to"),
        ("from=yesterday&to=2026-09-03T00:00", "from"),
        ("from=2026-09-03T00:00&to=2026-09-01T00:00", "2026-09-01"),
        ("from=2026-09-01T01:00&to=2026-09-01T02:00", "no nominal time"),
        ("from=2026-09-01T00:00&to=2926-09-01T00:00", "2926"),
    ],
)
def test_a_range_that_cannot_be_run_is_refused_in_the_users_words(query: str, said: str) -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=DAYS)
        page = await Site(world).get(f"/jobs/default/report/backfill?{query}")
        assert page.status == 400
        assert said in html.unescape(page.text)
        assert "None goes on" in (await Site(world).get(PAGE)).text

    story(scenario)


def test_a_reader_sees_backfills_and_is_offered_none() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=DAYS)
        site = Site(world)
        await site.post(PLAN, {"request_id": "f" * 32}, accept="*/*")
        page = await site.get(PAGE, authorization=f"Bearer {READER}")
        assert " of 3<" in page.text
        assert "/cancel" not in page.text
        assert '<form class="filter"' not in page.text
        assert (await site.get(PLAN, authorization=f"Bearer {READER}")).status == 403

    story(scenario)
