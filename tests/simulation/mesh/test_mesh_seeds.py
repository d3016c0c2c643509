"""Seeds of the whole mesh: everything holds, and one seed is one history.

`SEXTON_SEEDS` says how many seeds are run (at least 50); `.ci/run` raises it. A seed that has
failed once stays in `FORMERLY_FAILING` for ever.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest

from sexton_sim.check import check
from sexton_sim.check.mesh import check_mesh
from sexton_sim.history import read_file
from sexton_sim.mesh.plan import MeshFaults, MeshPlan, plan_of
from sexton_sim.mesh.world import run

SEEDS = max(50, int(os.environ.get("SEXTON_SEEDS", "50")))
TWICE = range(1, 4)

FORMERLY_FAILING = (
    (39, 15, 8, "2026-11-29, queue: an assignment that came too early never came"),
    (1017, 15, 20, "2026-11-29, leader: a trigger that contradicts its job held it up for 30 s"),
    (
        103,
        10,
        20,
        "2026-11-29, checker: a session goes on that runs were taken from after the grace",
    ),
)
"""(seed, virtual seconds of faults and of quiet, when it was mended and what it had found)."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_every_promise_holds(seed: int) -> None:
    outcome = run(seed, plan_of(seed, duration_s=10))
    assert outcome.verdict.ok, f"seed {seed}: {outcome.verdict}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", TWICE)
def test_a_seed_is_one_history(seed: int) -> None:
    assert run(seed).event_log_hash == run(seed).event_log_hash


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "duration_s", "quiet_s", "what"), FORMERLY_FAILING)
def test_what_failed_once_holds(seed: int, duration_s: float, quiet_s: float, what: str) -> None:
    plan = replace(plan_of(seed, duration_s=duration_s), quiet_s=quiet_s)
    outcome = run(seed, plan)
    assert outcome.verdict.ok, f"{what}: seed {seed}: {outcome.verdict}"


@pytest.mark.slow
def test_a_written_history_is_judged_as_the_run_was(tmp_path: Path) -> None:
    outcome = run(2, MeshPlan(duration_s=5, quiet_s=1, faults=MeshFaults(mean_pause_s=0)))
    outcome.recorder.dump(tmp_path / "history.jsonl")
    history = read_file(tmp_path / "history.jsonl")
    verdict = check(history)
    check_mesh(history, verdict)
    assert verdict.ok
    assert verdict.checked["S8"] == outcome.verdict.checked["S8"] > 0


@pytest.mark.slow
def test_every_rule_has_something_to_look_at_and_every_kind_of_fault_is_injected() -> None:
    evenly = {field.name: 1.0 for field in fields(MeshFaults)} | {"mean_pause_s": 0.5}
    stormy = MeshPlan(duration_s=25, max_running="default=3", users=3, faults=MeshFaults(**evenly))
    injected: Counter[str] = Counter()
    checked: Counter[str] = Counter()
    for seed in (101, 102, 103):
        outcome = run(seed, stormy)
        assert outcome.verdict.ok, f"seed {seed}: {outcome.verdict}"
        injected += outcome.injected
        checked += outcome.verdict.checked
    rules = {f"S{number}" for number in (5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)}
    assert {*rules, "L1", "L3"} <= set(checked)
    assert {
        "change_rate",
        "crash",
        "crash_in_commit",
        "crash_member",
        "crash_pair",
        "cut",
        "duplicate",
        "failing_disk",
        "full_disk",
        "jump_wall",
        "power_loss",
        "reset",
        "rough",
        "sever",
        "sleep",
        "slow_disk",
        "stall",
        "stop",
        "suspend",
    } <= set(injected)
