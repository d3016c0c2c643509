"""What came of a scenario: by what tasks wrote outside the mesh, and by the checker of histories.

The outside truth is judged here, apart from the checker, and does not trust the mesh: each second
between a load's begin and its rest has exactly one run of each steady job. All else, including why
something is or is not allowed, is the checker's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from faults.load import PLAIN, STEADY
from faults.mesh import FaultMesh
from faults.scenarios import BAND_S, Scenario

from sexton.internal.v1.records_pb2 import RunRecord
from sexton.v1 import run_pb2
from sexton_records import keys
from sexton_sim import verify
from sexton_sim.history import Durable, History, Note
from sexton_sim.sources import Opening, Sources

_SCHEDULED: Final = re.compile(r"t(\d{8}T\d{6})Z-.*")
_PROMPT: Final = frozenset({"on_time", "late"})
"""Why runs were started that waited for nothing but their time."""
_LOSES_WORKER: Final = frozenset({"crash", "suspend", "sleep", "cut", "stop"})


class Span(NamedTuple):
    """A time on the boot clock, in nanoseconds; both ends included."""

    begin_ns: int
    end_ns: int

    def holds(self, at_ns: int | None) -> bool:
        """Tells whether a time lies in it."""
        return at_ns is not None and self.begin_ns <= at_ns <= self.end_ns


@dataclass(slots=True, kw_only=True)
class Row:
    """What came of one scenario on one mesh."""

    scenario: str
    mesh: str
    fired: int
    """Runs that the store's history has of it."""
    doubled: int
    """Nominal times with a second run, and attempts that were begun twice."""
    lost: int
    """Seconds of steady jobs without a run that succeeded."""
    repeated: int
    """Executions that followed one of the same run that had not failed: it was cut short, or its
    completion was lost."""
    latest_s: float
    """The longest time from a due instant to the commit of its run."""
    takeover_s: float | None
    redelivery_s: float | None
    """The longest time from the loss of a worker to the next attempt of a run that it had."""
    seconds: float
    """That the scenario and its ending took."""
    checked: int = 0
    """Things that the checker looked at."""
    problems: list[str] = field(default_factory=list)
    inconclusive: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """Says it in a word."""
        return "holds" if not self.problems else "VIOLATED"

    def entry(self) -> dict[str, Any]:
        """Gives it for a JSON file."""
        return {**asdict(self), "verdict": self.verdict}


class _Execution(NamedTuple):
    job: str
    run: str
    worker: str
    token: int
    begun: Note
    ended: Note | None


def judge(
    scenario: Scenario,
    mesh: FaultMesh,
    written: Sequence[Path],
    *,
    played: Span,
    loaded: Sequence[Span],
    measured: Mapping[str, float],
) -> Row:
    """Reads all that is written, and judges it.

    `played` is this scenario with its ending, `loaded` all times between which steady jobs ran.
    """
    sources = Sources([*mesh.store_history(), *written, *mesh.shared.glob("*.jsonl")])
    fired, latest_s, twice = _fired(sources.log(), played)
    history = sources.notes()
    executions = _executions(history)
    here = [it for it in executions if played.holds(it.begun.at_ns)]
    row = Row(
        scenario=scenario.name,
        mesh=mesh.kind,
        fired=fired,
        doubled=twice + _doubled(executions),
        lost=sum(len(_missing(executions, job, span)) for job in STEADY for span in loaded),
        repeated=len(_repeats(here)),
        latest_s=latest_s,
        takeover_s=measured.get("takeover_s"),
        redelivery_s=_redelivery_s(history, here),
        seconds=(played.end_ns - played.begin_ns) / 1e9,
    )
    verdict = verify.judge(sources)
    row.checked = sum(verdict.checked.values())
    row.inconclusive = list(verdict.inconclusive)
    row.problems = [str(violation) for violation in verdict.violations]
    row.problems += _broken_promises(scenario, row)
    return row


