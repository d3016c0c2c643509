"""Whether starts come in time once nothing is done to the mesh any more: L1.

Dues and starts are matched earliest deadline first: which start belongs to which due matters less
than that, at every time, as many had started as had been due long enough ago.
"""

from __future__ import annotations

from sexton.v1 import run_pb2
from sexton_records import keys
from sexton_sim.check.records import MeshLog
from sexton_sim.check.recovery import MIN_QUIET_NS
from sexton_sim.check.settling import Run, RunKey
from sexton_sim.check.verdict import Verdict

RECOVERED_NS = MIN_QUIET_NS
BOUND_NS = 1_000_000_000
_PROMPT = frozenset({"on_time", "late"})


def check_lateness(
    log: MeshLog, runs: dict[RunKey, Run], verdict: Verdict, *, healed_ns: int, until_ns: int
) -> None:
    """Looks at what was due between recovery and `until_ns`, on the recorder's clock."""
    begin = next((it for it in log.commits if it.begun_ns >= healed_ns + RECOVERED_NS), None)
    if begin is None or begin.begun_ns >= until_ns:
        verdict.unknown("whether starts come in time: nothing was written after healing (L1)")
        return
    dues, starts = [], []
    for run in runs.values():
        record = run.record
        scheduled = record.origin == run_pb2.RUN_ORIGIN_SCHEDULE and record.reason in _PROMPT
        if scheduled and begin.mesh_ns <= record.due_ns and run.made.begun_ns < until_ns:
            dues.append(record.due_ns)
            starts.append(run.made.mesh_ns)
    for due, start in zip(sorted(dues), sorted(starts), strict=True):
        verdict.checked["L1"] += 1
        if start - due > BOUND_NS:
            verdict.violate("L1", f"what was due at {due} started {(start - due) / 1e9:.3f} s late")
    _check_cursors(log, verdict, healed_ns + RECOVERED_NS, until_ns)


def _check_cursors(log: MeshLog, verdict: Verdict, since_ns: int, until_ns: int) -> None:
    """Nothing that is armed is long overdue when its state is next written."""
    for commit in log.commits:
        if not since_ns <= commit.begun_ns < until_ns:
            continue
        for changed in commit.of(keys.STATE):
            before = changed.before
            if before is None or before.HasField("paused_at_ns") or not before.HasField("timer_ns"):
                continue
            verdict.checked["L1"] += 1
            late_ns = commit.mesh_ns - before.timer_ns
            if late_ns > BOUND_NS:
                verdict.violate(
                    "L1",
                    f"a timer of {before.timer_ns} stood for {late_ns / 1e9:.3f} s",
                    [commit],
                )
