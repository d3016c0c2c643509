"""What became of runs, from their creation to their end: S9, S11, S13, and S14 to S17.

Every write to a run's handle is one step of its state machine, and the table of the core says which
there are. What the step says about attempts, tokens and times is held against the step before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_core.runs import ENDED, STATES, TRANSITIONS, WITH_WORKER, backoff
from sexton_core.words import RunState
from sexton_records import keys
from sexton_records.runs import STATE_OF
from sexton_records.spec import template_policy
from sexton_sim.check.records import Changed, MeshCommit
from sexton_sim.check.verdict import Verdict

RunKey = tuple[str, str]
"""Uid and run id."""

_WAYS = frozenset(
    (before, after) for (before, _), afters in TRANSITIONS.items() for after in afters
)
_UNCOUNTED = frozenset({run_pb2.ATTEMPT_STATE_LOST, run_pb2.ATTEMPT_STATE_RETURNED})
"""How an attempt ended that says nothing about its job: the next one may begin at once."""


@dataclass(slots=True)
class Run:
    """A run, as far as the log has come."""

    handle: bytes
    made: MeshCommit
    record: pb.RunRecord
    tokens: dict[int, int] = field(default_factory=dict)
    """When, on the recorder's clock, each attempt's assignment was being committed."""
    reported: dict[int, tuple[MeshCommit, run_pb2.AttemptState.ValueType]] = field(
        default_factory=dict
    )
    """Where each attempt's end was recorded that its worker had reported, and as what."""
    ended: MeshCommit | None = None

    @property
    def state(self) -> RunState:
        """Tells where it stands."""
        return STATE_OF[self.record.state]


