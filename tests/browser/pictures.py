"""Makes the pictures of docs/images, or those that are named: `python -m browser.pictures NAME`,
with the Python of `.venv`, in the folder `tests`.

Runs a shop for two minutes, kills a worker in the middle of a run, then the leader, and takes each
view in both themes.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from browser.conftest import FLAGS, Shop
from browser.test_console import sexton
from integration.mesh.mesh_process import MeshProcess, wait_for
from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
IMAGES = HERE.parents[1] / "docs" / "images"
RUNS_FOR_S = 100
MOST_BYTES = 120_000
VIEWS = {
    "now": "/", "agenda": "/agenda", "jobs": "/jobs", "job": "/jobs/default/sync-stock",
    "run": "", "queues": "/queues", "dead-letters": "/dead-letters", "why": "",
    "control-plane": "/mesh",
}  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="sexton-pictures-") as folder:
        flags = ("--console", "--workers", "3", "--drain", "1", "--app", "shop")
        mesh = MeshProcess(Path(folder), *flags, environment={"PYTHONPATH": str(HERE)})
        try:
            take(Shop(mesh.start()))
        finally:
            mesh.stop()


def take(shop: Shop) -> None:
    """Takes every picture."""
    sexton(shop, "apply", "-f", str(HERE / "shop.yaml"))
    time.sleep(RUNS_FOR_S)
    lost = lose_a_worker(shop)
    lose_the_leader(shop)
    addresses = VIEWS | {"run": lost, "why": skipped(shop)}
    addresses = {name: addresses[name] for name in sys.argv[1:] or addresses}
    found = shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        for theme in ("light", "dark"):
            size = {"width": 1120, "height": 740}
            page = browser.new_context(color_scheme=theme, viewport=size).new_page()  # type: ignore[arg-type]
            page.goto(f"{shop.url}/login")
            page.fill("#secret", shop.secret)
            page.press("#secret", "Enter")
            for name, address in addresses.items():
                page.goto(shop.url + address)
                picture(page, IMAGES / f"{name}-{theme}.png")
        browser.close()


def lose_a_worker(shop: Shop) -> str:
    """Kills the worker of a run under way; gives the run's address once another has ended it."""
    with shop.mesh.client() as client:

        def held() -> tuple[str, str] | None:
            for run in client.runs.list("slow-import"):
                if not run.ended and run.attempts and run.attempts[-1].worker:
                    return run.full_name, run.attempts[-1].worker
            return None

        name, worker = wait_for(held, "an import runs")
        time.sleep(6)
        shop.mesh.send(shop.mesh.process(worker), signal.SIGKILL)
        client.runs.wait(name, timeout_s=90)
    time.sleep(2)
    return f"/runs/{name}"


def lose_the_leader(shop: Shop) -> None:
    """Kills the leader, and waits until another one leads."""
    with shop.mesh.client() as client:

        def leader() -> tuple[str, int]:
            members = client.mesh.members().members
            led = (m for m in members if m.role.value == "coordinator" and m.leading)
            return next(((m.address, m.token) for m in led), ("", 0))

        address, token = leader()
        process = next(p for p in shop.mesh.processes().values() if p.address == address)
        shop.mesh.send(process, signal.SIGKILL)
        wait_for(lambda: leader()[1] > token, "another term has begun")
    time.sleep(10)


def skipped(shop: Shop) -> str:
    """Gives the address of why a time of the import was skipped."""
    with shop.mesh.client() as client:
        for run in client.runs.list("slow-import"):
            if run.nominal_time is not None and run.ended:
                at = int(run.nominal_time.timestamp()) + 8
                text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
                return f"/why?job=slow-import&at={text}"
    return "/why?job=slow-import"


def picture(page: Page, path: Path) -> None:
    """Takes one, once the page is live; less of its end where it would be too large."""
    page.wait_for_timeout(2_500)
    path.parent.mkdir(exist_ok=True)
    for height in (740, 660, 580, 500):
        page.screenshot(path=path, clip={"x": 0, "y": 0, "width": 1120, "height": height})
        if path.stat().st_size < MOST_BYTES:
            break
    print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
