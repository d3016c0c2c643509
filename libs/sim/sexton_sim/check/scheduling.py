"""What became of nominal times: S6, S7 and S8, and S14 for buffers and live runs.

The versions of each job and from when on each rules are followed by themselves, from the
definitions that were committed; what they ask for is computed anew. A commit that moves a job's
cursor must say for every nominal time that it passes what became of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_core.ids import scheduled_run_id
from sexton_core.policy import Definition, Job
from sexton_core.policy.state import Rule
from sexton_core.policy.timeline import Timeline
from sexton_core.schedules import JobIdentity, ScheduleCache
from sexton_core.words import Overlap
from sexton_records import keys
from sexton_records.spec import decode_definition
from sexton_records.state import OVERLAP_OF
from sexton_sim.check.records import Changed, MeshCommit
from sexton_sim.check.verdict import Verdict

Start = pb.RunRecord | pb.BufferedRecord

_SLACK_NS = 1_000_000_000
"""A change may be committed so long after the mesh time for which it was computed, and mesh time is
estimated."""
_LOOKOUT_NS = 7_000_000_000
"""What a lost notice would have said is read every five seconds."""
_PERSISTED_NS = 5_000_000_000
"""Mesh time goes on after a power loss where it was last persisted."""


@dataclass(slots=True)
class _Job:
    """One incarnation, as far as the log has come."""

    uid: str
    namespace: str = ""
    name: str = ""
    created_ns: int = 0
    versions: dict[int, Definition] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    state: pb.StateRecord | None = None
    buffered: dict[str, pb.BufferedRecord] = field(default_factory=dict)
    fired: dict[int, int] = field(default_factory=dict)
    """Revision of the run of each nominal time."""
    live: set[bytes] = field(default_factory=set)
    """Handles of its runs in flight."""
    idle_since_ns: int = 0
    """Since when starts wait in its buffer although nothing is live; 0: it is not so."""
    timeline: Timeline | None = None

    @property
    def shown(self) -> str:
        return f"{self.namespace}/{self.name} ({self.uid[:8]})"


@dataclass(slots=True)
class _Decided:
    """What one commit says about one job's nominal times."""

    runs: list[pb.RunRecord] = field(default_factory=list)
    handles: list[bytes] = field(default_factory=list)
    buffered: list[pb.BufferedRecord] = field(default_factory=list)
    unbuffered: dict[str, pb.BufferedRecord] = field(default_factory=dict)
    decisions: list[pb.DecisionRecord] = field(default_factory=list)


