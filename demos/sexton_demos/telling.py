"""How a stage is told: lines that fit a page, the pretend clock, and what is counted on the way."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sexton_core.instants import MILLISECOND, Instant, to_datetime
from sexton_sim.clock import DEFAULT_WALL_NS

WIDTH: Final = 96
MIDNIGHT: Final[Instant] = DEFAULT_WALL_NS
"""When every story begins: 2026-12-01T00:00:00Z."""


class Numbers(NamedTuple):
    """What was counted while an idea was at work; None: not what this stage is about."""

    looked: float | None = None
    """Jobs looked at per tick."""
    doubled: float | None = None
    """Runs, or effects of a run, beyond the one that there should be."""
    lost: float | None = None
    """Nominal times that no run answered."""
    late_s: float | None = None
    """The latest start of anything, after its time."""
    gap_s: float | None = None
    """From a death to the first thing that somebody else does in its place."""
    refused: float | None = None
    """Writes and effects of somebody replaced, that were turned away."""


class Told(NamedTuple):
    """A stage as it was told, and what was counted."""

    lines: tuple[str, ...]
    before: Numbers
    """Without its idea, besides what the wall of the stage before it has shown."""
    after: Numbers
    """With its idea."""
    wall: Numbers
    """Where its idea fails."""


_MEASURE: Final = re.compile(r"-|[\d.,]+( s)?|(\d+[dhms])+")
UNCOUNTED: Final = Numbers()


@dataclass(slots=True)
class Page:
    """Collects the lines of a stage."""

    lines: list[str] = field(default_factory=list)

    def say(self, *lines: str) -> None:
        """Adds lines."""
        for line in lines:
            assert len(line) <= WIDTH, f"{len(line)} characters: {line}"
            self.lines.append(line)

    def conclude(self, text: str) -> None:
        """Adds what follows from the lines above, set in a little and wrapped."""
        self.say(*textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  "))

    def at(self, instant: Instant, what: str) -> None:
        """Adds what happened at a time."""
        self.say(f"  {clock(instant)}  {what}")

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Adds a table; columns of numbers and durations stand on the right."""
        columns = range(len(headers))
        cells = [[str(cell) for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
        right = [all(_MEASURE.fullmatch(row[n]) for row in cells) for n in columns]
        for row in (headers, *cells):
            aligned = (
                cell.rjust(width) if to_the_right else cell.ljust(width)
                for cell, width, to_the_right in zip(row, widths, right, strict=True)
            )
            self.say("  " + "   ".join(aligned).rstrip())

    def told(
        self, *, after: Numbers, before: Numbers = UNCOUNTED, wall: Numbers = UNCOUNTED
    ) -> Told:
        """Ends the page."""
        return Told(tuple(self.lines), before, after, wall)


def clock(instant: Instant) -> str:
    """Gives the time of day, to a tenth of a second: `00:02:00.0`."""
    rounded = to_datetime(instant + 50 * MILLISECOND)
    return f"{rounded:%H:%M:%S}.{rounded.microsecond // 100_000}"


def by_appearance(names: Iterable[str]) -> dict[str, str]:
    """Numbers processes of one kind as they come on the stage: which is which is chance."""
    return {
        name: f"{name.rpartition('-')[0]}-{n}" for n, name in enumerate(dict.fromkeys(names), 1)
    }


def plural(number: int, noun: str) -> str:
    """Gives `1 run`, `2 runs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
