"""What became of runs, from their creation to their end: S9, S11, S13, and S14 to S17.

Every write to a run's handle is one step of its state machine, and the table of the core says which
there are. What the step says about attempts, tokens and times is held against the step before.
Whoever wants to know more of runs is told of their steps (`RunListener`); those that have ended are
forgotten here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_core.runs import ENDED, HAND_AHEAD_NS, STATES, TRANSITIONS, WITH_WORKER, backoff
from sexton_core.words import RunState
from sexton_records import keys
from sexton_records.runs import MAX_ATTEMPTS_SHOWN, STATE_OF
from sexton_records.spec import template_policy
from sexton_sim.check.describe import instant, moment, run_name
from sexton_sim.check.records import Changed, MeshCommit
from sexton_sim.check.verdict import Verdict

RunKey = tuple[str, str]
"""Uid and run id."""

_WAYS = frozenset(
    (before, after) for (before, _), afters in TRANSITIONS.items() for after in afters
)
_KEPT = (
    "template",
    "run_id",
    "origin",
    "nominal_ns",
    "due_ns",
    "reason",
    "create_time_ns",
    "handle_not_before_ns",
)
"""What a run's record says from its creation to its end."""
_UNDER_WAY_NS = 1_000_000_000
"""What was on its way when a queue was paused has come by then."""
_UNCOUNTED = frozenset({run_pb2.ATTEMPT_STATE_LOST, run_pb2.ATTEMPT_STATE_RETURNED})
"""How an attempt ended that says nothing about its job: the next one may begin at once."""


class Moment(NamedTuple):
    """When a commit was made: all that is kept of it."""

    revision: int
    mesh_ns: int
    begun_ns: int
    what: str

    def __str__(self) -> str:
        return f"revision {self.revision} at {moment(self.mesh_ns)}: {self.what}"


@dataclass(slots=True)
class Attempt:
    """One delivery, as far as the log has come."""

    token: int
    number: int
    worker: str
    session: str
    assigned: Moment
    reported: Moment | None = None
    """Where its end was recorded, if its worker had reported it ..."""
    state: run_pb2.AttemptState.ValueType = run_pb2.ATTEMPT_STATE_UNSPECIFIED
    """... and as what."""
    lost: Moment | None = None
    """Where it was given up without a report."""


@dataclass(slots=True)
class Run:
    """A run, as far as the log has come."""

    handle: bytes
    made: Moment
    record: pb.RunRecord
    attempts: list[Attempt] = field(default_factory=list)
    ended: Moment | None = None
    adopted: bool = False
    """Whether it was there before the log began."""

    @property
    def key(self) -> RunKey:
        """Gives uid and run id."""
        return self.record.template.job_uid, self.record.run_id

    @property
    def name(self) -> str:
        """Gives namespace, job and run id."""
        return run_name(self.record)

    @property
    def state(self) -> RunState:
        """Tells where it stands."""
        return STATE_OF[self.record.state]


class RunListener(Protocol):
    """Whoever wants to know what becomes of runs."""

    def made(self, run: Run, commit: MeshCommit) -> None:
        """A run was made."""
        ...

    def assigned(self, run: Run, attempt: Attempt) -> None:
        """It was assigned."""
        ...

    def given_up(self, run: Run, attempt: Attempt) -> None:
        """The attempt is over, by its worker's report or without one."""
        ...

    def ended(self, run: Run) -> None:
        """The run has ended."""
        ...