class SettlingRules:
    """Follows every run through the log. `limits`: bounds on assigned runs by queue."""

    def __init__(self, verdict: Verdict, *, limits: Mapping[str, int]) -> None:
        self.runs: dict[RunKey, Run] = {}
        self._verdict = verdict
        self._limits = limits
        self._jobs: set[str] = set()
        self._sessions: set[str] = set()
        self._running: dict[bytes, str] = {}
        self._lost_sessions: dict[str, MeshCommit] = {}

    def take(self, commit: MeshCommit) -> None:
        """Looks at a commit."""
        for changed in commit.of(keys.SESSIONS):
            self._flag(self._sessions, changed.key.decode().split("/")[2], changed)
        for changed in commit.of(keys.RUNNING):
            handle = keys.handle_of_running(changed.key)
            if changed.after is None:
                self._running.pop(handle, None)
            else:
                self._running[handle] = keys.parse_handle_key(handle).queue
        self._take_runs(commit)
        for changed in commit.of(keys.STATE):
            self._flag(self._jobs, changed.uid, changed)
        if commit.of(keys.RUNNING):
            self._check_limits(commit)

    def finish(self) -> None:
        """Looks at what is left: whatever was accepted must have ended (L3)."""
        for (_, run_id), run in self.runs.items():
            self._verdict.checked["L3"] += 1
            if run.ended is None:
                self._verdict.violate(
                    "L3", f"run {run_id} is {run.state} for ever", [run.made, run.record]
                )

    def _flag(self, there: set[str], name: str, changed: Changed) -> None:
        if changed.after is None:
            there.discard(name)
        else:
            there.add(name)

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
            elif changed.after is None:
                self._take_end(run_key, changed, finals.pop(run_key, None), commit)
            else:
                self._take_move(run_key, changed, commit)
        for _, run_id in finals:
            self._violate("S11", run_id, "was written as ended, and did not end there", commit)
        for changed in commit.of(keys.RUNS):
            if changed.before is not None and changed.after is not None:
                run_id = changed.before.run_id
                self._violate("S11", run_id, "has ended, and its end was written over", commit)

    def _take_new(self, run_key: RunKey, changed: Changed, commit: MeshCommit) -> None:
        self._verdict.checked["S11"] += 1
        if run_key in self.runs:
            first = self.runs[run_key].made.revision
            self._violate("S11", run_key[1], f"was made before, at revision {first}", commit)
        self.runs[run_key] = Run(changed.key, commit, changed.after)

    def _take_end(
        self, run_key: RunKey, changed: Changed, final: Changed | None, commit: MeshCommit
    ) -> None:
        self._verdict.checked["S11"] += 1
        run, run_id = self.runs[run_key], run_key[1]
        run.ended = commit
        if final is None:
            self._violate("S11", run_id, "went without an end", commit)
            return
        before, after = changed.before, final.after
        run.record = after
        became = run.state
        if became not in ENDED:
            self._violate("S11", run_id, f"ended as {became}", commit)
        self._check_way(run_id, before, after, commit)
        token = _live_token(changed)
        _note_report(run, changed.before, after, token, commit)
        if after.completed and after.token != token:
            said = f"was completed under token {after.token}, and {token} was live"
            self._violate("S11", run_id, said, commit)
        self._check_counts(run_id, after, commit)
        self._verdict.checked["S16"] += 1
        dead = [one for one in commit.of(keys.DEAD) if one.key.endswith(run_id.encode())]
        if len(dead) != STATES[became].dead_letter:
            said = f"ended as {became}, and is {len(dead)} times among the dead letters"
            self._violate("S16", run_id, said, commit)
        if changed.key in self._running:
            self._violate("S15", run_id, "has ended, and still counts as running", commit)

    def _take_move(self, run_key: RunKey, changed: Changed, commit: MeshCommit) -> None:
        before, after = changed.before, changed.after
        run, run_id = self.runs[run_key], run_key[1]
        was, became = STATE_OF[before.state], STATE_OF[after.state]
        run.record = after
        if was in WITH_WORKER and became not in WITH_WORKER:
            _note_report(run, before, after, _live_token(changed), commit)
        self._check_way(run_id, before, after, commit)
        self._check_mover(run_id, changed, commit)
        if became in WITH_WORKER and was in WITH_WORKER:
            self._verdict.checked["S11"] += 1
            if after.token != _live_token(changed):
                said = f"lost its token {_live_token(changed)}: it says {after.token}"
                self._violate("S11", run_id, said, commit)
        elif became is RunState.RUNNING:
            self._take_assignment(run_key, run, before, commit)
        elif became is RunState.RETRYING:
            self._check_backoff(run_id, before, after, commit)

    def _check_way(
        self, run_id: str, before: pb.RunRecord, after: pb.RunRecord, commit: MeshCommit
    ) -> None:
        was, became = STATE_OF[before.state], STATE_OF[after.state]
        self._verdict.checked["S15"] += 1
        if after.attempts and _lost_with_its_session(after.attempts[-1]):
            self._lost_sessions.setdefault(after.attempts[-1].session, commit)
        if (was, became) not in _WAYS:
            self._violate("S15", run_id, f"went from {was} to {became}", commit)

    def _check_mover(self, run_id: str, changed: Changed, commit: MeshCommit) -> None:
        """In line or with a session, never neither and never both."""
        after = changed.after
        held = STATE_OF[after.state] in WITH_WORKER
        if held != (changed.key in self._running) or held != bool(after.session):
            said = f"is {STATE_OF[after.state]}, with the session {after.session!r}"
            self._violate("S15", run_id, f"{said}, and `running/` says otherwise", commit)
        if held and after.session not in self._sessions:
            said = f"is with session {after.session}, which is not there"
            self._violate("S15", run_id, said, commit)

    def _take_assignment(
        self, run_key: RunKey, run: Run, before: pb.RunRecord, commit: MeshCommit
    ) -> None:
        verdict, (uid, run_id), after = self._verdict, run_key, run.record
        verdict.checked["S9"] += 1
        verdict.checked["S13"] += 1
        verdict.checked["S17"] += 1
        if after.deliveries != before.deliveries + 1 or (
            after.attempts[-1].number != after.deliveries
        ):
            said = f"has attempt {after.deliveries} after attempt {before.deliveries}"
            self._violate("S9", run_id, said, commit)
        if after.session in self._lost_sessions:
            self._verdict.violate(
                "S9",
                f"run {run_id} was assigned to a session that another attempt was lost with: "
                f"that one may still run",
                [self._lost_sessions[after.session], commit],
            )
        if before.template.at_most_once and before.started:
            self._violate("S10", run_id, "may have started, and was assigned again", commit)
        if uid not in self._jobs:
            self._violate("S13", run_id, "was assigned after its job was deleted", commit)
        if before.HasField("cancel"):
            self._violate("S13", run_id, "was assigned after its end was asked for", commit)
        if commit.mesh_ns < before.not_before_ns:
            said = f"was assigned before {before.not_before_ns}"
            self._violate("S17", run_id, said, commit)
        run.tokens[commit.revision] = commit.begun_ns
        self._check_counts(run_id, after, commit)

    def _check_backoff(
        self, run_id: str, before: pb.RunRecord, after: pb.RunRecord, commit: MeshCommit
    ) -> None:
        attempt = after.attempts[-1]
        if attempt.state in _UNCOUNTED or after.failures == before.failures:
            return
        self._verdict.checked["S17"] += 1
        wait_ns = backoff(template_policy(after.template).retries, run_id, after.failures)
        if after.not_before_ns < attempt.end_time_ns + wait_ns:
            said = f"failed at {attempt.end_time_ns}, and may go on from {after.not_before_ns} on"
            self._violate("S17", run_id, f"{said}, without the {wait_ns} ns between", commit)

    def _check_counts(self, run_id: str, record: pb.RunRecord, commit: MeshCommit) -> None:
        template = record.template
        self._verdict.checked["S16"] += 1
        if record.failures > template.max_attempts or record.deliveries > template.max_deliveries:
            said = f"has failed {record.failures} times and was delivered {record.deliveries} times"
            self._violate("S16", run_id, said, commit)

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

    def _violate(self, rule: str, run_id: str, what: str, commit: MeshCommit) -> None:
        self._verdict.violate(rule, f"run {run_id} {what}", [commit])


def _note_report(
    run: Run, before: pb.RunRecord, after: pb.RunRecord, token: int, commit: MeshCommit
) -> None:
    held = STATE_OF[before.state] in WITH_WORKER
    if held and after.attempts and after.attempts[-1].state not in _UNCOUNTED:
        run.reported[token] = (commit, after.attempts[-1].state)


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
