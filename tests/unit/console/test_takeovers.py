"""Who led when is drawn as a strip, and each takeover leads to its own trace."""

from __future__ import annotations

import re

from unit.console.site import Site
from unit.console.test_pages import Text, assert_harmless
from unit.coordinator.api.world import S, World, story

from sexton.v1 import scheduler_pb2 as api
from sexton_console.mesh.takeovers import Term
from sexton_console.traces.model import Span
from sexton_console.web import charts
from sexton_runtime import otlp


def member(name: str, token: int) -> api.ListMembersResponse:
    found = api.Member(
        role=api.Member.ROLE_QUEUE, id=name, address=f"{name}:1", leading=True, token=token
    )
    return api.ListMembersResponse(members=[found])


def test_each_takeover_leads_to_its_trace() -> None:
    async def scenario(world: World) -> None:
        site = Site(world)
        now_s = site.desk.now_s
        site.desk.watch.take(member("one", 4), now_s - 30)
        site.desk.watch.take(member("two", 9), now_s - 10)
        page = (await site.get("/mesh")).text
        trace = otlp.takeover_trace("two", 9)
        links = re.findall(r'href="/traces/(\w+)"', page)
        assert trace.trace_id.hex() in links
        assert otlp.takeover_trace("one", 4).trace_id.hex() in links
        address = f"/traces/{trace.trace_id.hex()}"
        assert "holds no span" in (await site.get(address)).text
        site.traces.found[trace.trace_id] = [
            Span(span_id=trace.span_id.hex(), parent_id="", name="takeover queue/000",
                 kind="internal", start=S, end=3 * S, service="sexton-queue", failed=False)
        ]  # fmt: skip
        shown = assert_harmless((await site.get(address)).text)
        assert "takeover queue/000" in shown.text
        assert "2 s in all" in shown.text
        assert (await site.get("/traces/nonsense")).status == 404

    story(scenario)


def test_the_strip_has_a_lane_per_shard_and_ends_now() -> None:
    terms = [
        Term("queue", 0, "a", "a:1", 1, 0.0, 50.0),
        Term("queue", 0, "b", "b:1", 2, 50.0, 0.0),
        Term("coordinator", 1, "c", "c:1", 3, 75.0, 0.0),
    ]
    lanes, start_s = charts.strip(terms, 100.0)
    assert start_s == 0.0
    assert [
        (lane.name, [(each.term.token, each.left, each.width) for each in lane.reigns])
        for lane in lanes
    ] == [("coordinator 1", [(3, 75.0, 25.0)]), ("queue", [(1, 0.0, 50.0), (2, 50.0, 50.0)])]
    assert charts.strip([], 100.0) == ([], 40.0)


def test_members_are_told_of_in_few_words_and_a_worker_that_drains_is_seen_to() -> None:
    async def scenario(world: World) -> None:
        site = Site(world)
        details = {"worker": "w1", "slots": "4", "running": "1", "queues": "a, b", "tasks": "t"}
        worker = api.Member(role=api.Member.ROLE_WORKER, id="s1", details=details)
        store = api.Member(role=api.Member.ROLE_STORE, id="i", details={"used_bytes": "2048"})
        worker.details["state"] = "draining"
        answer = api.ListMembersResponse(members=[store, worker])
        site.desk.memo["members"] = (1e12, answer)
        shown = Text((await site.get("/mesh")).text).text
        assert "w1 0 – +0 ms s1 1 of 4 slots, queues a, b, draining" in shown
        assert "2.0 KiB" in shown

    story(scenario)
