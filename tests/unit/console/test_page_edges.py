"""Addresses at the ends of what can be asked for, zones, and a mesh that goes and comes back."""

from __future__ import annotations

import asyncio
import html
import json
from typing import Any

import pytest
from starlette.requests import Request
from unit.console.site import CLIENT, Site
from unit.console.test_pages import Away, ended_run
from unit.coordinator.api.world import World, story

from sexton import errors
from sexton.v1 import job_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_console.traces.model import LogLine
from sexton_console.web import data, definition, live
from sexton_console.web.errands import Found
from sexton_console.web.pages import run as run_page
from sexton_console.words import schedule_text
from sexton_runtime import otlp


def test_what_an_address_asks_beyond_all_bounds_is_said_or_cut() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        run = "/".join((await ended_run(world)).name.split("/")[1::2])
        site = Site(world)
        for path, status in (
            ("/agenda?at=1970-01-01T00:00:00Z", 400), ("/agenda?at=2261-12-31T23:00:00Z", 400),
            (f"/api/runs/{run}/logs?after={'9' * 5_000}", 200),
            (f"/api/logs?before={'9' * 5_000}", 200), (f"/mesh?before={'9' * 18}", 200),
        ):  # fmt: skip
            assert (await site.get(path)).status == status, path

    story(scenario)


def test_service_logs_are_paged_beyond_a_thousand_million_lines() -> None:
    async def scenario(world: World) -> None:
        site = Site(world)
        for cursor in (5_000_000_000, 5_000_000_001):
            line = LogLine(cursor=cursor, at=1, span_id="", severity="info", body="b", service="s")
            site.logs.lines.append((None, line))
        found = await site.get("/api/logs?before=5000000001")
        assert [json.loads(text)["cursor"] for text in found.text.splitlines()] == [5_000_000_000]

    story(scenario)


def test_a_run_is_shown_in_the_zone_of_its_job() -> None:
    async def scenario(world: World) -> None:
        every = job_pb2.Schedule(cron="* * * * *", time_zone="Asia/Tokyo")
        await world.make(schedules=[every])
        run = "/".join((await ended_run(world)).name.split("/")[1::2])
        page = (await Site(world).get(f"/runs/{run}")).text
        assert 'data-zone="Asia/Tokyo"' in page
        assert 'data-zone="UTC"' not in page
        site = Site(world)
        own = (await site.get("/runs?job=report&before=2200-01-01")).text
        assert own.count('data-zone="Asia/Tokyo"') >= 1
        assert 'data-zone="Asia/Tokyo"' not in (await site.get("/runs")).text

    story(scenario)


def test_an_open_page_says_when_the_mesh_is_away_and_stops_saying_so() -> None:
    async def scenario(world: World) -> None:
        site = Site(world)
        problem = "The console has not reached the mesh yet."
        scope = {
            "type": "http", "method": "GET", "path": "/live", "query_string": b"", "headers": [],
            "session": site.sessions.of_secret(CLIENT),
        }  # fmt: skip
        stream = site.app.state.live._events(Request(scope), "/jobs")
        assert await anext(stream) == "retry: 2000\n\n"
        assert problem in await anext(stream)
        page = (await site.get("/jobs")).text
        assert page.index("<main") < page.index(problem)
        assert page.count(problem) == 1
        await site.follower.run_once()
        assert problem not in await anext(stream)
        await stream.aclose()

    story(scenario)


@pytest.mark.parametrize("error", [errors.Unavailable("away"), errors.DeadlineExceeded("slow")])
def test_the_output_of_a_run_is_followed_on_where_the_mesh_is_away(error: Exception) -> None:
    async def scenario(world: World) -> None:
        await world.make()
        run = await world.start_run("r1")
        site = Site(world)
        untyped: Any = site.api
        asked: list[str] = []

        async def away(name: str) -> Any:
            asked.append(name)
            if len(asked) < 3:
                raise error
            return run

        untyped.run = away
        trace = b"\1" * 16
        line = LogLine(cursor=1, at=1, span_id="", severity="", body="late", service="s")
        following = data._follow(site.desk, run, trace, 0)
        site.traces.written[trace] = [line]
        assert (await anext(following)).body == "late"
        site.traces.written[trace].append(
            LogLine(cursor=2, at=2, span_id="", severity="", body="later", service="s")
        )
        assert (await anext(following)).body == "later"
        before = site.desk.now_s
        assert await anext(following) is None, "a sign of life where nothing is written"
        assert site.desk.now_s - before >= 15
        await following.aclose()

    story(scenario)


