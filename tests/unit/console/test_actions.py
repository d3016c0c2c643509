"""Each action's forms for programs exist as they are shown."""

from __future__ import annotations

import html
import re
import shlex

import pytest
from unit.console.site import Site
from unit.coordinator.api.world import World, story

from sexton import Client
from sexton_cli import main as entry

PATHS = (
    "/jobs/default/report/pause", "/jobs/default/report/resume", "/jobs/default/report/trigger",
    "/jobs/default/report/delete", "/runs/default/report/t1/cancel",
    "/runs/default/report/t1/terminate", "/runs/default/report/t1/retry", "/queues/mails/pause",
    "/queues/mails/resume", "/workers/s1/drain",
    "/jobs/default/report/backfills/0a1b2c3d/cancel",
    "/jobs/default/report/backfill?from=2026-09-01T00:00Z&to=2026-09-01T01:00Z&skip=succeeded",
    "/dead-letters/requeue?job=default/report&fingerprint=a%20b",
)  # fmt: skip


@pytest.fixture(scope="module")
def shown() -> dict[str, list[str]]:
    """What each action's page shows to be copied: a command, Python, curl."""
    found: dict[str, list[str]] = {}

    async def scenario(world: World) -> None:
        await world.make()
        site = Site(world)
        for path in PATHS:
            page = await site.get(path)
            assert page.status == 200, (path, page.text[-500:])
            blocks = re.findall(r"<pre[^>]*>(.*?)</pre>", page.text, re.DOTALL)
            found[path] = [html.unescape(block) for block in blocks]

    story(scenario)
    return found


@pytest.mark.parametrize("path", PATHS)
def test_an_action_is_shown_as_a_command_in_python_and_as_a_request(
    path: str, shown: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    command, python, curl = shown[path]
    words = shlex.split(command)
    assert words[0] == "sexton"
    assert entry.run([*words[1:3], "--help"]) == 0
    known = capsys.readouterr().out
    for flag in (word for word in words if word.startswith("--")):
        assert flag in known
    match = re.fullmatch(r"client\.(\w+)\.(\w+)\(.*\)", python)
    assert match
    with Client("127.0.0.1:1", secret="") as client:
        assert callable(getattr(getattr(client, match[1]), match[2]))
    compile(python, "<shown>", "eval")
    assert shlex.split(curl)[:4] == ["curl", "-X", "POST", f"http://127.0.0.1:7480{path}"]


@pytest.mark.parametrize("path", ["/jobs/default/x;id/pause", "/queues/$(id)/pause",
                                  "/runs/default/x/`id`/retry", "/workers/a b/drain"])  # fmt: skip
def test_what_is_copied_into_a_shell_is_one_command_whatever_the_address_says(path: str) -> None:
    async def scenario(world: World) -> None:
        page = await Site(world).get(path)
        blocks = re.findall(r"<pre[^>]*>(.*?)</pre>", page.text, re.DOTALL)
        command = html.unescape(blocks[0])
        name = "/".join(path.split("/")[2:-1])
        assert name in shlex.split(command)
        assert name not in command.replace(shlex.quote(name), "")

    story(scenario)


def test_an_explanation_is_shown_as_a_command_that_can_be_copied() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        page = await Site(world).get("/why?job=report&at=2026-11-29%2021:30")
        assert "sexton why report --at '2026-11-29 21:30'" in html.unescape(page.text)

    story(scenario)


def test_a_run_is_started_once_however_often_its_form_is_sent() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=[])
        site = Site(world)
        form = {"request_id": "f" * 32}
        answers = [
            await site.post("/jobs/default/report/trigger", form, accept="*/*") for _ in range(2)
        ]
        assert answers[0].text == answers[1].text
        assert '"see":"/runs/default/report/m' in answers[0].text

    story(scenario)


def test_an_action_that_is_none_and_one_on_nothing_are_said() -> None:
    async def scenario(world: World) -> None:
        site = Site(world)
        assert (await site.get("/jobs/default/report/explode")).status == 404
        assert (await site.post("/jobs/default/none/pause", {}, accept="*/*")).status == 404
        refused = await site.post("/runs/default/none/t1/cancel", {}, accept="*/*")
        assert refused.status in (400, 404)

    story(scenario)