class SchedulingRules:
    """Follows every job through the log."""

    def __init__(self, verdict: Verdict, *, rebooted: bool, quiet: tuple[int, int]) -> None:
        """`rebooted`: mesh time as it was told may have gone back; `quiet`: everything works."""
        self.jobs: dict[str, _Job] = {}
        self._verdict = verdict
        self._quiet = quiet
        self._schedules = ScheduleCache()
        self._ahead_ns = _SLACK_NS + (_PERSISTED_NS if rebooted else 0)

    def take(self, commit: MeshCommit) -> None:
        """Looks at a commit."""
        for changed in commit.of(keys.JOBS):
            self._take_definition(changed, commit)
        decided = self._decided(commit)
        states = {changed.uid: changed for changed in commit.of(keys.STATE)}
        touched = {**states, **decided}
        for changed in commit.of(keys.ACTIVE):
            uid = keys.parse_handle_key(changed.key).uid
            touched[uid] = touched.get(uid)
            if changed.after is None:
                self.jobs[uid].live.discard(changed.key)
        for uid in touched:
            one = decided.get(uid, _Decided())
            self._take_job(uid, states.get(uid), one, commit)
            self._note_idle(self.jobs[uid], commit)

    def _note_idle(self, job: _Job, commit: MeshCommit) -> None:
        """A start that waits for nothing any more is started soon, whatever notice was lost."""
        paused = job.state is None or job.state.HasField("paused_at_ns")
        idle = bool(job.buffered) and not job.live and not paused
        if idle:
            job.idle_since_ns = job.idle_since_ns or commit.begun_ns
        elif job.idle_since_ns:
            since_ns = max(job.idle_since_ns, self._quiet[0])
            waited_ns = min(commit.begun_ns, self._quiet[1]) - since_ns
            job.idle_since_ns = 0
            self._verdict.checked["L3"] += 1
            if waited_ns > _LOOKOUT_NS:
                self._verdict.violate(
                    "L3",
                    f"starts of {job.shown} waited for {waited_ns / 1e9:.3f} s, and nothing was in "
                    f"their way",
                    [f"from {since_ns} on", commit],
                )

    def _decided(self, commit: MeshCommit) -> dict[str, _Decided]:
        found: dict[str, _Decided] = {}
        for changed in commit.of(keys.ACTIVE):
            if changed.before is None:
                uid = keys.parse_handle_key(changed.key).uid
                one = found.setdefault(uid, _Decided())
                one.runs.append(changed.after)
                one.handles.append(changed.key)
        for changed in commit.of(keys.BUFFERED):
            one = found.setdefault(changed.uid, _Decided())
            if changed.after is not None:
                one.buffered.append(changed.after)
            else:
                one.unbuffered[changed.before.run_id] = changed.before
        for changed in commit.of(keys.DECISIONS):
            if changed.after is not None:
                found.setdefault(changed.uid, _Decided()).decisions.append(changed.after)
        return found

    def _take_definition(self, changed: Changed, commit: MeshCommit) -> None:
        record: pb.JobRecord | None = changed.after
        if record is None:
            return
        namespace, name = keys.parse_job_key(changed.key)
        job = self.jobs.setdefault(record.uid, _Job(record.uid))
        if record.version in job.versions:
            return
        job.namespace, job.name = namespace, name
        job.created_ns = record.create_time_ns
        effective = record.effective_time_ns
        cursor = 0 if job.state is None else job.state.cursor_ns
        self._verdict.checked["S7"] += 1
        earliest, latest = commit.mesh_ns - _SLACK_NS, commit.mesh_ns + self._ahead_ns
        if not max(earliest, cursor) <= effective <= max(latest, cursor):
            self._verdict.violate(
                "S7",
                f"version {record.version} of {job.shown} is in force from {effective}, not from "
                f"the later of mesh time and cursor ({cursor})",
                [commit],
            )
        identity = JobIdentity(namespace=namespace, name=name, uid=record.uid, since=effective)
        job.versions[record.version] = decode_definition(
            record.spec, record.version, identity, self._schedules
        )
        job.rules = [rule for rule in job.rules if rule.after < effective]
        job.rules.append(Rule(effective, record.version))
        job.timeline = Timeline(_core_job(job), tuple(job.rules))

    def _take_job(
        self, uid: str, changed: Changed | None, decided: _Decided, commit: MeshCommit
    ) -> None:
        job = self.jobs.setdefault(uid, _Job(uid))
        before, state = job.state, None if changed is None else changed.after
        if changed is None:
            self._take_without_state(job, decided, commit)
        elif state is None:
            job.state = None
        elif job.timeline is not None:
            job.state = state
            cursor = state.cursor_ns if before is None else before.cursor_ns
            self._walk(job, cursor, state.cursor_ns, decided, commit)
            for run in decided.runs:
                self._check_run(job, run, before, decided, commit)
            self._check_gate(job, decided, commit)
        job.live.update(decided.handles)
        self._check_buffer(job, decided, commit)

    def _take_without_state(self, job: _Job, decided: _Decided, commit: MeshCommit) -> None:
        """Only the leader who works off a deleted job's buffer writes without its state."""
        if job.state is not None and (decided.runs or decided.buffered or decided.decisions):
            self._verdict.violate(
                "S8",
                f"something was decided about {job.shown}, and its state was not written in the "
                f"same commit",
                [commit],
            )
        for run in decided.runs:
            if job.state is None:
                self._verdict.violate(
                    "S7", f"run {run.run_id} was made although {job.shown} is not there", [commit]
                )

    def _walk(
        self, job: _Job, cursor: int, until: int, decided: _Decided, commit: MeshCommit
    ) -> None:
        """Holds each nominal time in (cursor, until] to exactly one thing that became of it."""
        verdict = self._verdict
        if until < cursor:
            verdict.violate(
                "S8", f"the cursor of {job.shown} went from {cursor} back to {until}", [commit]
            )
            return
        items = sorted(self._items(decided))
        at = 0
        assert job.timeline is not None, "its definition came with its first state"
        nominal = job.timeline.next_after(cursor)
        while nominal is not None and nominal <= until:
            verdict.checked["S8"] += 1
            while at < len(items) and items[at][1] < nominal:
                self._not_asked(job, items[at], commit)
                at += 1
            if at == len(items) or items[at][0] > nominal:
                verdict.violate(
                    "S8",
                    f"the cursor of {job.shown} moved over {nominal}, and nothing says what "
                    f"became of that time",
                    [f"from {cursor} to {until}", commit, *map(str, items)],
                )
                return
            first, last, what = items[at]
            at += 1
            if first < nominal and what != "range":
                self._not_asked(job, items[at - 1], commit)
                continue
            nominal = job.timeline.next_after(last)
        for item in items[at:]:
            self._not_asked(job, item, commit)

    def _items(self, decided: _Decided) -> list[tuple[int, int, str]]:
        """Gives what the commit says of nominal times that nothing had been said of before."""
        starts: list[Start] = [*decided.runs, *decided.buffered]
        items = [
            (start.nominal_ns, start.nominal_ns, start.run_id)
            for start in starts
            if start.origin == run_pb2.RUN_ORIGIN_SCHEDULE
            and start.run_id not in decided.unbuffered
        ]
        items += [
            (record.first_ns, record.last_ns, "range")
            for record in decided.decisions
            if record.kind != pb.DECISION_KIND_EXCLUDED
            and record.origin == run_pb2.RUN_ORIGIN_SCHEDULE
            and record.run_id not in decided.unbuffered
        ]
        return items

    def _not_asked(self, job: _Job, item: tuple[int, int, str], commit: MeshCommit) -> None:
        first, last, what = item
        rule = "S8" if what == "range" or first in job.fired else "S7"
        self._verdict.violate(
            rule,
            f"{what} from {first} to {last} of {job.shown} is about no undecided nominal time",
            [commit],
        )

    def _check_run(
        self,
        job: _Job,
        run: pb.RunRecord,
        before: pb.StateRecord | None,
        decided: _Decided,
        commit: MeshCommit,
    ) -> None:
        verdict, nominal = self._verdict, run.nominal_ns
        if run.origin != run_pb2.RUN_ORIGIN_SCHEDULE:
            return
        verdict.checked["S6"] += 1
        verdict.checked["S7"] += 1
        if run.run_id != scheduled_run_id(job.uid, nominal):
            verdict.violate(
                "S6", f"the run of {nominal} of {job.shown} has the id {run.run_id}", [commit]
            )
        if nominal in job.fired:
            verdict.violate(
                "S6",
                f"{nominal} of {job.shown} has a second run",
                [f"the first one: revision {job.fired[nominal]}", commit],
            )
        job.fired[nominal] = commit.revision
        assert job.timeline is not None, "its definition came with its first state"
        due = job.timeline.due(nominal)
        if commit.mesh_ns < due:
            verdict.violate("S7", f"{nominal} of {job.shown}, due {due}, ran too early", [commit])
        if before is not None and before.HasField("paused_at_ns"):
            verdict.violate("S7", f"{nominal} of {job.shown} ran although it is paused", [commit])
        waited = decided.unbuffered.get(run.run_id)
        version = job.timeline.stretch(nominal).definition.version
        if waited is not None:
            version = waited.version
        if run.template.version != version:
            verdict.violate(
                "S7",
                f"{nominal} of {job.shown} ran as version {run.template.version}, and {version} "
                f"was in force",
                [commit],
            )

    def _check_gate(self, job: _Job, decided: _Decided, commit: MeshCommit) -> None:
        """No start passes a live run of its job unless its overlap policy lets it."""
        verdict, live = self._verdict, len(job.live)
        for run in decided.runs:
            definition = job.versions.get(run.template.version)
            waited = decided.unbuffered.get(run.run_id)
            live += 1
            if definition is None or (run.origin != run_pb2.RUN_ORIGIN_SCHEDULE and waited is None):
                continue  # a trigger has an overlap policy of its own, which no record keeps
            verdict.checked["S14"] += 1
            alone = waited is not None or definition.overlap is not Overlap.ALLOW_ALL
            most = 1 if alone else definition.max_live
            if live > most:
                verdict.violate(
                    "S14",
                    f"{run.run_id} of {job.shown} was started as number {live} of its job's live "
                    f"runs; its policy allows {most}",
                    [commit],
                )

    def _check_buffer(self, job: _Job, decided: _Decided, commit: MeshCommit) -> None:
        """A start leaves the buffer in the commit that decides it, and only then."""
        verdict = self._verdict
        ways = [run.run_id for run in decided.runs]
        ways += [record.run_id for record in decided.decisions if record.run_id]
        for run_id, start in decided.unbuffered.items():
            job.buffered.pop(run_id, None)
            verdict.checked["S8"] += 1
            if ways.count(run_id) != 1:
                verdict.violate(
                    "S8",
                    f"{run_id} of {job.shown} left the buffer, and {ways.count(run_id)} things "
                    f"say what became of {start.nominal_ns}",
                    [commit],
                )
        for start in decided.buffered:
            job.buffered[start.run_id] = start
            self._check_room(job, start, commit)
        for run in decided.runs:
            if run.run_id in job.buffered:
                verdict.violate("S8", f"{run.run_id} runs, and still waits", [commit])

    def _check_room(self, job: _Job, start: pb.BufferedRecord, commit: MeshCommit) -> None:
        definition = job.versions.get(start.version)
        if definition is None:
            return
        self._verdict.checked["S14"] += 1
        most = {Overlap.BUFFER_ONE: 1, Overlap.BUFFER_ALL: definition.max_buffered}
        limit = most.get(OVERLAP_OF[start.overlap])
        if limit is not None and len(job.buffered) > limit:
            self._verdict.violate(
                "S14",
                f"{len(job.buffered)} starts of {job.shown} wait; its policy allows {limit}",
                [commit],
            )


def _core_job(job: _Job) -> Job:
    return Job(
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        created_at=job.created_ns,
        definitions=tuple(job.versions[number] for number in sorted(job.versions)),
    )
