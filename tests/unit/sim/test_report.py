"""The table of many seeds, and the command that makes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sexton_sim import __main__ as command
from sexton_sim.check import Verdict
from sexton_sim.report import Report

pytestmark = pytest.mark.slow


def test_seeds_are_summed_up_in_a_table_and_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--seeds", "2", "--from", "3", "--duration", "3", "--json", str(tmp_path / "table")]
    assert command.main(flags) == 0
    written = json.loads((tmp_path / "table").read_text())
    assert written["world"] == "mesh"
    assert written["seeds"] == written["repeated"] == 2
    assert written["failed"] == []
    assert written["runs"] > 0
    assert written["calls"] > 0
    assert written["virtual_hours"] > 0.012
    assert written["rules"]["S8"]["holds"] == 2
    assert written["rules"]["S8"]["violated"] == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["world                 mesh", "seeds                 2 (2 of them twice)"]
    assert lines[-2].startswith("never judged          ")
    assert "S18, S19" in lines[-2]  # only the store's own world has watches
    assert lines[-1] == "failed seeds          none"


def test_a_failing_seed_says_how_to_replay_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play = command.world.run

    def failing(*args: object, **options: object) -> object:
        outcome = play(*args, **options)  # type: ignore[arg-type]
        outcome.verdict.violate("S8", "the cursor went back", ["revision 17"])
        return outcome

    monkeypatch.setattr(command.world, "run", failing)
    assert command.main(["--world", "store", "--seeds", "1", "--from", "7", "--duration", "2"]) == 1
    said = capsys.readouterr().out
    assert "seed 7 fails:\n1 violations\nS8: the cursor went back\n    revision 17\n" in said
    assert "replay it: sexton-sim --world store --duration 2 --replay 7\n" in said
    assert "failed seeds          7\n" in said


def test_two_hashes_of_one_seed_are_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play, seeds = command.world.run, iter((7, 8))

    def other(_seed: int, *args: object, **options: object) -> object:
        return play(next(seeds), *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(command.world, "run", other)
    assert command.main(["--world", "store", "--seeds", "1", "--from", "7", "--duration", "2"]) == 1
    assert "two hashes: " in capsys.readouterr().out


def test_a_replay_lists_its_faults_and_can_leave_some_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    replay = ["--world", "store", "--replay", "7", "--duration", "6"]
    assert command.main(replay) == 0
    faults = [line for line in capsys.readouterr().out.splitlines() if line.startswith("fault")]
    assert len(faults) > 1
    assert command.main([*replay, "--only", "1"]) == 0
    fewer = [line for line in capsys.readouterr().out.splitlines() if line.startswith("fault")]
    assert fewer == faults[:1]


def test_rules_stand_by_number_and_what_has_none_last() -> None:
    report, verdict = Report("mesh"), Verdict()
    verdict.checked.update({"S2": 5, "S10": 1, "L1": 2})
    verdict.violate("unhandled", "an error that nobody awaited")
    verdict.violate("S10", "two executions overlap")
    verdict.unknown("whether leases ended too early: nobody has said (S2)")
    report._add_rules(verdict)
    shown = [line.split() for line in report.lines() if line.startswith("  ")]
    assert shown == [
        ["S2", "0", "0", "1", "5"],
        ["S10", "0", "1", "0", "1"],
        ["L1", "1", "0", "0", "2"],
        ["unhandled", "0", "1", "0", "0"],
    ]
