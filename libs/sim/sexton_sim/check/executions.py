"""What tasks really did, by their own notes: S9, S10 and S11.

A task notes its start and its end with its token. Executions of one run must not overlap, unless
something was done to the mesh that makes it possible and is documented: the machine of the earlier
one's worker stood still, or its clock ran slow, for longer than the margin between 0.8 of the
session, when a worker ends what it runs, and its whole; or, not for `exclusive` jobs, the worker's
connection was broken for longer than the grace. Overlaps are counted in any case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from sexton_records import keys
from sexton_sim.check.describe import ATTEMPT_ENDS, describe_note, instant
from sexton_sim.check.faults import Faults, Span
from sexton_sim.check.records import MeshCommit
from sexton_sim.check.settling import Attempt, Run, not_before_of
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import History, Note

SESSION_NS = 30_000_000_000
GRACE_NS = 2_000_000_000
_MARGIN = 0.2
"""Of the session: between a worker's own end of its tasks and the session's."""
_LATENCY_NS = 1_000_000_000
"""Within so long after waking up, or after its time, a shim has killed what it watches."""
_KEPT = 0.2
"""Of the time for which a worker keeps a run: clocks may run at half or twice their speed."""
_SLOWEST = 0.8
"""A worker's clock against its owner's, below which its margin is used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How a mesh is set up."""

    session_ns: int = SESSION_NS
    grace_ns: int = GRACE_NS
    slack_ns: int = 250_000_000
    """What a busy machine may add to each bound."""
    kills_noted: bool = True
    """Whether the end of what is killed is noted too. Simulated tasks do that; real ones can't, so
    that a missing end says only that there was one, at a time that nobody knows."""


@dataclass(slots=True)
class _Execution:
    begun: Note
    ended: Note | None = None

    @property
    def token(self) -> int:
        return int(self.begun.facts["token"])

    def overlaps(self, later: _Execution, *, kills_noted: bool) -> bool:
        """Tells whether it certainly went on when the later one had begun."""
        if self.ended is None:
            return kills_noted
        return self.ended.at_ns > _latest_ns(later.begun)


class ExecutionRules:
    """Holds every execution against the log, and against each other."""

    def __init__(
        self, history: History, faults: Faults, verdict: Verdict, times: Times | None = None
    ) -> None:
        self.first, self.last = 0, 0
        """The revisions that the log spans."""
        self.whole = True
        """Whether nothing can lie beyond them."""
        self._verdict = verdict
        self._faults = faults
        self._times = times or Times()
        self._executions: dict[int, list[_Execution]] = {}
        self._since: dict[object, int] = {}
        """From which token on each job's tasks note what they do; by uid, or namespace and job."""
        self._assigned: set[int] = set()
        self._silent = 0
        self._killed = 0
        self._endless = 0
        self._read(history)

    def _read(self, history: History) -> None:
        accepted: dict[object, int] = {}
        for note in history.of("exec"):
            if "token" not in note.facts or note.what not in {"started", "ended", "effect"}:
                continue
            token = int(note.facts["token"])
            executions = self._executions.setdefault(token, [])
            if note.what == "started":
                executions.append(_Execution(note))
                job = _job_of(note)
                self._since[job] = min(token, self._since.get(job, token))
            elif note.what == "ended":
                for execution in executions:
                    if execution.begun.target == note.target and execution.ended is None:
                        execution.ended = note
            elif note.facts["accepted"]:
                run = note.facts.get("handle") or (_job_of(note), note.facts.get("run"))
                self._verdict.checked["S10"] += 1
                if token < accepted.get(run, 0):
                    self._verdict.violate(
                        "S10", "an older attempt of a run had an effect", [describe_note(note)]
                    )
                accepted[run] = token

    # What the log says

    def made(self, run: Run, commit: MeshCommit) -> None:
        """Has nothing to say about that."""

    def assigned(self, run: Run, attempt: Attempt) -> None:
        """An attempt is begun after its assignment, and once."""
        self._assigned.add(attempt.token)
        executions = self._executions.get(attempt.token, ())
        for execution in executions:
            self._verdict.checked["S9"] += 1
            begun_ns = attempt.assigned.begun_ns
            if begun_ns and _latest_ns(execution.begun) < begun_ns:
                self._verdict.violate(
                    "S9",
                    f"run {run.name} was executed under token {attempt.token} before that was "
                    f"assigned",
                    [describe_note(execution.begun), attempt.assigned],
                )
            kept_ns = not_before_of(run.record) - attempt.assigned.mesh_ns
            if begun_ns and kept_ns > 0:
                self._check_kept(run, attempt, execution.begun, round(_KEPT * kept_ns))
        again = [
            later
            for earlier, later in pairwise(sorted(executions, key=lambda it: it.begun.at_ns))
            if not self._faults.brought_back(attempt.token, earlier.begun.at_ns, later.begun.at_ns)
        ]
        if again:
            self._verdict.violate(
                "S10",
                f"attempt {attempt.number} of run {run.name} was begun {len(executions)} times",
                [attempt.assigned, *(describe_note(it.begun) for it in executions[:4])],
            )

    def _check_kept(self, run: Run, attempt: Attempt, begun: Note, least_ns: int) -> None:
        """What is handed out before its time is kept by its worker until then."""
        self._verdict.checked["S17"] += 1
        if _latest_ns(begun) - attempt.assigned.begun_ns < least_ns:
            self._verdict.violate(
                "S17",
                f"run {run.name} was begun before its not-before time "
                f"{instant(not_before_of(run.record))}",
                [attempt.assigned, describe_note(begun)],
            )

    def given_up(self, run: Run, attempt: Attempt) -> None:
        """What counts as an attempt's end is what its own task came to, under its own token."""
        if attempt.reported is None or not self._is_noted(run, attempt.token):
            self._silent += attempt.reported is not None
            return
        self._verdict.checked["S11"] += 1
        ends = [it.ended for it in self._executions.get(attempt.token, ()) if it.ended is not None]
        begun_ns = attempt.reported.begun_ns
        # The last of them: a restore may have let it be begun again.
        in_time = [it for it in ends if not begun_ns or it.at_ns <= begun_ns]
        end = in_time[-1] if in_time else None
        if end is None and not ends and self._may_be_killed(attempt):
            self._killed += 1
        elif end is None:
            self._verdict.violate(
                "S11",
                f"attempt {attempt.number} of run {run.name} was completed under token "
                f"{attempt.token}, and no task had ended under it",
                [attempt.assigned, attempt.reported, *map(describe_note, ends[:1])],
            )
        elif attempt.state in ATTEMPT_ENDS and ATTEMPT_ENDS[attempt.state] != end.facts["how"]:
            self._verdict.violate(
                "S11",
                f"attempt {attempt.number} of run {run.name} was completed as "
                f"{ATTEMPT_ENDS[attempt.state]}, and its task says otherwise",
                [attempt.assigned, describe_note(end), attempt.reported],
            )

    def ended(self, run: Run) -> None:
        """Looks at all executions of a run together."""
        found = [
            (attempt, execution)
            for attempt in run.attempts
            for execution in self._executions.get(attempt.token, ())
        ]
        if not found:
            return
        template = run.record.template
        started = {attempt.token for attempt, _ in found}
        if template.at_most_once and len(started) > 1:
            self._verdict.violate(
                "S10",
                f"run {run.name}, which is delivered at most once, was started {len(started)} "
                f"times",
                [describe_note(execution.begun) for _, execution in found[:4]],
            )
        self._verdict.checked["S10"] += 1
        found.sort(key=lambda it: it[1].begun.at_ns)
        for (before, earlier), (after, later) in pairwise(found):
            if before is after:
                continue
            self._endless += earlier.ended is None and not self._times.kills_noted
            if earlier.overlaps(later, kills_noted=self._times.kills_noted):
                self._check_overlap(run, (before, earlier), (after, later))

    def finish(self, live: Iterable[Run]) -> None:
        """Looks at what has not ended, and at what nobody assigned."""
        for run in live:
            self.ended(run)
        if not self._executions:
            self._verdict.unknown(
                "whether executions overlapped, and what was completed was executed: tasks noted "
                "nothing (S10, S11)"
            )
            return
        if self._silent:
            self._verdict.unknown(
                f"{self._silent} attempts are of jobs whose tasks note nothing (S10, S11)"
            )
        if self._killed:
            self._verdict.unknown(
                f"{self._killed} attempts were ended from outside, and their tasks could not note "
                f"when (S11)"
            )
        if self._endless:
            self._verdict.unknown(
                f"{self._endless} executions were cut short before the next attempt, and nothing "
                f"notes when (S10)"
            )
        unknown = self._executions.keys() - self._assigned
        outside = {
            token for token in unknown if not (self.whole or self.first <= token <= self.last)
        }
        if outside:
            self._verdict.unknown(
                f"{len(outside)} attempts were executed that the log does not reach (S9, S10, S11)"
            )
        for token in sorted(unknown - outside):
            execution = next(iter(self._executions[token]), None)
            if execution is not None:
                self._verdict.violate(
                    "S9",
                    f"something was executed under token {token}, under which nothing was assigned",
                    [describe_note(execution.begun)],
                )

    def _may_be_killed(self, attempt: Attempt) -> bool:
        return not self._times.kills_noted and attempt.state not in ATTEMPT_ENDS

    def _is_noted(self, run: Run, token: int) -> bool:
        template = run.record.template
        by_name = self._since.get((template.namespace, template.job))
        since = by_name if by_name is not None else self._since.get(template.job_uid)
        return since is not None and token >= since

    def _check_overlap(
        self,
        run: Run,
        earlier: tuple[Attempt, _Execution],
        later: tuple[Attempt, _Execution],
    ) -> None:
        (first, before), (second, after) = earlier, later
        self._verdict.checked["S10 overlaps"] += 1
        exclusive = run.record.template.exclusive
        if self._excuse(first.worker or before.begun.target, before, after, exclusive=exclusive):
            return
        said = (
            f"attempts {first.number} and {second.number} of run {run.name} were executed at the "
            f"same time"
        )
        if not self._faults.told and not exclusive:
            self._verdict.unknown(f"{said}: no line tells what was done to the mesh (S10)")
            return
        end = before.ended
        self._verdict.violate(
            "S10",
            f"{said}, and nothing was done to {first.worker or 'the first worker'} that allows it",
            [
                first.assigned,
                describe_note(before.begun),
                first.lost,
                second.assigned,
                describe_note(after.begun),
                describe_note(end) if end is not None else "the first one's end was never noted",
            ],
        )

    def _excuse(
        self, worker: str, before: _Execution, after: _Execution, *, exclusive: bool
    ) -> Span | bool:
        """Finds what makes the overlap possible; it must have lasted long enough, by then."""
        times, faults = self._times, self._faults
        since_ns, until_ns = before.begun.at_ns, after.begun.at_ns
        margin_ns = round(times.session_ns * _MARGIN) - _LATENCY_NS
        for span in faults.around(since_ns, until_ns):
            lasted_ns = span.within(since_ns, until_ns)
            mine = span.hits(worker)
            if span.kind == "still" and mine and lasted_ns >= margin_ns:
                return span
            breaks = span.kind in {"broken", "silent", "still", "rough"} and not exclusive
            concerned = mine or _is_queue(span.target) or _is_queue(span.source)
            long = span.kind == "rough" or lasted_ns >= times.grace_ns - _LATENCY_NS
            if breaks and concerned and long:
                return span
        return self._is_slow(worker, since_ns, until_ns)

    def _is_slow(self, worker: str, since_ns: int, until_ns: int) -> bool:
        """Tells whether the worker's clock was too slow against the clocks of the owners."""
        slowest = min(self._faults.rates(worker, since_ns, until_ns))
        queues = {note.target for note in self._faults.notes if _is_queue(note.target)}
        rates = [rate for it in queues for rate in self._faults.rates(it, since_ns, until_ns)]
        return slowest / max([1.0, *rates]) < _SLOWEST


def _job_of(note: Note) -> object:
    """Identifies a job as its notes do: by uid, or by namespace and name."""
    facts = note.facts
    if "handle" in facts:
        return keys.parse_handle_key(str(facts["handle"]).encode("latin-1")).uid
    return (facts.get("namespace", "default"), facts.get("job", ""))


def _latest_ns(note: Note) -> int:
    """Gives the latest time that a note can mean: some clocks are coarse."""
    return note.at_ns + int(note.facts.get("within_ns", 0))


def _is_queue(name: str) -> bool:
    return name.partition("-")[0] == "queue"
