"""Histories of whole meshes as files: cut short, begun late, restored, changed by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sexton_cli import main
from sexton_sim.mesh.plan import MeshFaults, MeshPlan
from sexton_sim.mesh.world import run
from sexton_sim.verify import verify

pytestmark = pytest.mark.slow

Line = dict[str, Any]


@pytest.fixture(name="lines", scope="module")
def _lines() -> list[Line]:
    """A calm mesh with people who change jobs all the time."""
    calm = MeshPlan(duration_s=12, quiet_s=3, pause_s=0.2, faults=MeshFaults(mean_pause_s=0))
    outcome = run(7, calm)
    assert outcome.verdict.ok
    return outcome.recorder.lines


@pytest.fixture(name="written")
def _written(tmp_path: Path) -> Callable[[list[Line]], Path]:
    def write(lines: list[Line]) -> Path:
        path = tmp_path / "history.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return write


def commits(lines: list[Line]) -> list[int]:
    return [index for index, line in enumerate(lines) if line["kind"] == "commit"]


def test_a_whole_history_holds(lines: list[Line], written: Any) -> None:
    verdict = verify([written(lines)])
    assert verdict.ok, str(verdict)
    rules = {"S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S13", "S15", "S21", "L3"}
    assert rules <= {it.rule for it in verdict.by_rule() if it.result == "holds"}


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_verdict_that_nobody_reads_is_no_success(
    lines: list[Line], written: Any, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits_only = [lines[index] for index in commits(lines)][:20]
    path = written(commits_only)
    assert main.run(["verify", str(path), "-o", output]) == 0
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        assert main.run(["verify", str(path), "-o", output]) == 141
        monkeypatch.undo()


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6, 0.9])
def test_a_history_that_begins_late_breaks_nothing(
    lines: list[Line], written: Any, share: float
) -> None:
    indexes = commits(lines)
    late = set(indexes[: round(share * len(indexes))])
    kept = [
        line
        for index, line in enumerate(lines)
        if index not in late and line["kind"] in {"commit", "fault"}
    ]
    verdict = verify([written(kept)])
    assert verdict.ok, str(verdict)
    assert any("where the log begins" in why for why in verdict.inconclusive)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_history_that_ends_early_breaks_nothing(
    lines: list[Line], written: Any, share: float
) -> None:
    verdict = verify([written(lines[: round(share * len(lines))])])
    assert verdict.ok, str(verdict)


def test_a_run_that_was_made_twice_is_told_with_job_and_time(
    lines: list[Line], written: Any
) -> None:
    indexes = commits(lines)
    gone = next(
        index
        for index in indexes
        if any("after" in it and it["before"] is None for it in lines[index]["changes"])
        and len(lines[index]["changes"]) == 4
    )
    verdict = verify([written([line for index, line in enumerate(lines) if index != gone])])
    assert not verdict.ok
    assert "S2" in verdict.rules()
    told = str(verdict)
    assert "default/job-" in told
    assert "2026-12-01T00:00:" in told
