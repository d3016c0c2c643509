"""The checker is tested too: each mutant is caught by the right rule within its seeds."""

from __future__ import annotations

import pytest
from simulation.mesh.mutants import MUTANTS as MESH_MUTANTS
from simulation.mutants import MUTANTS, PROOF, Mutant

from sexton_sim.world import Plan, run


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.patch(monkeypatch)
    found: set[str] = set()
    for seed in range(1, mutant.seeds + 1):
        found.update(run(seed, mutant.plan).verdict.rules())
        if found & mutant.rules:
            return
    pytest.fail(f"no seed up to {mutant.seeds} breaks {sorted(mutant.rules)}, only {sorted(found)}")


@pytest.mark.slow
@pytest.mark.parametrize("plan", dict.fromkeys(mutant.plan for mutant in MUTANTS))
def test_without_mutants_the_same_worlds_are_sound(plan: Plan) -> None:
    outcome = run(1, plan)
    assert outcome.verdict.ok, str(outcome.verdict)


def test_every_mutant_that_must_be_caught_is_there() -> None:
    there = {mutant.proof for mutant in (*MUTANTS, *MESH_MUTANTS)} - {""}
    assert there == set(PROOF)