class SettlingRules:
    """Follows every run through the log. `limits`: bounds on assigned runs by queue."""

    def __init__(
        self,
        verdict: Verdict,
        *,
        limits: Mapping[str, int],
        late: bool = False,
    ) -> None:
        """`late`: what was there before the log began is not known."""
        self.live: dict[RunKey, Run] = {}
        self.listeners: Sequence[RunListener] = ()
        self._verdict = verdict
        self._limits = limits
        self._late = late
        self._over: set[int] = set()
        """Hashes of the keys of runs that have ended, so that none is made again."""
        self._jobs: set[str] = set()
        self._sessions: set[str] = set()
        self._gone: set[str] = set()
        """Jobs and sessions of a late log that are known to be gone."""
        self._running: dict[bytes, str] = {}
        self._paused: dict[str, Moment] = {}
        self._lost_sessions: dict[str, Moment] = {}

    def take(self, commit: MeshCommit) -> None:
        """Looks at a commit."""
        for changed in commit.of(keys.SESSIONS):
            self._flag(self._sessions, changed.key.decode().split("/")[2], changed)
        for changed in commit.of(keys.QUEUES):
            queue = changed.key.decode().split("/")[2]
            self._paused.pop(queue, None)
            if changed.after is not None:
                self._paused[queue] = _moment(commit, f"queue {queue} paused")
        moved = self._note_running(commit)
        self._take_runs(commit)
        for changed in commit.of(keys.STATE):
            self._flag(self._jobs, changed.uid, changed)
        if moved:
            self._check_limits(commit)

    def _note_running(self, commit: MeshCommit) -> bool:
        """Follows which runs are assigned; tells whether that has changed."""
        before = len(self._running)
        touched = False
        for changed in commit.of(keys.ACTIVE):
            after = changed.after
            if after is None or STATE_OF[after.state] not in WITH_WORKER:
                touched |= self._running.pop(changed.key, None) is not None
            elif changed.key not in self._running:
                self._running[changed.key] = keys.parse_handle_key(changed.key).queue
        return touched or len(self._running) != before

    def speak(self, verdict: Verdict) -> None:
        """Says from now on what it finds."""
        self._verdict = verdict

    def has_ended(self, run: RunKey) -> bool:
        """Tells whether the log has a run's end."""
        return hash(run) in self._over

    def finish(self) -> None:
        """Looks at what is left: whatever was accepted must have ended (L3)."""
        for run in self.live.values():
            self._verdict.checked["L3"] += 1
            self._verdict.violate(
                "L3",
                f"run {run.name} of {instant(run.record.nominal_ns)} has not ended: it is "
                f"{run.state}",
                [run.made, *(attempt.assigned for attempt in run.attempts[-3:])],
            )
        self._verdict.checked["L3"] += len(self._over)

    def _flag(self, there: set[str], name: str, changed: Changed) -> None:
        if changed.after is None:
            there.discard(name)
            self._gone.add(name)
        else:
            there.add(name)

    def _is_there(self, there: set[str], name: str) -> bool:
        return name in there or (self._late and name not in self._gone)

    def _take_runs(self, commit: MeshCommit) -> None:
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
                continue
            run = self.live.get(run_key) or self._adopt(run_key, changed)
            if changed.after is None:
                self._take_end(run, changed, finals.pop(run_key, None), commit)
            else:
                self._take_move(run, changed, commit)
        for changed in finals.values():
            name = run_name(changed.after)
            self._violate("S11", name, "was written as ended, and did not end there", commit)
        for changed in commit.of(keys.RUNS):
            if changed.before is not None and changed.after is not None:
                name = run_name(changed.before)
                self._violate("S11", name, "has ended, and its end was written over", commit)

    def _adopt(self, run_key: RunKey, changed: Changed) -> Run:
        """Takes on a run that was there before the log began."""
        record: pb.RunRecord = changed.before
        made = Moment(0, record.create_time_ns, 0, f"run {run_name(record)} made")
        run = self.live[run_key] = Run(changed.key, made, record, adopted=True)
        if STATE_OF[record.state] in WITH_WORKER:
            last = record.attempts[-1]
            assigned = Moment(0, last.assign_time_ns, 0, f"run {run.name} assigned")
            token = _live_token(changed)
            run.attempts.append(Attempt(token, last.number, last.worker, last.session, assigned))
        return run

    def _take_new(self, run_key: RunKey, changed: Changed, commit: MeshCommit) -> None:
        self._verdict.checked["S11"] += 1
        made = _moment(commit, f"run {run_name(changed.after)} made")
        if run_key in self.live or hash(run_key) in self._over:
            self._violate("S11", run_name(changed.after), "was made before", commit)
        run = self.live[run_key] = Run(changed.key, made, changed.after)
        for listener in self.listeners:
            listener.made(run, commit)

    def _take_end(
        self, run: Run, changed: Changed, final: Changed | None, commit: MeshCommit
    ) -> None:
        self._verdict.checked["S11"] += 1
        self._over.add(hash(run.key))
        del self.live[run.key]
        if final is None:
            run.ended = _moment(commit, f"run {run.name} gone")
            self._violate("S11", run.name, "went without an end", commit)
            return
        before, after = changed.before, final.after
        run.record = after
        became = run.state
        run.ended = _moment(commit, f"run {run.name} ended as {became}")
        if became not in ENDED:
            self._violate("S11", run.name, f"ended as {became}", commit)
        self._check_way(run, before, after, commit)
        token = _live_token(changed)
        self._give_up(run, before, after, token, commit)
        if became is RunState.SUCCEEDED and not after.completed:
            self._violate("S11", run.name, "succeeded, and nobody has completed it", commit)
        if after.completed and after.token != token:
            said = f"was completed under token {after.token}, and {token} was live"
            self._violate("S11", run.name, said, *_assignments(run), commit)
        self._check_counts(run, after, commit)
        self._verdict.checked["S16"] += 1
        dead = [one for one in commit.of(keys.DEAD) if one.key.endswith(after.run_id.encode())]
        if len(dead) != STATES[became].dead_letter:
            said = f"ended as {became}, and is {len(dead)} times among the dead letters"
            self._violate("S16", run.name, said, commit)
        for listener in self.listeners:
            listener.ended(run)

    def _take_move(self, run: Run, changed: Changed, commit: MeshCommit) -> None:
        before, after = changed.before, changed.after
        was, became = STATE_OF[before.state], STATE_OF[after.state]
        run.record = after
        if was in WITH_WORKER and became not in WITH_WORKER:
            self._give_up(run, before, after, _live_token(changed), commit)
        self._check_way(run, before, after, commit)
        self._check_mover(run, changed, commit)
        if became in WITH_WORKER and was in WITH_WORKER:
            self._verdict.checked["S11"] += 1
            if after.token != _live_token(changed):
                said = f"lost its token {_live_token(changed)}: it says {after.token}"
                self._violate("S11", run.name, said, *_assignments(run), commit)
        elif became is RunState.RUNNING:
            self._take_assignment(run, before, commit)
        elif became is RunState.RETRYING:
            self._check_backoff(run, before, after, commit)

    def _check_way(
        self, run: Run, before: pb.RunRecord, after: pb.RunRecord, commit: MeshCommit
    ) -> None:
        was, became = STATE_OF[before.state], STATE_OF[after.state]
        self._verdict.checked["S15"] += 1
        if after.attempts and _lost_with_its_session(after.attempts[-1]):
            last = after.attempts[-1]
            what = f"run {run.name} lost with session {last.session} of {last.worker}"
            self._lost_sessions.setdefault(last.session, _moment(commit, what))
        if (was, became) not in _WAYS:
            self._violate("S15", run.name, f"went from {was} to {became}", commit)
        self._check_kept(run, before, after, commit)

    def _check_kept(
        self, run: Run, before: pb.RunRecord, after: pb.RunRecord, commit: MeshCommit
    ) -> None:
        """What a run is for stays; its attempts are numbered, and what one came to stays."""
        for name in _KEPT:
            if getattr(before, name) != getattr(after, name):
                self._violate("S11", run.name, f"was changed: its {name}", commit)
        numbers = [attempt.number for attempt in after.attempts]
        first = after.deliveries - len(numbers) + 1
        if len(numbers) == MAX_ATTEMPTS_SHOWN:  # of many, the first and the newest
            wanted = [1, *range(first + 1, after.deliveries + 1)]
        else:
            wanted = [*range(1, after.deliveries + 1)]
        if numbers != wanted:
            said = f"was delivered {after.deliveries} times, and has the attempts {numbers}"
            self._violate("S9", run.name, said, commit)
        ends = {attempt.number: _end(attempt) for attempt in after.attempts}
        for attempt in before.attempts:
            if attempt.end_time_ns and ends.get(attempt.number, "") not in {"", _end(attempt)}:
                said = f"had an attempt {attempt.number} that is now told otherwise"
                self._violate("S11", run.name, said, commit)

    def _check_mover(self, run: Run, changed: Changed, commit: MeshCommit) -> None:
        """In line or with a session, never neither and never both."""
        after = changed.after
        held = STATE_OF[after.state] in WITH_WORKER
        if held != bool(after.session):
            said = f"is {STATE_OF[after.state]}, with the session {after.session!r}"
            self._violate("S15", run.name, said, commit)
        if held and not self._is_there(self._sessions, after.session):
            said = f"is with session {after.session}, which is not there"
            self._violate("S15", run.name, said, commit)

    def _take_assignment(self, run: Run, before: pb.RunRecord, commit: MeshCommit) -> None:
        verdict, after = self._verdict, run.record
        verdict.checked["S9"] += 1
        verdict.checked["S13"] += 1
        verdict.checked["S17"] += 1
        last = after.attempts[-1]
        if after.deliveries != before.deliveries + 1 or last.number != after.deliveries:
            said = f"has attempt {last.number} as number {after.deliveries}, after number "
            self._violate("S9", run.name, f"{said}{before.deliveries}", commit)
        if after.session in self._lost_sessions:
            self._violate(
                "S9",
                run.name,
                f"was assigned to session {after.session}, with which another attempt was lost: "
                f"that one may still run",
                self._lost_sessions[after.session],
                commit,
            )
        if before.template.at_most_once and before.started:
            said = "may have started, is to be delivered at most once, and was assigned again"
            self._violate("S10", run.name, said, *_assignments(run), commit)
        if not self._is_there(self._jobs, run.key[0]):
            self._violate("S13", run.name, "was assigned after its job was deleted", commit)
        if before.HasField("cancel"):
            asked = f"was assigned after its end was asked for ({before.cancel.reason})"
            self._violate("S13", run.name, asked, commit)
        if commit.mesh_ns < _assignable_at(before):
            said = f"was assigned before its not-before time {instant(not_before_of(before))}"
            self._violate("S17", run.name, said, commit)
        paused = self._paused.get(before.template.queue)
        if paused is not None and commit.mesh_ns > paused.mesh_ns + _UNDER_WAY_NS:
            said = f"was assigned although its queue {before.template.queue} is paused"
            self._violate("S14", run.name, said, paused, commit)
        worker = last.worker or "a worker"
        assigned = _moment(commit, f"attempt {last.number} of {run.name} assigned to {worker}")
        attempt = Attempt(commit.revision, last.number, last.worker, last.session, assigned)
        run.attempts.append(attempt)
        self._check_counts(run, after, commit)
        for listener in self.listeners:
            listener.assigned(run, attempt)

    def _give_up(
        self,
        run: Run,
        before: pb.RunRecord,
        after: pb.RunRecord,
        token: int,
        commit: MeshCommit,
    ) -> None:
        """Takes note of how an attempt ended."""
        if STATE_OF[before.state] not in WITH_WORKER or not after.attempts:
            return
        last = after.attempts[-1]
        attempt = next((it for it in reversed(run.attempts) if it.token == token), None)
        if attempt is None:
            return
        name = run_pb2.AttemptState.Name(last.state).removeprefix("ATTEMPT_STATE_").lower()
        over = _moment(commit, f"attempt {last.number} of {run.name} recorded as {name}")
        attempt.state = last.state
        if last.state in _UNCOUNTED:
            attempt.lost = over
        else:
            attempt.reported = over
        for listener in self.listeners:
            listener.given_up(run, attempt)

    def _check_backoff(
        self, run: Run, before: pb.RunRecord, after: pb.RunRecord, commit: MeshCommit
    ) -> None:
        last = after.attempts[-1]
        if last.state in _UNCOUNTED or after.failures == before.failures:
            return
        self._verdict.checked["S17"] += 1
        wait_ns = backoff(template_policy(after.template).retries, after.run_id, after.failures)
        if after.not_before_ns < last.end_time_ns + wait_ns:
            said = (
                f"failed at {instant(last.end_time_ns)}, and may go on from "
                f"{instant(after.not_before_ns)} on: its backoff is {wait_ns / 1e9:.3f} s"
            )
            self._violate("S17", run.name, said, commit)

    def _check_counts(self, run: Run, record: pb.RunRecord, commit: MeshCommit) -> None:
        template = record.template
        self._verdict.checked["S16"] += 1
        if record.failures > template.max_attempts or record.deliveries > template.max_deliveries:
            said = (
                f"has failed {record.failures} times (of {template.max_attempts}) and was "
                f"delivered {record.deliveries} times (of {template.max_deliveries})"
            )
            self._violate("S16", run.name, said, *_assignments(run), commit)

    def _check_limits(self, commit: MeshCommit) -> None:
        counts = Counter(self._running.values())
        for queue, limit in self._limits.items():
            self._verdict.checked["S14"] += 1
            if counts[queue] > limit:
                self._verdict.violate(
                    "S14",
                    f"{counts[queue]} runs of queue {queue} are assigned, {limit} are allowed",
                    [commit],
                )

    def _violate(self, rule: str, name: str, what: str, *events: object) -> None:
        self._verdict.violate(rule, f"run {name} {what}", events)


