"""A job's plots and its calendar show the range that was chosen, and say where they end."""

from __future__ import annotations

import re

import pytest
from unit.console.site import Site
from unit.console.test_pages import Text
from unit.coordinator.api.world import World, story

from sexton_console.mesh.numbers import Seen
from sexton_console.web import charts
from sexton_console.web.pages import past

DAY_S = 86_400.0
NOW_S = 1_000 * DAY_S + 3_600


def seen(number: int, ended_s: float, state: str = "succeeded", took_s: float = 1.0) -> Seen:
    return Seen("default/a", f"t{number}", state, ended_s - took_s, ended_s - took_s, ended_s)


def test_in_a_range_each_run_stands_where_its_time_is() -> None:
    runs = [seen(1, NOW_S), seen(2, NOW_S - DAY_S / 2)]
    drawn = charts.plot(runs, NOW_S - DAY_S, NOW_S)
    assert [(dot.run, dot.x) for dot in drawn.took] == [("t2", 342.0), ("t1", 632.0)]
    side_by_side = charts.plot(runs)
    assert [dot.x for dot in side_by_side.took] == [52.0, 632.0]


def test_of_very_many_runs_the_failed_the_middle_and_the_largest_are_drawn() -> None:
    runs = [seen(n, NOW_S - n, took_s=1 + n % 7) for n in range(2_000)]
    runs[777] = seen(777, NOW_S - 777, "failed", took_s=0.5)
    drawn = charts.plot(runs, NOW_S - 2_000, NOW_S)
    assert drawn.runs == 2_000
    assert len(drawn.took) <= charts.MAX_DOTS
    assert [dot.run for dot in drawn.took if dot.state == "failed"] == ["t777"]
    assert {dot.value for dot in drawn.took if dot.state == "succeeded"} >= {"4 s", "7 s"}


def test_days_of_which_not_all_was_read_are_not_shown_as_empty() -> None:
    runs = [seen(1, NOW_S), seen(2, NOW_S - 2 * DAY_S)]
    days = charts.calendar(runs, NOW_S, since_s=NOW_S - 2 * DAY_S)
    assert [(day.runs, day.known) for day in days[-4:]] == [
        (0, False), (1, False), (0, True), (1, True),
    ]  # fmt: skip
    assert all(day.known for day in charts.calendar(runs, NOW_S))


def test_a_range_is_read_page_by_page_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "_PAGE", 2)
    monkeypatch.setattr(past, "NEWEST", 3)

    async def scenario(world: World) -> None:
        await world.make(schedules=[])
        for number in range(5):
            await world.ended(await world.start_run(f"r{number}"))
        site = Site(world)
        newest = Text((await site.get("/jobs/default/report")).text).text
        assert " 3 runs by day" in newest
        assert "days before are left blank" in newest
        day = (await site.get("/jobs/default/report?range=day")).text
        assert " 5 runs by day" in Text(day).text
        assert re.search(r'range=day#past" aria-current="true">day<', day)
        assert "days before are left blank" not in day

    story(scenario)
