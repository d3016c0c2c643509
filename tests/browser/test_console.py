"""The console in a browser, over a mesh of real processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from browser.conftest import Opens, Shop
from integration.mesh.mesh_process import wait_for
from playwright.sync_api import Browser, expect

from sexton import Cron, Retry, local_mesh
from sexton_cli.online.console import login_link
from sexton_runtime import otlp, semconv
from sexton_runtime.exporting import Exporter

LONG = 9_900
"""Spans of a long trace."""
EVIL = "<img src=x onerror=window.hacked=1><script>window.hacked=2</script>"


def sexton(shop: Shop, *words: str) -> str:
    """Runs a command as a user of this mesh."""
    kept = {name: value for name, value in os.environ.items() if "SEXTON_" not in name}
    kept |= {"PYTHONPATH": os.pathsep.join(sys.path), "SEXTON_DATA": str(shop.mesh.data)}
    ended = subprocess.run(
        [sys.executable, "-m", "sexton_cli.main", *words],
        env=kept, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_printed_link_logs_in_once(shop: Shop, chromium: Browser) -> None:
    mesh = local_mesh.LocalMesh(
        api=("127.0.0.1:1",), client_secret_file=shop.mesh.data / "secrets" / "client",
        console=shop.url,
    )  # fmt: skip
    link = login_link(mesh)
    first, second = chromium.new_context().new_page(), chromium.new_context().new_page()
    first.goto(link)
    expect(first).to_have_url(f"{shop.url}/")
    second.goto(link)
    expect(second.get_by_role("alert")).to_contain_text("That link has been used")
    first.context.close()
    second.context.close()


def test_a_job_that_a_command_registers_appears_on_the_open_page(
    shop: Shop, opens: Opens, tmp_path: Path
) -> None:
    page = opens("/jobs")
    expect(page.locator(".alive")).to_have_text("live")
    file = tmp_path / "jobs.yaml"
    file.write_text("jobs: [{name: from-a-file, schedule: {every: 1h}, task: {shell: 'true'}}]")
    sexton(shop, "apply", "-f", str(file))
    row = page.get_by_role("row").filter(has_text="from-a-file")
    expect(row).to_contain_text("every 1 h")
    expect(row).to_contain_text("active")


def test_a_run_is_started_by_keyboard_and_followed_to_its_waterfall(
    shop: Shop, opens: Opens, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    shop.create("followed", f"echo begun; until [ -e {gate} ]; do sleep 0.1; done; echo done")
    page = opens("/jobs/default/followed")
    expect(page.locator(".alive")).to_have_text("live")
    page.keyboard.press("t")
    expect(page.get_by_role("button", name="Run now")).to_be_focused()
    expect(page.get_by_text("sexton jobs trigger default/followed")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("running")
    expect(page.get_by_role("log", name="Output")).to_contain_text("begun")
    expect(page.locator(".rail li").last).to_contain_text("running")
    gate.touch()
    expect(page.locator("h1")).to_contain_text("succeeded")
    expect(page.get_by_role("log", name="Output")).to_contain_text("done")
    names = [
        re.sub(r"\s+", " ", text).strip() for text in page.locator(".rail b").all_inner_texts()
    ]
    assert names == [
        "due", "committed", "pushed", "assigned", "started", "finished", "settled"
    ]  # fmt: skip
    process = page.get_by_role("row").filter(has_text="process followed")
    expect(process).to_be_visible()
    expect(process.locator("svg .line")).to_have_count(2)
    name = page.url.partition("/runs/")[2].partition("?")[0]
    drawn = sexton(shop, "runs", "trace", name)
    assert "process followed" in drawn
    assert sexton(shop, "runs", "logs", "-f", name) == "begun\ndone\n"
    assert "in flight" in sexton(shop, "top", "--once")


def test_a_worker_that_dies_shows_as_a_second_attempt_in_the_same_trace(
    shop: Shop, opens: Opens, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    shop.create("survivor", f"echo here; until [ -e {gate} ]; do sleep 0.1; done")
    page = opens(shop.trigger("survivor"))
    expect(page.get_by_role("log", name="Output")).to_contain_text("here")
    attempt = page.locator("#b-attempt-1")
    expect(attempt).to_contain_text("worker-")
    trace = page.locator("dt:text-is('trace') + dd").inner_text()
    worker = re.search(r"worker-\d", attempt.inner_text())
    assert worker
    shop.mesh.send(shop.mesh.process(worker[0]), signal.SIGKILL)
    second = page.locator("#b-attempt-2")
    expect(second).to_contain_text("taken over")
    expect(page.locator(".rail")).to_contain_text("#2")
    gate.touch()
    expect(page.locator("h1")).to_contain_text("succeeded")
    expect(attempt.locator(".state")).to_have_attribute("title", "lost")
    expect(page.get_by_role("row").filter(has_text="process survivor")).to_be_visible()
    assert page.locator("dt:text-is('trace') + dd").inner_text() == trace
    output = page.get_by_role("log", name="Output")
    expect(output.locator("small")).to_have_text(["#1", "#2"])
    said = page.get_by_role("log", name="What services said")
    expect(said).to_contain_text("session has ended")
    expect(said).to_contain_text(f"worker={worker[0]}")


def test_a_job_is_paused_and_resumed_with_the_keyboard(shop: Shop, opens: Opens) -> None:
    shop.create("pausable", "true")
    page = opens("/jobs/default/pausable")
    expect(page.locator(".alive")).to_have_text("live")
    page.keyboard.press("p")
    expect(page.get_by_role("heading", name="Pause default/pausable?")).to_be_visible()
    page.wait_for_load_state()
    page.keyboard.press("Escape")
    expect(page.locator("h1")).to_contain_text("active")
    expect(page.locator(".alive")).to_have_text("live")
    page.keyboard.press("p")
    page.get_by_label("Why, for people").fill("for a while")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("paused")
    expect(page.get_by_text("Paused: for a while")).to_be_visible()
    expect(page.get_by_role("status").first).to_have_text("default/pausable is paused.")
    expect(page.locator(".alive")).to_have_text("live")
    page.keyboard.press("p")
    page.get_by_text("Start the newest missed time at once").click()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("active")


def test_a_range_of_the_past_is_planned_run_and_watched_until_it_is_done(
    shop: Shop, opens: Opens
) -> None:
    schedule = Cron("0 3 * * *", timezone="Asia/Tokyo")
    shop.create("refilled", "true", schedules=(schedule,))
    page = opens("/jobs/default/refilled")
    page.keyboard.press("b")
    expect(page.get_by_text("None goes on")).to_be_visible()
    page.get_by_label("From").fill("2026-09-01T00:00:00")
    page.get_by_label("To").fill("2026-09-03T12:00:00")
    page.get_by_role("button", name="Plan").click()
    expect(page.get_by_role("heading", name="3 runs?")).to_be_visible()
    expect(page.locator("main li time").first).to_contain_text("01 Sep")
    page.get_by_role("button", name="Start 3 runs").click()
    expect(page.get_by_role("status").first).to_contain_text("has begun")
    row = page.locator("tbody tr")
    expect(row).to_contain_text("done")
    expect(row).to_contain_text("3 of 3")


def test_everything_is_reached_by_keyboard(shop: Shop, opens: Opens) -> None:
    shop.create("by-keys", "true")
    page = opens("/")
    expect(page.locator(".alive")).to_have_text("live")
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page).to_have_url(f"{shop.url}/jobs")
    expect(page.locator(".alive")).to_have_text("live")
    page.keyboard.press("/")
    page.keyboard.type("by-keys")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator(".alive")).to_have_text("live")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{shop.url}/jobs/default/by-keys")
    expect(page.locator(".alive")).to_have_text("live")
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keys")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()


def test_what_somebody_reads_stays_as_it_is_while_the_page_changes(
    shop: Shop, opens: Opens
) -> None:
    shop.create("changing", "true")
    page = opens("/jobs/default/changing")
    expect(page.locator(".alive")).to_have_text("live")
    page.get_by_text("The whole definition").click()
    whole = page.locator("details").first
    whole.evaluate("each => { each.stays = true; }")
    page.get_by_text("all of them").focus()
    for number in (1, 2):
        shop.ended(shop.trigger("changing"))
        expect(page.locator("[data-row]")).to_have_count(number)
    assert whole.evaluate("each => each.open && each.stays")
    expect(page.get_by_text("all of them")).to_be_focused()


def test_what_a_task_writes_is_text_whatever_it_writes(shop: Shop, opens: Opens) -> None:
    coloured = r"\033[31mred\033[0m\033]0;title\007\n"
    shop.create(
        "evil", f"printf '%s\\n' '{EVIL}'; printf '{coloured}'; exit 3",
        description=EVIL, retry=Retry(max_attempts=1),
    )  # fmt: skip
    path = shop.trigger("evil")
    assert shop.ended(path) == "failed"
    page = opens(path)
    expect(page.get_by_role("log", name="Output")).to_contain_text(EVIL)
    expect(page.get_by_role("log", name="Output")).to_contain_text("red")
    assert "\x1b" not in page.content()
    for other in ("/", "/jobs", "/jobs/default/evil", "/dead-letters", "/runs?state=bad"):
        page.goto(f"{shop.url}{other}")
        expect(page.locator("main")).to_contain_text("evil")
    assert page.evaluate("window.hacked") is None


def test_a_trace_of_ten_thousand_spans_is_shown_and_scrolled(shop: Shop, opens: Opens) -> None:
    shop.create("large", "true")
    path = shop.trigger("large")
    assert shop.ended(path) == "succeeded"
    with shop.mesh.client() as client:
        run = client.runs.get(path.removeprefix("/runs/"))
    trace = otlp.trace_of(run.traceparent)
    assert trace is not None
    assert run.create_time is not None
    start = round(run.create_time.timestamp() * 1e9)
    parent = otlp.process_span(otlp.attempt_span(trace, 1))

    def encode(number: int) -> list[bytes]:
        begin = start + (number if number < LONG else -1) * 1_000_000
        own = otlp.derived_span(parent, (number + 1) << 24)
        return [
            otlp.span(trace.trace_id, own, parent, b"step %d" % number, otlp.INTERNAL, begin,
                      begin + 500_000, b"")
        ]  # fmt: skip

    async def send(numbers: range) -> None:
        base = int(shop.url.rpartition(":")[2]) - 80
        exporter = Exporter(f"http://127.0.0.1:{base + 17}", {semconv.SERVICE_NAME: "user"})
        sink = exporter.sink("spans", encode)
        for number in numbers:
            sink.add(number)
        await exporter.start()
        await exporter.stop()
        assert exporter.dropped() == {"spans": 0}

    with ThreadPoolExecutor(1) as thread:  # the browser's driver has a loop in this one
        thread.submit(asyncio.run, send(range(LONG))).result()
        page = opens(path)
        while not page.locator(".k-span", has_text="process").count():  # the worker's own
            page.reload()
        rows, further = page.locator(".k-span"), page.locator("[data-further]")
        expect(further).to_contain_text("further rows")
        # One that comes late, and before all others: no row may stand twice.
        thread.submit(asyncio.run, send(range(LONG, LONG + 1))).result()
    assert rows.count() < 2_500
    while further.count():  # as somebody does who scrolls down
        page.mouse.wheel(0, 100_000)
        page.wait_for_timeout(20)
    ids = rows.evaluate_all("rows => rows.map(row => row.id)")
    assert len(ids) == len(set(ids)) > LONG
    last = page.get_by_text("step 9899", exact=True)
    for _ in range(3):  # rows are measured when they come into view
        last.scroll_into_view_if_needed()
    expect(last).to_be_in_viewport()


def test_a_takeover_is_seen_in_the_strip_and_leads_to_its_trace(shop: Shop, opens: Opens) -> None:
    page = opens("/mesh")
    reigns = page.get_by_role("group", name=re.compile("^coordinator: ")).locator("a")
    expect(reigns).to_have_count(1)
    where = page.locator(".terms .present").filter(has_text="coordinator").inner_text()
    led = next(p for p in shop.mesh.processes().values() if p.address and p.address in where)
    shop.mesh.send(led, signal.SIGKILL)
    expect(reigns).to_have_count(2)
    logs = page.get_by_role("log", name="What services said")
    expect(logs).to_contain_text("Leads a shard.")
    reigns.last.click()
    expect(page.locator("h1")).to_have_text("takeover coordinator/000")
    for step in ("wait for the lease", "read what stands in the store"):
        expect(page.get_by_role("row").filter(has_text=step)).to_be_visible()


def test_a_reader_sees_everything_and_no_button(shop: Shop, opens: Opens) -> None:
    shop.create("seen", "true")
    page = opens("/jobs/default/seen", secret=shop.reader)
    expect(page.locator("h1")).to_contain_text("seen")
    expect(page.get_by_role("link", name="Pause")).to_have_count(0)
    page.request.get(f"{shop.url}/jobs/default/seen/pause")
    assert page.request.get(f"{shop.url}/jobs/default/seen/pause").status == 403
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("The mesh’s client secret")).to_be_visible()
    page.goto(f"{shop.url}/jobs")
    expect(page.get_by_label("The mesh’s client secret")).to_be_visible()


def test_times_are_shown_in_the_jobs_zone_in_the_viewers_and_in_utc(
    shop: Shop, opens: Opens
) -> None:
    shop.create("zoned", "true", schedules=(Cron("30 12 1 1 *", timezone="Asia/Tokyo"),))
    page = opens("/jobs/default/zoned", timezone_id="America/New_York")
    first = page.locator(".times time").first
    expect(first).to_contain_text("12:30:00 +0900")
    assert "America/New_York" in (first.get_attribute("title") or "")
    page.keyboard.press("z")
    expect(first).to_contain_text("22:30:00")
    page.keyboard.press("z")
    expect(first).to_contain_text("03:30:00")
    page.reload()
    expect(first).to_contain_text("03:30:00")


def test_the_page_follows_again_after_the_console_was_killed(shop: Shop, opens: Opens) -> None:
    page = opens("/jobs")
    expect(page.locator(".alive")).to_have_text("live")
    console = shop.mesh.process("console")
    shop.mesh.send(console, signal.SIGKILL)
    wait_for(
        lambda: shop.mesh.processes().get("console", console).pid != console.pid,
        "another console runs",
    )
    shop.create("after-the-console", "true")
    path = shop.trigger("after-the-console")
    assert shop.ended(path) == "succeeded"
    expect(page.locator("main")).to_contain_text("after-the-console")
    expect(page.locator(".alive")).to_have_text("live")
