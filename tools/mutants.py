#!/usr/bin/env python3
"""Prints which rule of the checker catches which mutant: `make mutants`.

Every mutant is a fault put into the product for the time of a run of the simulation; the tests hold
that each is caught (tests/simulation). With `--json FILE` the table is written for programs too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from simulation import mutants as store_mutants
from simulation.mesh import mutants as mesh_mutants

from sexton_sim import world
from sexton_sim.mesh import world as mesh_world


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs every mutant; gives 0 where all are caught by the right rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the table here, too")
    parser.add_argument("--only", default="", help="mutants whose name has this in it")
    parser.add_argument("--verdicts", action="store_true", help="print what the checker says")
    options = parser.parse_args(arguments)
    rows = []
    sys.stdout.write("| mutant | in PROOF as | world | caught by | seed | s |\n")
    sys.stdout.write("|---|---|---|---|---|---|\n")
    for mutant, name, run in _mutants():
        if options.only not in mutant.name:
            continue
        row = _caught(mutant, name, run)
        rows.append(row)
        told = (row["mutant"], row["proof"], name, row["rule"], row["seed"], row["took_s"])
        sys.stdout.write(f"| {' | '.join(map(str, told))} |\n")
        if options.verdicts:
            sys.stdout.write(f"\n{row['verdict']}\n\n")
        sys.stdout.flush()
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0 if all(row["rule"] for row in rows) else 1


def _mutants() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    for mutant in store_mutants.MUTANTS:
        yield mutant, "store", world.run
    for mesh_mutant in mesh_mutants.MUTANTS:
        yield mesh_mutant, "mesh", mesh_world.run


def _caught(mutant: Any, name: str, run: Callable[..., Any]) -> dict[str, Any]:
    began = time.process_time()
    row = {"mutant": mutant.name, "proof": mutant.proof, "world": name, "rule": "", "seed": 0}
    with pytest.MonkeyPatch.context() as patch:
        mutant.patch(patch)
        for seed in range(1, mutant.seeds + 1):
            verdict = run(seed, mutant.plan).verdict
            found = [it for it in verdict.violations if it.rule in mutant.rules]
            if found:
                row |= {"rule": found[0].rule, "seed": seed, "verdict": str(found[0])}
                break
    return {"verdict": "not caught", **row, "took_s": round(time.process_time() - began, 1)}


if __name__ == "__main__":
    sys.exit(main())
