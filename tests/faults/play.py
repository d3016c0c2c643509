"""Plays scenarios on one mesh, one after the other, each with the same ending."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from faults.judge import Row, judge
from faults.load import Load
from faults.mesh import FaultMesh
from faults.outside import Span
from faults.scenarios import Scenario
from faults.stage import Stage

from sexton.history import HistoryFile, boot_ns

QUIET_S: Final = 14.0
"""Under load, after the healing: the checker says nothing of a mesh that had less than 12 s."""
WARM_S: Final = 3.0
"""Under load, before anything is done: then every kind of run is under way."""
_LOOK_S: Final = 0.5
_MOST_TOLD: Final = 5
_TITLES: Final = (
    "scenario", "mesh", "fired", "doubled", "lost", "repeated", "latest", "takeover",
    "redelivery", "checked", "load", "verdict",
)  # fmt: skip


class Player:
    """A mesh that is started once, and all that is played on it."""

    def __init__(self, mesh: FaultMesh, folder: Path, *, seed: int = 0) -> None:
        self.mesh = mesh
        self.rows: list[Row] = []
        self._folder = folder
        self._seed = seed
        self._calls = folder / "calls.jsonl"
        self._faults = folder / "faults.jsonl"
        self._load = Load(mesh, seed=seed, calls=self._calls)
        self._notes = HistoryFile(self._faults)
        self._known: set[str] = set()
        self._since_ns = 0
        self._load_seen = 0.0
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch_lives, daemon=True)

    def begin(self) -> None:
        """Starts the mesh, and the load."""
        self.mesh.start()
        self._watching.start()
        self._since_ns = boot_ns()
        self._load.begin()

    def play(self, scenario: Scenario) -> Row:
        """Plays a scenario to its end: heal, quiet, last read, checker."""
        began_ns = boot_ns()
        self._load_seen = 0.0
        time.sleep(WARM_S)
        random_ = random.Random(f"{self._seed}/{scenario.name}/{len(self.rows)}")
        stage = Stage(self.mesh, self._load, self._notes, random_)
        failure = ""
        try:
            for step in scenario.steps:
                step(stage)
        except AssertionError as error:
            failure = f"in the middle of it: {error}"
        stage.heal()
        time.sleep(QUIET_S)
        self._load.rest()
        loaded = Span(self._since_ns, boot_ns())
        row = judge(
            scenario,
            self.mesh,
            [self._faults, self._calls],
            played=Span(began_ns, boot_ns()),
            loaded=loaded,
            measured=stage.measured,
            known=self._known,
            load=self._load_seen,
        )
        row.problems[:0] = [failure] if failure else []
        self.rows.append(row)
        self._since_ns = boot_ns()
        self._load.go_on()
        return row

    def end(self) -> None:
        """Ends load and mesh. Idempotent."""
        self._load.end()
        self._over.set()
        if self._watching.ident is not None:
            self._watching.join()
        self.mesh.stop()
        self._notes.close()

    def _watch_lives(self) -> None:
        """Notes who is back: when it serves, for until then it is as good as down."""
        lives = {name: member.life for name, member in self.mesh.members().items()}
        while not self._over.wait(_LOOK_S):
            wanted = os.getloadavg()[0] / (os.cpu_count() or 1)
            self._load_seen = max(self._load_seen, wanted)
            for name, member in self.mesh.members().items():
                if lives.get(name) != member.life and self.mesh.serves(name):
                    lives[name] = member.life
                    self._notes.write("fault", what="start", target=name, facts={})


def table(rows: Sequence[Row]) -> str:
    """Gives the rows as a table for people."""
    lines = [_TITLES, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_TITLES))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def write_report(rows: Sequence[Row], path: Path) -> None:
    """Writes the rows as JSON, beside those of other meshes that are there already."""
    there = json.loads(path.read_text()) if path.exists() else []
    names = {(row.mesh, row.scenario) for row in rows}
    kept = [entry for entry in there if (entry["mesh"], entry["scenario"]) not in names]
    path.write_text(json.dumps([*kept, *(row.entry() for row in rows)], indent=1) + "\n")


def told(row: Row) -> list[str]:
    """Says what was wrong in a scenario: the first few of many like each other are enough."""
    problems = row.problems + row.late
    found = [f"{row.mesh} {row.scenario}: {problem}" for problem in problems[:_MOST_TOLD]]
    more = len(problems) - len(found)
    return [*found, f"{row.mesh} {row.scenario}: and {more} more"] if more else found


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.scenario, row.mesh, str(row.fired), str(row.doubled), str(row.lost),
        str(row.repeated), _seconds(row.latest_s), _seconds(row.takeover_s),
        _seconds(row.redelivery_s), str(row.checked), f"{row.load:.1f}", row.verdict,
    )  # fmt: skip


def _seconds(took: float | None) -> str:
    return "-" if took is None else f"{took:.1f} s"