def _broken_promises(scenario: Scenario, row: Row) -> list[str]:
    problems = []
    if row.fired < 10:
        problems.append(f"only {row.fired} runs were fired: too few to tell anything")
    if row.doubled:
        problems.append(f"{row.doubled} nominal times or attempts are doubled")
    if row.lost:
        problems.append(f"{row.lost} nominal times of steady jobs are lost")
    for what, promised, took in (
        ("somebody else acted", scenario.takeover_s, row.takeover_s),
        ("runs started elsewhere", scenario.redelivery_s, row.redelivery_s),
    ):
        if promised is not None and took is not None and took > promised + BAND_S:
            problems.append(f"{what} after {took:.1f} s, promised are {promised:g} s")
    if scenario.takeover_s is not None and row.takeover_s is None:
        problems.append("nobody took over")
    return problems


def _fired(log: Iterable[Opening | Durable], played: Span) -> tuple[int, float, int]:
    """Gives how many runs were made, how late the latest was, and how many instants have two."""
    fired, latest_ns, twice = 0, 0, 0
    seen: set[tuple[str, int]] = set()
    for entry in log:
        if isinstance(entry, Opening):
            continue
        for change in entry.commit.changes:
            if change.before is not None or not change.key.startswith(keys.ACTIVE):
                continue
            assert change.after is not None, "it was absent before"
            record = RunRecord.FromString(change.after.value)
            here = played.holds(entry.begun_ns)
            fired += here
            if record.origin != run_pb2.RUN_ORIGIN_SCHEDULE:
                continue
            if here and record.reason in _PROMPT:
                latest_ns = max(latest_ns, entry.commit.mesh_time_ns - record.due_ns)
            instant = (record.template.job_uid, record.nominal_ns)
            twice += instant in seen
            seen.add(instant)
    return fired, latest_ns / 1e9, twice


def _executions(history: History) -> list[_Execution]:
    begun: list[Note] = []
    ended: dict[tuple[str, int], Note] = {}
    for note in history.of("exec"):
        if note.what == "started":
            begun.append(note)
        else:
            ended.setdefault((note.facts["run"], note.facts["token"]), note)
    return [
        _Execution(
            note.facts["job"], note.facts["run"], note.target, note.facts["token"], note,
            ended.get((note.facts["run"], note.facts["token"])),
        )
        for note in begun
    ]  # fmt: skip


def _doubled(executions: Sequence[_Execution]) -> int:
    """Counts attempts that were begun twice, and nominal times of which two runs were executed."""
    tokens = [(it.job, it.run, it.token) for it in executions]
    runs: dict[tuple[str, str], set[str]] = defaultdict(set)
    for it in executions:
        match = _SCHEDULED.fullmatch(it.run)
        if match is not None:
            runs[it.job, match[1]].add(it.run)
    return len(tokens) - len(set(tokens)) + sum(len(each) - 1 for each in runs.values())


def _missing(executions: Sequence[_Execution], job: str, span: Span) -> set[int]:
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


def _repeats(executions: Sequence[_Execution]) -> list[tuple[_Execution, _Execution]]:
    """Gives executions that had not failed, and the ones that followed them all the same."""
    by_run: dict[tuple[str, str], list[_Execution]] = defaultdict(list)
    for it in executions:
        by_run[it.job, it.run].append(it)
    return [
        (before, after)
        for them in by_run.values()
        for before, after in pairwise(them)
        if before.ended is None or before.ended.facts["how"] != "failed"
    ]


def _redelivery_s(history: History, executions: Sequence[_Execution]) -> float | None:
    """Gives the longest time from a worker's loss to the next attempt of what it had begun."""
    lost = [note for note in history.of("fault") if note.what in _LOSES_WORKER]
    longest: float | None = None
    for before, after in _repeats(executions):
        times = [
            note.at_ns
            for note in lost
            if before.worker in {note.target, note.facts.get("source")}
            and before.begun.at_ns <= note.at_ns <= after.begun.at_ns
        ]
        if times and before.job in PLAIN:
            longest = max(longest or 0.0, (after.begun.at_ns - min(times)) / 1e9)
    return longest
