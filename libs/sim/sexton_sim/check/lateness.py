"""Whether starts come in time: L1.

Dues and starts are matched earliest deadline first: which start belongs to which due matters less
than that, at every time, as many had started as had been due long enough ago. Every start is
measured, by what was going on with the mesh; those of a time in which everything worked are judged.
"""

from __future__ import annotations

from array import array

from sexton.v1 import run_pb2
from sexton_records import keys
from sexton_sim.check.describe import instant
from sexton_sim.check.executions import Times
from sexton_sim.check.faults import Faults
from sexton_sim.check.records import Changed, MeshCommit
from sexton_sim.check.settling import Attempt, Run
from sexton_sim.check.verdict import Verdict

BOUND_NS = 1_000_000_000
SETTLED_NS = 12_000_000_000
"""So long after a fault it may still be felt: silent connections, back-offs, leases."""
_PROMPT = frozenset({"on_time", "late"})
_BANDS = {
    "down": "a process was down",
    "still": "a machine stood still",
    "silent": "a process was suspended",
    "broken": "a connection was cut",
    "rough": "the network was rough",
    "full": "the disk was full",
}
_CALM = "nothing was done"
_AFTER = "shortly after a fault"
_UNTOLD = "no line tells what was done"


class LatenessRules:
    """Measures every start. Between two times on the recorder's clock, it is judged."""

    def __init__(
        self, faults: Faults, verdict: Verdict, times: Times, *, since_ns: int, until_ns: int
    ) -> None:
        self._bound_ns = BOUND_NS + times.slack_ns
        self._faults = faults
        self._verdict = verdict
        self._since_ns = since_ns
        self._until_ns = until_ns
        self._dues, self._starts = array("q"), array("q")
        self._lateness: dict[str, array[float]] = {}
        self._assigned: dict[str, array[float]] = {}
        self._written: dict[str, int] = {}
        """Mesh time at which each job's state was last written."""
        self._begun = False

    def take(self, commit: MeshCommit) -> None:
        """Looks at a commit."""
        judged = self._since_ns <= commit.begun_ns < self._until_ns
        self._begun = self._begun or judged
        for changed in commit.of(keys.STATE):
            # A resume may leave to the leader what was due long before it.
            possible_ns = self._written.get(changed.uid, 0)
            if changed.after is None:
                self._written.pop(changed.uid, None)
            else:
                self._written[changed.uid] = commit.mesh_ns
            if changed.before is None or not possible_ns:
                continue
            if judged:
                self._check_timer(changed, possible_ns, commit)
            for one in commit.of(keys.ACTIVE):
                record = one.after
                if one.before is not None or record.template.job_uid != changed.uid:
                    continue
                if record.origin == run_pb2.RUN_ORIGIN_SCHEDULE and record.reason in _PROMPT:
                    self._note(max(record.due_ns, possible_ns), commit, judged=judged)

    def made(self, run: Run, commit: MeshCommit) -> None:
        """Has nothing to say about that."""

    def assigned(self, run: Run, attempt: Attempt) -> None:
        """Measures how long a run waited in line."""
        record = run.record
        if attempt.number == 1 and record.reason in _PROMPT and not run.adopted:
            waited_ns = attempt.assigned.mesh_ns - max(record.due_ns, run.made.mesh_ns)
            band = self._band(attempt.assigned.begun_ns - waited_ns, attempt.assigned.begun_ns)
            self._assigned.setdefault(band, array("d")).append(max(0, waited_ns) / 1e9)

    def given_up(self, run: Run, attempt: Attempt) -> None:
        """Has nothing to say about that."""

    def ended(self, run: Run) -> None:
        """Has nothing to say about that."""

    def finish(self) -> None:
        """Matches dues and starts, and tells what was measured."""
        for band in sorted(self._lateness):
            self._verdict.measure(f"due to started, {band}", self._lateness[band])
        for band in sorted(self._assigned):
            self._verdict.measure(f"started to assigned, {band}", self._assigned[band])
        if not self._begun and self._until_ns > self._since_ns:
            self._verdict.unknown(
                "whether starts come in time: nothing was written while everything worked (L1)"
            )
        for due, start in zip(sorted(self._dues), sorted(self._starts), strict=True):
            self._verdict.checked["L1"] += 1
            if start - due > self._bound_ns:
                self._verdict.violate(
                    "L1",
                    f"what was due at {instant(due)} started {(start - due) / 1e9:.3f} s late, at "
                    f"{instant(start)}, and nothing was in the way",
                )

    def _note(self, due_ns: int, commit: MeshCommit, *, judged: bool) -> None:
        late_ns = max(commit.mesh_ns - due_ns, 0)  # what is written before its time is not late
        band = self._band(commit.begun_ns - late_ns, commit.begun_ns)
        self._lateness.setdefault(band, array("d")).append(late_ns / 1e9)
        if judged:
            self._dues.append(due_ns)
            self._starts.append(due_ns + late_ns)

    def _band(self, since_ns: int, until_ns: int) -> str:
        """Names what was going on in a time."""
        if not self._faults.told:
            return _UNTOLD
        kinds = {span.kind for span in self._faults.around(since_ns, until_ns)}
        for kind, name in _BANDS.items():
            if kind in kinds:
                return name
        return _AFTER if self._faults.lately(since_ns, SETTLED_NS) else _CALM

    def _check_timer(self, changed: Changed, possible_ns: int, commit: MeshCommit) -> None:
        """Nothing that is armed is long overdue when its state is next written."""
        before = changed.before
        if before.HasField("paused_at_ns") or not before.HasField("timer_ns"):
            return
        self._verdict.checked["L1"] += 1
        late_ns = commit.mesh_ns - max(before.timer_ns, possible_ns)
        if late_ns > self._bound_ns:
            self._verdict.violate(
                "L1",
                f"a timer of {before.namespace}/{before.job} for {instant(before.timer_ns)} stood "
                f"for {late_ns / 1e9:.3f} s, and nothing was in the way",
                [commit],
            )
