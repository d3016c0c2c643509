"""What tasks really did, by their own notes: S9, S10 and S11.

A task notes its start and its end with its token. Executions of one run must not overlap, unless
something was done to the mesh that makes it possible and is documented: a worker's whole machine
stood still for longer than its session (nothing on it could end its tasks), or, not for `exclusive`
jobs, its connection broke and did not come back within the grace.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from sexton.v1 import run_pb2
from sexton_records import keys
from sexton_sim.check.settling import Run, RunKey
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import History, Note

_STANDSTILL = frozenset({"sleep", "wake"})
_BROKEN = frozenset(
    {"cut", "mend", "rough", "crash", "exit", "stop", "suspend", "resume", "reset", "healed"}
)


_BY_ITSELF = {
    run_pb2.ATTEMPT_STATE_SUCCEEDED: "succeeded",
    run_pb2.ATTEMPT_STATE_FAILED: "failed",
}
"""What a task comes to by itself, and says so. What stops it has the last word about the others."""


@dataclass(slots=True)
class _Execution:
    begun: Note
    ended: Note | None = None

    @property
    def token(self) -> int:
        return int(self.begun.facts["token"])

    def overlaps(self, later: _Execution) -> bool:
        return self.ended is None or self.ended.at_ns > later.begun.at_ns


def check_executions(history: History, runs: dict[RunKey, Run], verdict: Verdict) -> None:
    """Holds every execution against the log, and against each other."""
    found: dict[RunKey, list[_Execution]] = {}
    accepted: dict[RunKey, int] = {}
    for note in history.of("exec"):
        if "handle" not in note.facts:
            continue
        handle = keys.parse_handle_key(note.facts["handle"].encode("latin-1"))
        run_key = (handle.uid, handle.run_id)
        executions = found.setdefault(run_key, [])
        if note.what == "started":
            executions.append(_Execution(note))
        elif note.what == "ended":
            for execution in executions:
                same = execution.begun.target == note.target
                if same and execution.token == note.facts["token"] and execution.ended is None:
                    execution.ended = note
        elif note.what == "effect" and note.facts["accepted"]:
            verdict.checked["S10"] += 1
            if note.facts["token"] < accepted.get(run_key, 0):
                verdict.violate(
                    "S10", f"an older attempt of run {run_key[1]} had an effect", [note]
                )
            accepted[run_key] = note.facts["token"]
    faults = [note for note in history.notes if note.kind in {"fault", "clock"}]
    for run_key, executions in found.items():
        _check_run(run_key[1], runs.get(run_key), executions, faults, verdict)
    _check_reported(runs, found, verdict)


def _check_run(
    run_id: str,
    run: Run | None,
    executions: list[_Execution],
    faults: list[Note],
    verdict: Verdict,
) -> None:
    tokens: set[int] = set()
    for execution in executions:
        verdict.checked["S9"] += 1
        if run is None or execution.begun.at_ns < run.tokens.get(execution.token, 1 << 62):
            verdict.violate(
                "S9",
                f"run {run_id} was executed under token {execution.token}, under which nothing "
                f"was assigned",
                [execution.begun],
            )
        if execution.token in tokens:
            verdict.violate("S10", f"an attempt of run {run_id} was begun twice", [execution.begun])
        tokens.add(execution.token)
    if run is None:
        return
    template = run.record.template
    if template.at_most_once and len(tokens) > 1:
        verdict.violate(
            "S10",
            f"run {run_id}, which is delivered at most once, was started {len(tokens)} times",
            [execution.begun for execution in executions],
        )
    for before, after in pairwise(sorted(executions, key=lambda it: it.begun.at_ns)):
        verdict.checked["S10"] += 1
        if before.overlaps(after):
            _check_overlap(run_id, before, after, faults, verdict, exclusive=template.exclusive)


def _check_overlap(
    run_id: str,
    before: _Execution,
    after: _Execution,
    faults: list[Note],
    verdict: Verdict,
    *,
    exclusive: bool,
) -> None:
    verdict.checked["S10 overlaps"] += 1
    window = [note for note in faults if note.at_ns <= after.begun.at_ns]
    worker = before.begun.target
    still = any(note.what in _STANDSTILL and note.target == worker for note in window)
    broken = any(note.what in _BROKEN and note.at_ns >= before.begun.at_ns for note in window)
    rates = any(note.what == "rate" and not 0.8 < note.facts["rate"] < 1.25 for note in window)
    if still or rates or (broken and not exclusive):
        return
    verdict.violate(
        "S10",
        f"two executions of run {run_id} overlap, and nothing was done that allows it",
        [before.begun, after.begun, before.ended],
    )


def _check_reported(
    runs: dict[RunKey, Run], found: dict[RunKey, list[_Execution]], verdict: Verdict
) -> None:
    """What counts as an attempt's end is what its own task came to, under its own token."""
    if not found:
        verdict.unknown("whether what was completed was executed: tasks noted nothing (S11)")
        return
    for run_key, run in runs.items():
        ends = {
            execution.token: execution.ended
            for execution in found.get(run_key, ())
            if execution.ended is not None
        }
        for token, (commit, state) in run.reported.items():
            verdict.checked["S11"] += 1
            end = ends.get(token)
            if end is None or end.at_ns > commit.begun_ns:
                verdict.violate(
                    "S11",
                    f"an attempt of run {run_key[1]} was completed under token {token}, and no "
                    f"task had ended under it",
                    [commit, end],
                )
            elif state in _BY_ITSELF and _BY_ITSELF[state] != end.facts["how"]:
                verdict.violate(
                    "S11",
                    f"run {run_key[1]} was completed under token {token} as "
                    f"{_BY_ITSELF[state]}, and its task says otherwise",
                    [commit, end],
                )
