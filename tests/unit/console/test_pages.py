"""What the pages show of a mesh, and that nothing from outside is more than text in them."""

from __future__ import annotations

import asyncio
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from starlette.requests import Request
from unit.console.site import CLIENT, Site
from unit.coordinator.api.world import JOB, NS, S, World, shell, story

from sexton import errors
from sexton.v1 import job_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_console.mesh.numbers import Seen
from sexton_console.traces.model import LogLine, Span
from sexton_console.web import rows
from sexton_console.web.pages import jobs
from sexton_console.web.render import environment, output_text
from sexton_console.web.shared import shared
from sexton_runtime import otlp

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


class Text(HTMLParser):
    """The text of a page, and the tags in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def assert_harmless(page: str) -> Text:
    """Checks that a page has no script, image or handler but our own."""
    found = Text(page)
    for tag, attributes in found.tags:
        assert tag not in ("img", "iframe", "object", "embed", "style"), tag
        assert tag != "script" or (attributes.get("src") or "").startswith("/static/")
        assert not [name for name in attributes if name.startswith("on")], attributes
        target = attributes.get("href") or ""
        assert not target.lower().startswith(("javascript:", "data:")), target
    return found


def ended_run(world: World) -> asyncio.Future:
    async def go():
        run = await world.start_run("r1")
        return await world.ended(run)

    return asyncio.ensure_future(go())


def test_a_job_is_listed_and_found_by_its_words() -> None:
    async def scenario(world: World) -> None:
        await world.make(description="saves the shop")
        await world.make(f"{NS}/jobs/other", schedules=[])
        site = Site(world)
        page = Text((await site.get("/jobs")).text).text
        assert "report every 1 min" in page
        assert "other by hand only" in page
        found = Text((await site.get("/jobs?q=SHOP+rep")).text).text
        assert "1 of 2 jobs" in found
        assert "report every" in found
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB))
        await asyncio.sleep(3)
        paused = Text((await site.get("/jobs?state=paused")).text).text
        assert "1 of 2 jobs" in paused
        assert "No job fits." in (await site.get("/jobs?q=nothing")).text

    story(scenario)


def test_jobs_are_sorted_by_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        for name in ("a", "b", "c"):
            await world.make(f"{NS}/jobs/{name}", schedules=[])
        site = Site(world)
        for number, name in enumerate("bca"):
            site.follower.numbers.add(
                Seen(f"default/{name}", "t1", "succeeded", 1, 1 + number, 10 - number)
            )

        async def order(sort: str) -> str:
            page = (await site.get(f"/jobs?sort={sort}")).text
            return "".join(re.findall(r'href="/jobs/default/(\w)" data-open', page))

        assert [await order(sort) for sort in ("name", "last", "late", "took")] == [
            "abc", "bca", "acb", "bca",
        ]  # fmt: skip
        failed = Seen("default/c", "t2", "failed", 20, 20, 21)
        site.follower.numbers.add(failed)
        page = (await site.get("/jobs?state=failing")).text
        assert "1 of 1 jobs of which this console has seen a run end" in Text(page).text
        monkeypatch.setattr(jobs, "PAGE", 2)
        site.desk.forget()
        page = (await site.get("/jobs?sort=last")).text
        following = re.search(r'href="(/jobs\?sort=last[^"]*page=2)"', page.replace("&amp;", "&"))
        assert following is not None
        assert re.findall(r'href="/jobs/default/(\w)" data-open', page) == ["c", "b"]
        rest = (await site.get(following[1])).text
        assert re.findall(r'href="/jobs/default/(\w)" data-open', rest) == ["a"]

    story(scenario)


@pytest.mark.slow
def test_nothing_that_a_job_says_becomes_more_than_text() -> None:
    async def scenario(world: World) -> None:
        schedules = [job_pb2.Schedule(cron="0 3 * * *", time_zone="Europe/Berlin")]
        await world.make(
            task=shell(EVIL), description=EVIL, labels={"team": EVIL[:60]}, schedules=schedules
        )
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB, reason=EVIL))
        site = Site(world)
        for path in ("/jobs", "/jobs/default/report", "/jobs?q=script", "/agenda", "/"):
            assert_harmless((await site.get(path)).text)
        shown = assert_harmless((await site.get("/jobs/default/report")).text)
        assert "<script>alert(1)</script>" in shown.text

    story(scenario)


def test_nothing_that_an_address_says_becomes_more_than_text() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        site = Site(world)
        evil = "%3Cscript%3Ealert(1)%3C/script%3E%22%27%3E%3Cimg src=x onerror=alert(2)%3E"
        for path in (
            f"/jobs?q={evil}", f"/jobs?done={evil}", f"/runs?job={evil}", f"/why?job={evil}",
            f"/jobs/default/{evil}", f"/login?next={evil}", f"/agenda?prefix={evil}", f"/{evil}",
            f"/runs?after={evil}", f"/dead-letters?job={evil}", f"/jobs?page={evil}",
        ):  # fmt: skip
            answer = await site.get(path.replace(" ", "%20"))
            assert answer.status in (200, 303, 400, 404, 501), (path, answer.text[:300])
            assert_harmless(answer.text)

    story(scenario)


def test_a_run_is_shown_with_its_way_its_spans_and_its_output() -> None:
    async def scenario(world: World) -> None:
        await world.make(task=shell(EVIL))
        run = await ended_run(world)
        site = Site(world)
        trace = otlp.trace_of(run.traceparent)
        assert trace is not None
        process = otlp.process_span(otlp.attempt_span(trace, 1)).hex()
        start = run.create_time.ToNanoseconds()
        site.traces.found[trace.trace_id] = [
            Span(
                span_id="a1", parent_id=process, name=EVIL, kind="internal", start=start,
                end=start + S, service=EVIL, failed=True, message=EVIL,
                attributes={EVIL: EVIL, "nested": {EVIL: [EVIL]}},
            )
        ]  # fmt: skip
        site.traces.written[trace.trace_id] = [
            LogLine(cursor=n, at=start, span_id=process, severity="", body=body, service="w")
            for n, body in enumerate((EVIL, "\x1b[31mred\x1b[0m \x1b]0;title\x07\x00\x08"), 1)
        ]
        name = run.name.split("/")
        page = await site.get(f"/runs/{name[1]}/{name[3]}/{name[5]}")
        shown = assert_harmless(page.text)
        assert shown.text.count("<script>alert(1)</script>") >= 5
        assert "red \u2400\u2408" in shown.text
        assert "\x1b" not in page.text
        for word in ("due", "committed", "settled"):
            assert f" {word} " in shown.text
        told = await site.get(f"/api/runs/{name[1]}/{name[3]}/{name[5]}/logs", accept="*/*")
        assert json.loads(told.text.splitlines()[0])["body"] == EVIL
        assert told.headers["content-type"] == "application/x-ndjson"
        spans = await site.get(f"/api/runs/{name[1]}/{name[3]}/{name[5]}/trace", accept="*/*")
        assert json.loads(spans.text)["spans"][0]["name"] == EVIL

    story(scenario)


def test_a_long_waterfall_comes_in_parts_that_join_without_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows, "ROWS", 10)

    async def scenario(world: World) -> None:
        await world.make()
        run = await ended_run(world)
        site = Site(world)
        trace = otlp.trace_of(run.traceparent)
        assert trace is not None
        start = run.create_time.ToNanoseconds()
        site.traces.found[trace.trace_id] = [
            Span(span_id=f"s{n:02}", parent_id="", name="step", kind="internal", start=start + n,
                 end=start + S, service="shop", failed=False)
            for n in range(25)
        ]  # fmt: skip
        name = run.name.split("/")
        address: str | None = f"/runs/{name[1]}/{name[3]}/{name[5]}"
        rows, pages = [], 0
        while address is not None:
            page = (await site.get(address)).text
            rows += re.findall(r'id="b-(s\d\d)"', page)
            further = re.search(r'href="([^"]*from=\d+)" data-further', page)
            address, pages = further and further[1], pages + 1
        assert rows == [f"s{n:02}" for n in range(25)]
        assert pages >= 3

    story(scenario)


@pytest.mark.slow
def test_every_page_is_served_also_where_parts_of_it_are_not_offered() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        run = await ended_run(world)
        site = Site(world)
        await site.follower.run_once()
        name = run.name.split("/")
        for path in (
            "/", "/agenda", "/agenda?at=2026-11-29T00:00:00Z", "/jobs", "/jobs/default/report",
            "/runs", "/runs?state=live", "/runs?state=bad", "/queues", "/dead-letters", "/why",
            "/why?job=report", "/why?job=default/report&at=2026-11-29T00:00:00Z", "/mesh",
            "/help", f"/runs/{name[1]}/{name[3]}/{name[5]}", "/jobs/default/report/delete",
            "/api/now",
        ):  # fmt: skip
            answer = await site.get(path)
            assert answer.status == 200, (path, answer.text[:300])
            if path != "/api/now":
                assert answer.text.lstrip().startswith("<!doctype html>"), path
                assert_harmless(answer.text)

    story(scenario)


def test_what_is_not_there_and_what_makes_no_sense_is_said() -> None:
    async def scenario(world: World) -> None:
        site = Site(world)
        for path, status in (
            ("/jobs/default/none", 404), ("/runs/default/none/t1", 400), ("/nope", 404),
            ("/why?job=none", 404), ("/runs?after=yesterday", 400), ("/jobs?page=zzz", 400),
            ("/jobs/default/none/delete", 404), ("/jobs/UP/per", 400),
        ):  # fmt: skip
            answer = await site.get(path)
            assert answer.status == status, (path, answer.text[-400:])
            assert "Traceback" not in answer.text
            program = await site.get(path, accept="*/*")
            assert program.status == status
            assert "<" not in program.text.replace("<client secret>", "")

    story(scenario)


def test_a_deleted_job_is_explained_and_said_to_be_gone() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        site = Site(world)
        await world.jobs_api.DeleteJob(api.DeleteJobRequest(name=JOB))
        why = await site.get("/why?job=report")
        assert (why.status, "was deleted" in why.text) == (200, True)
        gone = await site.get("/jobs/default/report")
        assert (gone.status, "was deleted at" in gone.text) == (404, True)

    story(scenario)


def test_a_mesh_that_does_not_answer_is_said_and_the_page_is_there() -> None:
    async def scenario(world: World) -> None:
        site = Site(world)
        site.follower.problem = "The mesh does not answer: nobody is there"
        site.api.settings = site.api.settings
        page = Text((await site.get("/")).text).text
        assert "The mesh does not answer: nobody is there" in page
        assert (await site.get("/health")).status == 503

    story(scenario)


class Away:
    """A network that reaches nobody."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def unary(self, *_: Any) -> Any:
        raise errors.Unavailable("nobody is there")


