"""The truth about executions, from what attempts wrote themselves: it does not trust the mesh."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, NamedTuple

from faults.load import PLAIN

from sexton_sim.history import History, Note

_SCHEDULED: Final = re.compile(r"t(\d{8}T\d{6})Z-.*")
_LOSES_WORKER: Final = frozenset({"crash", "suspend", "sleep", "cut", "stop"})


class Span(NamedTuple):
    """A time on the boot clock, in nanoseconds; both ends included."""

    begin_ns: int
    end_ns: int

    def holds(self, at_ns: int | None) -> bool:
        """Tells whether a time lies in it."""
        return at_ns is not None and self.begin_ns <= at_ns <= self.end_ns


class Execution(NamedTuple):
    """One attempt, as it was carried out; `ended` None: nothing says that it came to its end."""

    job: str
    run: str
    worker: str
    token: int
    begun: Note
    ended: Note | None


def executions_of(history: History) -> list[Execution]:
    begun: list[Note] = []
    ended: dict[tuple[str, int], Note] = {}
    for note in history.of("exec"):
        if note.what == "started":
            begun.append(note)
        else:
            ended.setdefault((note.facts["run"], note.facts["token"]), note)
    return [
        Execution(
            note.facts["job"], note.facts["run"], note.target, note.facts["token"], note,
            ended.get((note.facts["run"], note.facts["token"])),
        )
        for note in begun
    ]  # fmt: skip


def doubled(executions: Sequence[Execution]) -> int:
    """Counts attempts that were begun twice, and nominal times of which two runs were executed."""
    tokens = [(it.job, it.run, it.token) for it in executions]
    runs: dict[tuple[str, str], set[str]] = defaultdict(set)
    for it in executions:
        match = _SCHEDULED.fullmatch(it.run)
        if match is not None:
            runs[it.job, match[1]].add(it.run)
    return len(tokens) - len(set(tokens)) + sum(len(each) - 1 for each in runs.values())


def missing(executions: Sequence[Execution], job: str, span: Span) -> set[int]:
    """Gives the seconds, between the first and the last in a span, without a run that succeeded."""
    begun, done = set(), set()
    for it in executions:
        if it.job == job and span.holds(it.begun.at_ns):
            begun.add(_second(it.run))
            if it.ended is not None and it.ended.facts["how"] == "succeeded":
                done.add(_second(it.run))
    return set(range(min(begun), max(begun) + 1)) - done if begun else set()


def _second(run: str) -> int:
    match = _SCHEDULED.fullmatch(run)
    assert match is not None, f"{run} is no run of a nominal time"
    return int(datetime.strptime(match[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp())


def repeats(executions: Sequence[Execution]) -> list[tuple[Execution, Execution]]:
    """Gives executions that had not failed, and the ones that followed them all the same."""
    by_run: dict[tuple[str, str], list[Execution]] = defaultdict(list)
    for it in executions:
        by_run[it.job, it.run].append(it)
    return [
        (before, after)
        for them in by_run.values()
        for before, after in pairwise(them)
        if before.ended is None or before.ended.facts["how"] != "failed"
    ]


def redelivery_s(history: History, executions: Sequence[Execution]) -> float | None:
    """Gives the longest time from a worker's loss to the next attempt of what it had begun."""
    lost = [note for note in history.of("fault") if note.what in _LOSES_WORKER]
    longest: float | None = None
    for before, after in repeats(executions):
        times = [
            note.at_ns
            for note in lost
            if before.worker in {note.target, note.facts.get("source")}
            and before.begun.at_ns <= note.at_ns <= after.begun.at_ns
        ]
        if times and before.job in PLAIN:
            longest = max(longest or 0.0, (after.begun.at_ns - min(times)) / 1e9)
    return longest
