"""What a missing end says: of a simulated task that it went on, of a real one that it is dead."""

from __future__ import annotations

from typing import Any

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_sim.check.executions import ExecutionRules, Times
from sexton_sim.check.faults import Faults
from sexton_sim.check.settling import Attempt, Moment, Run
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import History, Note

SECOND = 1_000_000_000


def moment(second: int) -> Moment:
    return Moment(revision=second, mesh_ns=0, begun_ns=second * SECOND, what="it is so")


def noted(what: str, second: int, token: int, worker: str) -> Note:
    facts: dict[str, Any] = {"namespace": "default", "job": "backup", "token": token}
    if what == "ended":
        facts["how"] = "succeeded"
    return Note("exec", second * SECOND, what, worker, facts)


def judged(*, kills_noted: bool, terminated: bool) -> Verdict:
    """Judges a run whose first attempt noted no end: its worker was killed, or it was."""
    state = run_pb2.ATTEMPT_STATE_TERMINATED if terminated else run_pb2.ATTEMPT_STATE_LOST
    first = Attempt(5, 1, "worker-1", "s", moment(1), moment(4) if terminated else None, state)
    second = Attempt(9, 2, "worker-2", "t", moment(5), moment(8), run_pb2.ATTEMPT_STATE_SUCCEEDED)
    template = pb.RunTemplate(namespace="default", job="backup", job_uid="u")
    run = Run(b"", moment(0), pb.RunRecord(run_id="r", template=template), [first, second])
    notes = [
        noted("started", 2, 5, "worker-1"),
        Note("fault", 3 * SECOND, "crash", "worker-1", {}),
        noted("started", 6, 9, "worker-2"),
        noted("ended", 7, 9, "worker-2"),
    ]
    history, verdict = History(notes=notes), Verdict()
    rules = ExecutionRules(history, Faults(history), verdict, Times(kills_noted=kills_noted))
    for attempt in run.attempts:
        rules.assigned(run, attempt)
        rules.given_up(run, attempt)
    rules.ended(run)
    rules.finish([])
    return verdict


def test_a_real_task_that_was_killed_is_not_held_to_note_its_end() -> None:
    lost = judged(kills_noted=False, terminated=False)
    assert (lost.violations, len(lost.inconclusive)) == ([], 1)
    terminated = judged(kills_noted=False, terminated=True)
    assert (terminated.violations, len(terminated.inconclusive)) == ([], 2)


def test_a_simulated_task_that_noted_no_end_went_on() -> None:
    assert judged(kills_noted=True, terminated=False).rules() == ["S10"]
    assert judged(kills_noted=True, terminated=True).rules() == ["S10", "S11"]
