"""Whether starts come in time once nothing is done to the mesh any more: L1.

Dues and starts are matched earliest deadline first: which start belongs to which due matters less
than that, at every time, as many had started as had been due long enough ago.
"""

from __future__ import annotations

from sexton.v1 import run_pb2
from sexton_records import keys
from sexton_sim.check.records import Changed, MeshCommit, MeshLog
from sexton_sim.check.verdict import Verdict

BOUND_NS = 1_000_000_000
_PROMPT = frozenset({"on_time", "late"})


def check_lateness(log: MeshLog, verdict: Verdict, *, since_ns: int, until_ns: int) -> None:
    """Looks at what was due between two times on the recorder's clock."""
    begin = next((it for it in log.commits if it.begun_ns >= since_ns), None)
    if begin is None or begin.begun_ns >= until_ns:
        verdict.unknown("whether starts come in time: nothing was written after healing (L1)")
        return
    written = {commit.revision: commit.mesh_ns for commit in log.commits}
    dues, starts = [], []
    for commit in log.commits:
        if not begin.begun_ns <= commit.begun_ns < until_ns:
            continue
        for changed in commit.of(keys.STATE):
            if changed.before is None:
                continue
            # A resume may leave to the leader what was due long before it.
            possible_ns = written[changed.revision_before]
            _check_timer(changed, possible_ns, commit, verdict)
            for one in commit.of(keys.ACTIVE):
                record = one.after
                if one.before is not None or record.template.job_uid != changed.uid:
                    continue
                if record.origin == run_pb2.RUN_ORIGIN_SCHEDULE and record.reason in _PROMPT:
                    dues.append(max(record.due_ns, possible_ns))
                    starts.append(commit.mesh_ns)
    for due, start in zip(sorted(dues), sorted(starts), strict=True):
        verdict.checked["L1"] += 1
        if start - due > BOUND_NS:
            verdict.violate("L1", f"what was due at {due} started {(start - due) / 1e9:.3f} s late")


def _check_timer(changed: Changed, possible_ns: int, commit: MeshCommit, verdict: Verdict) -> None:
    """Nothing that is armed is long overdue when its state is next written."""
    before = changed.before
    if before.HasField("paused_at_ns") or not before.HasField("timer_ns"):
        return
    verdict.checked["L1"] += 1
    late_ns = commit.mesh_ns - max(before.timer_ns, possible_ns)
    if late_ns > BOUND_NS:
        verdict.violate(
            "L1", f"a timer of {before.timer_ns} stood for {late_ns / 1e9:.3f} s", [commit]
        )
