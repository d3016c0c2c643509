"""`make soak MINUTES=n`: every scenario on every kind of mesh, over and over, and whether it leaks.

Half of a kind's time at the beginning is calm, ten minutes at most: under load, with nothing done,
while memory, descriptors, threads and the store's file are watched (L9). Then the scenarios are
played in a random order until the time is over, all of them at least once.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from faults.judge import VIOLATED, Row
from faults.kinds import MakeMesh, kinds
from faults.mesh import FaultMesh, Usage
from faults.play import Player, table, told, write_report
from faults.scenarios import SCENARIOS

MIB: Final = 1024 * 1024
LONGEST_CALM_S: Final = 600.0
_SAMPLES: Final = 30


class Growth(NamedTuple):
    """By how much something grew from the middle third of the calm to its last one."""

    what: str
    before: float
    after: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        """Tells whether it is within what is allowed: noise, and what caches are still to hold."""
        return self.after - self.before <= self.allowed

    def __str__(self) -> str:
        verdict = "flat" if self.is_flat else f"GROWS, {self.allowed:g} allowed"
        return f"L9  {self.what:<28} {self.before:12,.1f} -> {self.after:12,.1f}  {verdict}"


class Sample(NamedTuple):
    """What the members hold at one time."""

    members: dict[str, Usage]
    store_bytes: int


def main() -> int:
    """Runs the soak; gives the exit code."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, required=True, help="for all kinds together")
    parser.add_argument("--kind", choices=sorted(kinds()), help="only this one")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of order and chance")
    parser.add_argument("--scenario", action="append", help="only this one; may be repeated")
    parser.add_argument("--report", type=Path, help="JSON file to which the table is added")
    arguments = parser.parse_args()
    say(f"seed {arguments.seed}")
    chosen = {arguments.kind: kinds()[arguments.kind]} if arguments.kind else kinds()
    rows: list[Row] = []
    leaks: list[Growth] = []
    broken: list[str] = []
    for kind, make in chosen.items():
        seconds = arguments.minutes * 60 / len(chosen)
        soak = _Soak(kind, make, arguments.seed, arguments.scenario)
        soak.run(seconds)
        rows += soak.rows
        broken += soak.broken
        leaks += [growth for growth in soak.growth if not growth.is_flat]
    say(table(rows))
    if arguments.report:
        write_report(rows, arguments.report)
    bad = [row for row in rows if row.verdict == VIOLATED]
    for line in broken:
        say(line)
    say(f"{len(rows)} scenarios, {len(bad)} violated; {len(leaks)} things that grow")
    return 1 if bad or leaks or broken else 0


class _Soak:
    """One kind of mesh."""

    def __init__(self, kind: str, make: MakeMesh, seed: int, names: Sequence[str] | None) -> None:
        self.rows: list[Row] = []
        self.growth: list[Growth] = []
        self.broken: list[str] = []
        """Meshes that could not be healed, and after what."""
        self._kind = kind
        self._make = make
        self._seed = seed
        self._random = random.Random(f"{seed}/{kind}")
        self._names = names

    def run(self, seconds: float) -> None:
        """Runs the calm, and then scenarios, on new meshes where one is beyond healing."""
        until = time.monotonic() + seconds
        calm_s = 0.0 if self._names else min(LONGEST_CALM_S, seconds / 2)
        left: list[str] = []
        first_round = True
        while first_round or time.monotonic() < until:
            folder = Path(tempfile.mkdtemp(prefix="sexton-soak-"))
            mesh = self._make(folder / "mesh")
            player = Player(mesh, folder, seed=self._seed)
            name, failed = "", False
            try:
                player.begin()
                self._watch(mesh, calm_s)
                calm_s = 0.0
                while first_round or time.monotonic() < until:
                    left = left or self._shuffled(mesh)
                    name = left.pop()
                    self._play(player, name)
                    first_round = first_round and bool(left)
            except AssertionError as error:
                failed = True
                self.broken.append(f"{self._kind} {name}: beyond healing: {error}")
                say(self.broken[-1])
                first_round = first_round and bool(left)
            finally:
                player.end()
            if failed or any(row.verdict == VIOLATED for row in player.rows):
                say(f"what it wrote is kept in {folder}")
            else:
                shutil.rmtree(folder)

    def _shuffled(self, mesh: FaultMesh) -> list[str]:
        names = [
            scenario.name
            for scenario in SCENARIOS
            if scenario.needs <= mesh.able and (not self._names or scenario.name in self._names)
        ]
        # One that leaves the store's clock disputed or everything down is as good as any.
        self._random.shuffle(names)
        return names

    def _play(self, player: Player, name: str) -> None:
        scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
        say(f"{self._kind}: {name}: {scenario.does}")
        row = player.play(scenario)
        self.rows.append(row)
        say(table([row]).splitlines()[-1])
        for line in told(row):
            say(line)

    def _watch(self, mesh: FaultMesh, seconds: float) -> None:
        """Lets the load go on, and compares what its last third holds with the one before."""
        if not seconds:
            return
        say(f"{self._kind}: {seconds:.0f} s of calm, to see whether anything grows (L9)")
        samples = []
        for _ in range(_SAMPLES):
            time.sleep(seconds / _SAMPLES)
            samples.append(Sample(dict(mesh.usage()), mesh.store_bytes()))
        self.growth = list(growth_of(samples))
        for growth in self.growth:
            say(str(growth))


def growth_of(samples: Sequence[Sample]) -> list[Growth]:
    """Compares the last third of the samples with the middle one, member by member."""
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]

    def mean(part: Sequence[float]) -> float:
        return sum(part) / len(part)

    found = []
    for name in sorted(samples[-1].members):
        then = [sample.members[name] for sample in middle if name in sample.members]
        now = [sample.members[name] for sample in last if name in sample.members]
        if not then or not now:
            continue
        resident = mean([it.resident_bytes / MIB for it in then])
        found += [
            Growth(f"{name} resident MiB", resident,
                   mean([it.resident_bytes / MIB for it in now]), 4 + resident / 20),
            Growth(f"{name} descriptors", mean([it.descriptors for it in then]),
                   mean([it.descriptors for it in now]), 5),
            Growth(f"{name} threads", mean([it.threads for it in then]),
                   mean([it.threads for it in now]), 5),
        ]  # fmt: skip
    stored = mean([sample.store_bytes / MIB for sample in middle])
    after = mean([sample.store_bytes / MIB for sample in last])
    return [*found, Growth("store file MiB", stored, after, 1 + stored / 10)]


def say(text: str) -> None:
    """Tells a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
