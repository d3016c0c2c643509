"""What came of a scenario: by what tasks wrote outside the mesh, and by the checker of histories.

The outside truth is judged here, apart from the checker, and does not trust the mesh: each second
between a load's begin and its rest has exactly one run of each steady job. All else, including why
something is or is not allowed, is the checker's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from faults.load import STEADY
from faults.mesh import FaultMesh
from faults.outside import Span, doubled, executions_of, missing, redelivery_s, repeats
from faults.scenarios import BAND_S, Scenario
from faults.stage import SESSION_S

from sexton.internal.v1.records_pb2 import RunRecord
from sexton.v1 import run_pb2
from sexton_records import keys
from sexton_sim import verify
from sexton_sim.check.executions import Times
from sexton_sim.history import Durable
from sexton_sim.sources import Opening, Sources

_TIMES: Final = Times(session_ns=round(SESSION_S * 1e9), kills_noted=False, slack_ns=2_000_000_000)
VIOLATED: Final = "VIOLATED"
BUSY: Final = 6.0
"""With more than so many that want each processor, leases of two seconds can't be kept in time."""
_TIMING: Final = frozenset({"L1", "L2", "L4", "L6", "L7"})
_PROMPT: Final = frozenset({"on_time", "late"})
"""Why runs were started that waited for nothing but their time."""


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
    load: float = 0.0
    """How many wanted each processor at the worst moment, over a minute."""
    problems: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """What came later than promised; on a machine that has far too much to do this says nothing."""
    inconclusive: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """Says it in a word."""
        if self.problems or (self.late and self.load <= BUSY):
            return VIOLATED
        return "inconclusive" if self.late else "holds"

    def entry(self) -> dict[str, Any]:
        """Gives it for a JSON file."""
        return {**asdict(self), "verdict": self.verdict}


def judge(
    scenario: Scenario,
    mesh: FaultMesh,
    written: Sequence[Path],
    *,
    played: Span,
    loaded: Span,
    measured: Mapping[str, float],
    known: set[str],
    load: float,
) -> Row:
    """Reads all that is written, and judges it.

    `played` is this scenario with its ending, `loaded` the time between which steady jobs ran. What
    the checker says again of what was before is `known` already, and said once only.
    """
    sources = Sources([*mesh.store_history(), *written, *mesh.shared.glob("*.jsonl")])
    fired, latest_s, twice = _fired(sources.log(), played)
    history = sources.notes()
    executions = executions_of(history)
    here = [it for it in executions if played.holds(it.begun.at_ns)]
    row = Row(
        scenario=scenario.name,
        mesh=mesh.kind,
        fired=fired,
        doubled=twice + doubled(here),
        lost=sum(len(missing(executions, job, loaded)) for job in STEADY),
        repeated=len(repeats(here)),
        latest_s=latest_s,
        takeover_s=measured.get("takeover_s"),
        redelivery_s=redelivery_s(history, here),
        seconds=(played.end_ns - played.begin_ns) / 1e9,
        load=load,
    )
    verdict = verify.judge(sources, _TIMES)
    row.checked = sum(verdict.checked.values())
    row.inconclusive = list(verdict.inconclusive)
    for violation in verdict.violations:
        if str(violation) not in known:
            known.add(str(violation))
            (row.late if violation.rule in _TIMING else row.problems).append(str(violation))
    row.problems += _broken_promises(row)
    row.late += _late_promises(scenario, row)
    if scenario.takeover_s is not None and row.takeover_s is None:
        row.problems.append("nobody took over")
    return row


def _broken_promises(row: Row) -> list[str]:
    problems = []
    if row.fired < 10:
        problems.append(f"only {row.fired} runs were fired: too few to tell anything")
    if row.doubled:
        problems.append(f"{row.doubled} nominal times or attempts are doubled")
    if row.lost:
        problems.append(f"{row.lost} nominal times of steady jobs are lost")
    return problems


def _late_promises(scenario: Scenario, row: Row) -> list[str]:
    found = []
    for what, promised, took in (
        ("somebody else acted", scenario.takeover_s, row.takeover_s),
        ("runs started elsewhere", scenario.redelivery_s, row.redelivery_s),
    ):
        if promised is not None and took is not None and took > promised + BAND_S:
            found.append(f"{what} after {took:.1f} s, promised are {promised:g} s")
    return found


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
            twice += here and instant in seen
            seen.add(instant)
    return fired, latest_ns / 1e9, twice
