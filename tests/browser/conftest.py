"""A mesh with a console, and a headless Chromium that looks at it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from integration.mesh.mesh_process import MeshProcess
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from sexton import JobSpec, ShellTask

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE_MS = 20_000
"""Nothing that is waited for takes longer on any machine; what does is a failure."""


expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks everything here: `make test-browser` runs it, `make test` does not."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


class Shop:
    """The mesh, as its users have it: commands, the SDK, and the console's address."""

    def __init__(self, mesh: MeshProcess) -> None:
        self.mesh = mesh
        self.url: str = json.loads((mesh.data / "mesh.json").read_text())["console"]
        self.secret = (mesh.data / "secrets" / "client").read_text().strip()
        self.reader = (mesh.data / "secrets" / "reader").read_text().strip()

    def create(self, name: str, command: str, **spec: object) -> None:
        """Creates a job that runs a command."""
        with self.mesh.client() as client:
            client.jobs.create(name, JobSpec(task=ShellTask(command), **spec))  # type: ignore[arg-type]

    def trigger(self, name: str) -> str:
        """Starts a run, and gives its path in the console."""
        with self.mesh.client() as client:
            run = client.jobs.trigger(name).run
        assert run is not None
        return f"/runs/{run.full_name}"

    def ended(self, path: str) -> str:
        """Waits until a run has ended; gives its state."""
        with self.mesh.client() as client:
            return client.runs.wait(path.removeprefix("/runs/"), timeout_s=30).state.value


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A mesh with two workers and a console."""
    flags = ("--console", "--workers", "2", "--drain", "1")
    mesh = MeshProcess(tmp_path_factory.mktemp("mesh"), *flags)
    try:
        yield Shop(mesh.start())
    finally:
        mesh.stop()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The browser."""
    found = shutil.which("chromium")
    if found is None:
        if os.environ.get("SEXTON_REQUIRE_SYSTEM"):
            pytest.fail("chromium is missing")
        pytest.skip("needs chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()


def wrong(said: ConsoleMessage) -> list[str]:
    """Gives what a browser complains about; that the console was away for a moment is no fault."""
    lost = said.text.startswith("Failed to load resource: net::ERR")
    return [said.text] if said.type == "error" and not lost else []


Opens = Callable[..., Page]


@pytest.fixture
def opens(shop: Shop, chromium: Browser) -> Iterator[Opens]:
    """Opens a page in a browser of its own, logged in; no page may say that something is wrong."""
    contexts = []
    problems: list[str] = []

    def open_page(path: str, *, secret: str = "", **options: object) -> Page:
        given = {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"} | options
        context = chromium.new_context(**given)  # type: ignore[arg-type]
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.extend(wrong(said)))
        page.goto(f"{shop.url}/login?next={path}")
        page.fill("#secret", secret or shop.secret)
        page.press("#secret", "Enter")
        page.wait_for_url(f"{shop.url}{path}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
