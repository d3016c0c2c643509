"""What a lost worker costs, and what it must not cost: L4 and L5.

A killed worker's runs are given up within the reconnect grace and a second, those that wait for the
full session within it and a second; an outage of store and queues that leaves the session its time
costs no running job. Only what nothing else can explain is judged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_sim.check.describe import describe_note, instant
from sexton_sim.check.executions import Times
from sexton_sim.check.faults import Faults, Span
from sexton_sim.check.records import MeshCommit
from sexton_sim.check.settling import Attempt, Run, RunKey
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Note

_SECOND_NS: Final = 1_000_000_000
_TAKEOVER_NS: Final = 3_000_000_000
"""A lease, and a standby's next question."""
_WAITS_NS: Final = 7_000_000_000
"""What a lost hint would have said is read every five seconds."""
_KILLED: Final = frozenset({"crash", "kill"})
_HARMLESS: Final = frozenset({"inject", "backup", "start", "exit", "healed"})
_CALM_NS: Final = 12_000_000_000


class LossRules:
    """Follows attempts that were lost, and runs that wait. Between two times everything works."""

    def __init__(
        self,
        faults: Faults,
        verdict: Verdict,
        live: Mapping[RunKey, Run],
        times: Times,
        *,
        since_ns: int,
        until_ns: int,
        dismissed: Collection[str] = (),
    ) -> None:
        """`dismissed`: sessions whose workers somebody asked to end."""
        self._dismissed = dismissed
        self._faults = faults
        self._verdict = verdict
        self._live = live
        self._times = times
        self._since_ns = since_ns
        self._until_ns = until_ns
        self._kills: dict[str, list[Note]] = {}
        for note in faults.notes:
            if note.what in _KILLED:
                self._kills.setdefault(note.target, []).append(note)
        self._lost: dict[RunKey, Note] = {}
        self._again: list[float] = []
        self._bare = 0

    def finish(self) -> None:
        """Tells what was measured."""
        self._verdict.measure("a killed worker's run was with another", self._again)
        if self._kills and not self._verdict.checked["L4"]:
            self._verdict.unknown(
                "how soon a killed worker's runs are with another: no worker was killed that had "
                "any while all else worked (L4)"
            )

    # What becomes of runs

    def made(self, run: Run, commit: MeshCommit) -> None:
        """Has nothing to say about that."""

    def assigned(self, run: Run, attempt: Attempt) -> None:
        """A run that was lost is with another; and nobody is passed over."""
        note = self._lost.pop(run.key, None)
        begun_ns = attempt.assigned.begun_ns
        if note is not None:
            self._again.append((begun_ns - note.at_ns) / 1e9)
        if self._since_ns <= begun_ns < self._until_ns:
            self._check_passed_over(run, attempt)

    def given_up(self, run: Run, attempt: Attempt) -> None:
        """An attempt that is lost has a cause, and is given up in time."""
        lost = attempt.lost
        if lost is None or not (lost.begun_ns and attempt.assigned.begun_ns):
            return
        ends = run.record.HasField("cancel") or run.record.deadline_passed
        if ends and attempt.state == run_pb2.ATTEMPT_STATE_RETURNED:
            return  # its worker had kept it, and gives back what is to end before it has begun
        killed = next(
            (
                note
                for note in reversed(self._kills.get(attempt.worker, ()))
                if attempt.assigned.begun_ns < note.at_ns <= lost.begun_ns
            ),
            None,
        )
        if killed is not None:
            self._check_kill(run, attempt, killed)
        elif attempt.session not in self._dismissed:
            self._check_outage(run, attempt)

    def ended(self, run: Run) -> None:
        """Nobody waits for it any more."""
        self._lost.pop(run.key, None)

    # Rules

    def _check_kill(self, run: Run, attempt: Attempt, killed: Note) -> None:
        assert attempt.lost is not None
        end_ns = attempt.lost.begun_ns
        since_ns = killed.at_ns - _CALM_NS
        others = [
            note
            for note in self._faults.notes
            if since_ns <= note.at_ns <= end_ns
            and note is not killed
            and note.what not in _HARMLESS
        ]
        spans = [
            span
            for span in self._faults.around(since_ns, end_ns)
            if span.target != attempt.worker and span.note is not killed
        ]
        if others or spans:
            return
        record = run.record
        template = record.template
        ends = record.HasField("cancel") or record.deadline_passed
        waits = template.exclusive or template.at_most_once or ends
        bound_ns = (self._times.session_ns if waits else self._times.grace_ns) + _SECOND_NS
        self._verdict.checked["L4"] += 1
        self._lost[run.key] = killed
        took_ns = end_ns - killed.at_ns
        if took_ns > bound_ns + self._times.slack_ns:
            self._verdict.violate(
                "L4",
                f"attempt {attempt.number} of run {run.name} was given up {took_ns / 1e9:.3f} s "
                f"after its worker was killed, not within {bound_ns / 1e9:.0f} s",
                [attempt.assigned, describe_note(killed), attempt.lost],
            )

    def _check_outage(self, run: Run, attempt: Attempt) -> None:
        """An attempt is lost for a reason: not because store or queues were away for a while."""
        assert attempt.lost is not None
        end_ns = attempt.lost.begun_ns
        since_ns = max(attempt.assigned.begun_ns, end_ns - 3 * self._times.session_ns)
        if not self._faults.told or self._concerned(attempt.worker, since_ns - _CALM_NS, end_ns):
            return
        spans = list(self._faults.around(since_ns, end_ns))
        away_ns = _union(spans, since_ns, end_ns)
        bound_ns = round(0.8 * self._times.session_ns) - _SECOND_NS - _TAKEOVER_NS
        if bound_ns <= 0:
            return
        self._verdict.checked["L4"] += 1
        if away_ns < bound_ns:
            self._verdict.violate(
                "L4",
                f"attempt {attempt.number} of run {run.name} was lost, although its worker was "
                f"there, and store and queues were away for {away_ns / 1e9:.3f} s only",
                [
                    attempt.assigned,
                    *(describe_note(span.note) for span in spans[:3]),
                    attempt.lost,
                ],
            )

    def _concerned(self, worker: str, since_ns: int, until_ns: int) -> bool:
        """Tells whether anything was done to the worker, to connections or to clocks."""
        for note in self._faults.notes:
            if since_ns <= note.at_ns <= until_ns and note.what not in _HARMLESS:
                role = note.target.partition("-")[0]
                if note.kind == "clock" or note.what not in {"crash", "stop"}:
                    return True
                if note.target == worker or role not in {"store", "queue", "coordinator"}:
                    return True
        return any(
            span.kind != "down" or span.hits(worker)
            for span in self._faults.around(since_ns, until_ns)
        )

    def _check_passed_over(self, run: Run, attempt: Attempt) -> None:
        """No run waits while later ones of its queue, for the same workers, are handed out."""
        record = run.record
        mesh_ns = attempt.assigned.mesh_ns
        self._verdict.checked["L5"] += 1
        for other in self._live.values():
            waits = other.record
            if other is run or waits.session or waits.HasField("cancel"):
                continue
            since_ns = max(waits.not_before_ns, other.made.mesh_ns)
            if other.attempts and (lost := other.attempts[-1].lost or other.attempts[-1].reported):
                since_ns = max(since_ns, lost.mesh_ns)
            if mesh_ns - since_ns <= _WAITS_NS or other.handle >= run.handle:
                continue
            same_queue = waits.template.queue == record.template.queue
            if same_queue and _kind(waits) == _kind(record) and other.made.begun_ns:
                self._verdict.violate(
                    "L5",
                    f"run {other.name} has waited since {instant(since_ns)}, and run {run.name}, "
                    f"behind it in the line of queue {record.template.queue}, was assigned",
                    [other.made, run.made, attempt.assigned],
                )


def _kind(record: pb.RunRecord) -> tuple[str, str]:
    task = record.template.task
    kind = task.WhichOneof("kind") or ""
    name = task.python.task if kind == "python" else ""
    return kind, name


def _union(spans: list[Span], since_ns: int, until_ns: int) -> int:
    """Tells for how long of a time any of them lasted."""
    total, end_ns = 0, since_ns
    for span in sorted(spans, key=lambda it: it.begin_ns):
        begin_ns = max(span.begin_ns, end_ns)
        last_ns = min(span.end_ns, until_ns)
        if last_ns > begin_ns:
            total += last_ns - begin_ns
            end_ns = last_ns
    return total
