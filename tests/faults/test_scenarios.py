"""Faults on real meshes under load: what the promise says holds after each of them.

One mesh of each kind is started once; the scenarios are played on it in turn, and each ends with
everything healed, a quiet time, a last read, and the checker over the whole history.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.judge import VIOLATED, Row
from faults.kinds import kinds, lacking
from faults.play import Player, told
from faults.scenarios import CONTAINERS, PROCESSES, SCENARIOS, Scenario

pytestmark = [pytest.mark.faults, pytest.mark.slow]

PLAYED = [
    pytest.param(kind, scenario, id=f"{kind}-{scenario.name}")
    for kind in (PROCESSES, CONTAINERS)
    for scenario in SCENARIOS
    if kind in scenario.ci
]


class Theatre:
    """The mesh on which is played now: the next kind's comes when this one's has gone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kind = ""
        self._meshes = 0
        self.player: Player | None = None

    def player_of(self, kind: str) -> Player:
        """Gives the one of a kind, with its mesh under load."""
        if self.player is None or self._kind != kind:
            self.clear()
            self._kind = kind
            self._meshes += 1
            folder = self._folder / f"{kind}-{self._meshes}"
            folder.mkdir()
            self.player = Player(kinds()[kind](folder / "mesh"), folder)
            self.player.begin()
        return self.player

    def clear(self) -> None:
        """Ends the mesh, if there is one."""
        player, self.player = self.player, None
        if player is not None:
            player.end()


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    theatre = Theatre(tmp_path_factory.mktemp("faults"))
    yield theatre
    theatre.clear()


@pytest.mark.parametrize(("kind", "scenario"), PLAYED)
def test_the_promise_holds(
    theatre: Theatre, kind: str, scenario: Scenario, rows: list[Row]
) -> None:
    if missing := lacking(kind):
        if os.environ.get("SEXTON_REQUIRE_SYSTEM"):
            pytest.fail(f"{missing} is missing")
        pytest.skip(f"needs {missing}")
    try:
        row = theatre.player_of(kind).play(scenario)
    except BaseException:
        theatre.clear()  # nobody knows what state it is in; the next scenario gets another
        raise
    rows.append(row)
    assert row.verdict != VIOLATED, "\n".join(told(row))
    if row.verdict != "holds":
        pytest.skip(f"{row.load:.0f} wanted each processor: {'; '.join(told(row))}")
