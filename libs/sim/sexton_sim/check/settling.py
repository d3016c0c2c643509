"""What became of runs, from their creation to their end: S9, S11 and S15 to S17."""

from __future__ import annotations

from dataclasses import dataclass, field

from sexton.internal.v1 import records_pb2 as pb
from sexton_core.runs import ENDED, TRANSITIONS, WITH_WORKER
from sexton_core.words import RunState
from sexton_records import keys
from sexton_records.runs import STATE_OF
from sexton_sim.check.records import Changed, MeshCommit
from sexton_sim.check.verdict import Verdict

_WAYS = frozenset(
    (before, after) for (before, _), afters in TRANSITIONS.items() for after in afters
)


@dataclass(slots=True)
class _Run:
    """A run, as far as the log has come."""

    handle: bytes
    made: int
    tokens: list[int] = field(default_factory=list)
    ended: int = 0
    record: pb.RunRecord | None = None


class SettlingRules:
    """Follows every run through the log."""

    def __init__(self, verdict: Verdict) -> None:
        self.runs: dict[tuple[str, str], _Run] = {}
        self._verdict = verdict

    def take(self, commit: MeshCommit) -> None:
        """Looks at a commit."""
        finals = {
            (changed.after.template.job_uid, changed.after.run_id): changed
            for changed in commit.of(keys.RUNS)
            if changed.after is not None
        }
        for changed in commit.of(keys.ACTIVE):
            handle = keys.parse_handle_key(changed.key)
            run_key = (handle.uid, handle.run_id)
            if changed.before is None:
                self._take_new(run_key, changed, commit)
            elif changed.after is None:
                self._take_end(run_key, changed, finals.pop(run_key, None), commit)
            else:
                self._take_move(run_key, changed, commit)
        for run_key, changed in finals.items():
            self._verdict.violate(
                "S11", f"run {run_key[1]} was written as ended, and did not end there", [commit]
            )
        for changed in commit.of(keys.RUNS):
            if changed.before is not None and changed.after is not None:
                self._verdict.violate(
                    "S11", f"the end of run {changed.before.run_id} was written over", [commit]
                )

    def _take_new(self, run_key: tuple[str, str], changed: Changed, commit: MeshCommit) -> None:
        self._verdict.checked["S11"] += 1
        if run_key in self.runs:
            self._verdict.violate(
                "S11",
                f"run {run_key[1]} was made a second time",
                [f"the first time: revision {self.runs[run_key].made}", commit],
            )
        self.runs[run_key] = _Run(changed.key, commit.revision, record=changed.after)

    def _take_end(
        self,
        run_key: tuple[str, str],
        changed: Changed,
        final: Changed | None,
        commit: MeshCommit,
    ) -> None:
        verdict = self._verdict
        verdict.checked["S11"] += 1
        self.runs[run_key].ended = commit.revision
        if final is None:
            verdict.violate("S11", f"run {run_key[1]} went without an end", [commit])
            return
        before, after = changed.before, final.after
        self.runs[run_key].record = after
        was, became = STATE_OF[before.state], STATE_OF[after.state]
        if became not in ENDED:
            verdict.violate("S11", f"run {run_key[1]} ended as {became}", [commit])
        if (was, became) not in _WAYS:
            verdict.violate("S15", f"run {run_key[1]} went from {was} to {became}", [commit])
        if after.completed and after.token != _live_token(changed):
            verdict.violate(
                "S11",
                f"run {run_key[1]} was completed under token {after.token}, and "
                f"{_live_token(changed)} was live",
                [commit],
            )

    def _take_move(self, run_key: tuple[str, str], changed: Changed, commit: MeshCommit) -> None:
        verdict, before, after = self._verdict, changed.before, changed.after
        run = self.runs[run_key]
        was, became = STATE_OF[before.state], STATE_OF[after.state]
        verdict.checked["S15"] += 1
        if (was, became) not in _WAYS:
            verdict.violate("S15", f"run {run_key[1]} went from {was} to {became}", [commit])
        if became is RunState.RUNNING and was not in WITH_WORKER:
            self._take_assignment(run_key, run, changed, commit)
        run.record = after

    def _take_assignment(
        self, run_key: tuple[str, str], run: _Run, changed: Changed, commit: MeshCommit
    ) -> None:
        verdict, before, after = self._verdict, changed.before, changed.after
        verdict.checked["S9"] += 1
        run.tokens.append(commit.revision)
        if after.deliveries != before.deliveries + 1:
            verdict.violate(
                "S9",
                f"attempt {after.deliveries} of run {run_key[1]} follows attempt "
                f"{before.deliveries}",
                [commit],
            )


def _live_token(changed: Changed) -> int:
    return int(changed.before.token) or changed.revision_before
