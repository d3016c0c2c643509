"""What services log is shown where it is looked for, and as text."""

from __future__ import annotations

import json

from unit.console.site import Site
from unit.console.test_pages import EVIL, assert_harmless, ended_run
from unit.coordinator.api.world import S, World, story

from sexton_console.traces.model import LogLine
from sexton_console.traces.service_logs import About


def test_logs_are_shown_in_the_control_plane_and_at_the_run_that_they_speak_of() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        run = await ended_run(world)
        site = Site(world)
        at = run.create_time.ToNanoseconds()
        line = LogLine(
            cursor=1, at=at, span_id="", severity="warning", body=f"{EVIL} one",
            service="sexton-queue",
            attributes={"action": EVIL, "exception.stacktrace": EVIL},
        )  # fmt: skip
        other = LogLine(cursor=2, at=at + S, span_id="", severity="info", body="two", service="s")
        about = About(run.name.split("/")[-1], b"", (), 0, 0)
        site.logs.lines += [(about, line), (None, other)]
        shown = assert_harmless((await site.get("/mesh?level=debug")).text)
        assert shown.text.index("two") < shown.text.index(f"{EVIL} one")
        assert "queue" in shown.text
        alone = assert_harmless((await site.get("/mesh?service=s&level=error")).text)
        assert f"{EVIL} one" not in alone.text
        told = (await site.get("/api/logs?service=s", accept="*/*")).text.splitlines()
        assert [(json.loads(text)["service"], json.loads(text)["body"]) for text in told] == [
            ("s", "two")
        ]
        name = run.name.split("/")
        page = assert_harmless((await site.get(f"/runs/{name[1]}/{name[3]}/{name[5]}")).text)
        assert f"{EVIL} one" in page.text
        assert "What services said of it" in page.text

    story(scenario)