def _moment(commit: MeshCommit, what: str) -> Moment:
    return Moment(commit.revision, commit.mesh_ns, commit.begun_ns, what)


def _assignable_at(record: pb.RunRecord) -> int:
    """Gives from when on a run may be handed out: a moment before it may begin, the first time."""
    template = record.template
    once = template.at_most_once or template.max_deliveries == 1
    if record.deliveries or template.exclusive or once:
        return not_before_of(record)
    return not_before_of(record) - HAND_AHEAD_NS


def not_before_of(record: pb.RunRecord) -> int:
    """Gives when a run may begin: never before the time for which it was made."""
    return max(record.not_before_ns, record.handle_not_before_ns)


def _assignments(run: Run) -> list[Moment]:
    return [attempt.assigned for attempt in run.attempts[-4:]]


def _end(attempt: pb.AttemptRecord) -> str:
    state = run_pb2.AttemptState.Name(attempt.state)
    return f"{attempt.token} {attempt.session} {state} {attempt.assign_time_ns}"


def _live_token(changed: Changed) -> int:
    return int(changed.before.token) or changed.revision_before


def _lost_with_its_session(attempt: pb.AttemptRecord) -> bool:
    """Tells whether a session ended with an attempt.

    After the grace a session goes on where one of its runs waits the full time; the others have
    been taken from it, and it may be given them again when its worker is back and has said what
    it holds.
    """
    lost = attempt.state == run_pb2.ATTEMPT_STATE_LOST
    return lost and not attempt.error.message.endswith("did not come back in time")
