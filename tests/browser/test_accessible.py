"""Every view: no violation of the axe rules in either theme, and readable on a phone."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Opens, Shop
from playwright.sync_api import expect

from sexton import Cron

PLAN = "/jobs/default/viewed/backfill?from=2026-09-01T00:00&to=2026-09-03T12:00"
VIEWS = (
    "/", "/agenda", "/jobs", "/jobs/default/viewed", "/jobs/default/viewed/pause",
    "/jobs/default/viewed/backfills", PLAN, "/runs",
    "RUN", "/queues", "/dead-letters", "/why?job=viewed", "/mesh", "/help",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(shop: Shop) -> str:
    """A run that has failed, of a job with a schedule."""
    shop.create("viewed", "echo out; exit 3", schedules=(Cron("0 3 * * *", timezone="Asia/Tokyo"),))
    path = shop.trigger("viewed")
    assert shop.ended(path) == "failed"
    return path


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_view_breaks_a_rule_of_accessibility(
    shop: Shop, opens: Opens, run: str, theme: str
) -> None:
    page = opens("/", color_scheme=theme)
    axe = Axe()
    broken = []
    for view in VIEWS:
        page.goto(shop.url + view.replace("RUN", run))
        expect(page.locator("main")).to_be_visible()
        found = axe.run(page)
        broken += [
            f"{view}: {rule['id']}: {node['html'][:200]} {node['failureSummary'][:200]}"
            for rule in found.response["violations"]
            for node in rule["nodes"]
        ]
    assert broken == []


def test_every_view_fits_a_phone(shop: Shop, opens: Opens, run: str) -> None:
    page = opens("/", viewport={"width": 360, "height": 740}, has_touch=True)
    wide = []
    for view in VIEWS:
        page.goto(shop.url + view.replace("RUN", run))
        expect(page.locator("main")).to_be_visible()
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > 360:
            wide.append((view, width))
    assert wide == []
