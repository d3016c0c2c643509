"""The story tells the same every time, and `docs/story.md` shows what it tells, to the letter."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from sexton_cli import main as entry
from sexton_demos import story
from sexton_demos.telling import WIDTH
from sexton_demos.town import Town
from sexton_sim.history import Recorder

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "story.md").read_text()
TOLD = dict(re.findall(r"^```console\n\$ sexton (demo.*?)\n(.*?)^```$", PAGE, re.M | re.S))
MOST_LINES = 42


@pytest.mark.slow
@pytest.mark.parametrize("which", ["", *map(str, story.STAGES), "numbers"])
def test_the_page_shows_what_is_told(which, capsys):
    assert entry.run(["demo", *which.split()]) == 0
    assert capsys.readouterr().out == TOLD.pop(f"demo {which}".strip())


def test_a_stage_fits_a_screen():
    for which, told in TOLD.items():
        lines = told.splitlines()
        assert len(lines) <= MOST_LINES, which
        assert max(map(len, lines)) <= WIDTH, which


@pytest.mark.slow
def test_all_stages_are_told_one_after_the_other_and_then_counted(capsys):
    assert entry.run(["demo", "all"]) == 0
    told = capsys.readouterr().out
    assert [line[:2] for line in told.splitlines() if re.match(r"[1-7]\. ", line)] == [
        f"{stage}." for stage in story.STAGES
    ]
    assert told.endswith("\n".join(story.numbers()) + "\n")


@pytest.mark.slow
def test_another_process_with_other_hashes_tells_the_same():
    command = [sys.executable, "-m", "sexton_cli.main", "demo", "5"]
    environment = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == list(story.page_of(5))


@pytest.mark.slow
def test_the_checker_objects_to_two_workers_at_one_run_unless_it_knows_of_the_cut(monkeypatch):
    fault = Recorder.fault
    monkeypatch.setattr(
        Recorder,
        "fault",
        lambda self, what, *args, **facts: what == "cut" or fault(self, what, *args, **facts),
    )
    stage = import_module("sexton_demos.05_queue_and_workers")
    assert "S10" in Town(stage.a_worker_is_cut_off).run().verdict.rules()


def test_the_code_on_the_page_is_that_of_the_stages():
    sources = [dedented(path.read_text()) for path in (ROOT / "demos").glob("*/0*.py")]
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    assert len(blocks) == 5
    for block in blocks:
        assert any(dedented(block) in source for source in sources), block


def test_what_the_page_links_to_in_this_repository_is_there():
    links = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert len(links) > 50
    for link in links:
        target, _, heading = link.partition("#")
        if target.startswith("https:"):
            continue
        path = ROOT / "docs" / (target or "story.md")
        assert path.exists(), link
        if heading:
            assert heading in {anchor(line) for line in path.read_text().splitlines()}, link


def dedented(text):
    return "\n".join(line.strip() for line in text.splitlines())


def anchor(line):
    """Gives the name that GitHub gives to a heading."""
    words = line.lstrip("#").strip().lower() if line.startswith("#") else ""
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def test_a_stage_that_is_none_is_refused(capsys):
    assert entry.run(["demo", "8"]) == 2
    assert capsys.readouterr().err == "sexton: stage '8': expected 1 to 7, all or numbers\n"