def test_a_page_is_sent_again_when_it_has_changed() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        site = Site(world)
        live = site.app.state.live
        scope = {
            "type": "http", "method": "GET", "path": "/live", "query_string": b"", "headers": [],
            "session": site.sessions.of_secret(CLIENT),
        }  # fmt: skip
        stream = live._events(Request(scope), "/jobs")
        assert await anext(stream) == "retry: 2000\n\n"
        first = await anext(stream)
        assert first.startswith("event: main\ndata: ")
        assert "<html" not in first
        assert "report" in first
        await world.make(f"{NS}/jobs/second")
        second = await anext(stream)
        assert "second" in second
        site.api._calls._wire = Away(site.api._calls._wire)
        assert await anext(stream) == "event: away\ndata: stands still\n\n"
        site.api._calls._wire = site.api._calls._wire.inner
        assert "second" in await anext(stream)
        live.stopping.set()
        assert [each async for each in stream if not each.startswith("event: main")] == []

    story(scenario)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://evil\x07link\x1b]8;;\x07", "link"),
        ("a\rb\r\nc", "a\u240db\nc"),
        ("\x1b[2J\x1b[H\x9b31m", "\\u009b31m"),
        ("\u202eevil", "\\u202eevil"),
        ("\x7f\x00", "\u2421\u2400"),
    ],
)
def test_output_is_shown_as_text_without_what_steers_terminals(written: str, shown: str) -> None:
    assert output_text(written) == shown


def test_numbers_are_grouped_and_what_else_is_shown_is_plain() -> None:
    template = environment().from_string("{{ 1234567|number }} {{ 0.25|number }} {{ said }}")
    assert template.render(said="<a>\x1b[1mb\x1b[0m\x07") == (
        "1\u202f234\u202f567 0.2 &lt;a&gt;b\u2407"
    )


def test_what_is_slow_to_answer_is_asked_for_less_often() -> None:
    async def scenario(world: World) -> None:
        desk = Site(world).desk
        asked: list[float] = []

        async def answer(takes_s: float) -> int:
            asked.append(takes_s)
            await asyncio.sleep(takes_s)
            return len(asked)

        for takes_s, first in ((0.0, 1), (0.5, 3)):
            key = f"takes {takes_s}"
            assert await shared(desk, key, 2.0, lambda t=takes_s: answer(t)) == first
            assert await shared(desk, key, 2.0, lambda t=takes_s: answer(t)) == first
            await asyncio.sleep(3)
            later = await shared(desk, key, 2.0, lambda t=takes_s: answer(t))
            assert later == (first if takes_s else 2)
        await asyncio.sleep(8)
        assert await shared(desk, "takes 0.5", 2.0, lambda: answer(0.5)) == 4

    story(scenario)