def test_words_that_only_a_newer_mesh_knows_are_shown_as_unknown() -> None:
    async def scenario(world: World) -> None:
        site = Site(world)
        later: Any = 99
        member = api.Member(role=later, id="new", leading=True, token=7)
        answer = api.ListMembersResponse(members=[member])
        site.desk.watch.take(answer, 1.0)
        untyped: Any = site.api

        async def members() -> api.ListMembersResponse:
            return answer

        untyped.members = members
        assert "<b>unknown</b>" in (await site.get("/mesh")).text
        assert (await site.get("/")).status == 200
        spec = job_pb2.JobSpec(overlap=later, delivery=later)
        spec.catch_up.policy = later
        facts = dict(definition.facts_of(spec))
        assert [facts[name] for name in ("overlap", "catch-up", "delivery")] == ["unknown"] * 3
        step = job_pb2.CalendarInterval(unit=later, count=1, time_of_day="03:00")
        assert schedule_text(job_pb2.Schedule(calendar_interval=step)) == "every unknown at 03:00"

    story(scenario)


def test_output_beyond_what_a_page_shows_is_said_and_given_as_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_page, "LINES", 2)

    async def scenario(world: World) -> None:
        await world.make()
        run = await ended_run(world)
        path = "/".join(run.name.split("/")[1::2])
        context = otlp.trace_of(run.traceparent)
        assert context is not None
        site = Site(world)
        site.traces.written[context.trace_id] = [
            LogLine(cursor=n, at=n, span_id="", severity="", body=f"line {n}", service="s")
            for n in range(1, 15_001)
        ]
        page = (await site.get(f"/runs/{path}")).text
        assert "line 2<" in page
        assert "line 3<" not in page
        assert "the first 2 lines" in page
        whole = await site.get(f"/api/runs/{path}/logs?format=text")
        assert whole.text.splitlines()[-1] == "line 15000"

    story(scenario)


def test_a_stream_of_a_reader_that_takes_nothing_ends_and_is_counted_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "_LONGEST_S", 5.0)

    async def scenario(world: World) -> None:
        site = Site(world)
        streams = site.app.state.live
        scope = {
            "type": "http", "method": "GET", "path": "/live", "query_string": b"at=/jobs",
            "headers": [], "session": site.sessions.of_secret(CLIENT),
            "asgi": {"spec_version": "2.3"},
        }  # fmt: skip
        stuck = asyncio.Event()
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if len(sent) == 3:
                stuck.set()
                await asyncio.Event().wait()

        answer: Any = await streams.stream(Request(scope))
        reading = asyncio.create_task(answer(scope, receive, send))
        await stuck.wait()
        assert streams.open == 1
        assert (b"x-accel-buffering", b"no") in sent[0]["headers"]
        began = site.desk.now_s
        await reading
        assert 15 <= site.desk.now_s - began <= 21
        assert streams.open == 0

    story(scenario)


def test_a_run_that_waits_is_due_although_none_has_ended() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=[])
        await world.start_run("r1")
        page = (await Site(world).get("/")).text
        assert page.count("1 due, 0 done, 0 failed") == 1

    story(scenario)


@pytest.mark.parametrize("path", ["/jobs?q=x", "/jobs/default/report", "/agenda", "/dead-letters"])
def test_what_could_not_be_read_is_not_said_to_be_nothing(path: str) -> None:
    async def scenario(world: World) -> None:
        await world.make()
        site = Site(world)

        async def nothing(*_: Any, **__: Any) -> Found[Any]:
            return Found(None, complete=True, absent="It can't be had now: away")

        untyped: Any = site.desk.errands
        untyped.answer = nothing
        page = html.unescape((await site.get(path)).text)
        assert "It can't be had now: away" in page
        for claim in ("No job fits", "No run has ended", "There is none", "being read"):
            assert claim not in page

    story(scenario)


def test_a_mesh_that_is_away_is_not_shown_as_one_that_rests() -> None:
    async def scenario(world: World) -> None:
        site = Site(world)
        untyped: Any = site.api
        untyped._calls._wire = Away(untyped._calls._wire)
        page = html.unescape((await site.get("/")).text)
        for part in ("Members", "Lines", "The store’s state", "Runs in flight"):
            assert f"{part}: It can't be had now" in page
        assert "Nothing runs or waits" not in page
        assert "0 members" not in page

    story(scenario)
