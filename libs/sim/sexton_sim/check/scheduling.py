"""What became of nominal times: S6, S7 and S8, and S14 for buffers and live runs.

The versions of each job and from when on each rules are followed by themselves, from the
definitions that were committed; what they ask for is computed anew. A commit that moves a job's
cursor must say for every nominal time that it passes what became of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_core.ids import scheduled_run_id
from sexton_core.policy import AHEAD_NS, ahead_until
from sexton_core.schedules import ScheduleCache
from sexton_core.words import Overlap
from sexton_records import keys
from sexton_records.state import OVERLAP_OF
from sexton_sim.check.describe import instant
from sexton_sim.check.jobs import Decided, JobLog, Start
from sexton_sim.check.records import Changed, MeshCommit
from sexton_sim.check.verdict import Verdict

_SLACK_NS = 1_000_000_000
"""A change may be committed so long after the mesh time for which it was computed, and mesh time is
estimated."""
LOOKOUT_NS = 7_000_000_000
"""What a lost notice would have said is read every five seconds."""
_ENDING = (Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER)
_FIRED = 10_000
"""Nominal times of a job whose runs are remembered; earlier ones lie below its cursor."""
_ADOPTED = (
    "what jobs did under definitions from before the log: nothing says what these ask for "
    "(S7, S8, S14)"
)
_PERSISTED_NS = 5_000_000_000
"""Mesh time goes on after a power loss where it was last persisted."""


class _Item(NamedTuple):
    """What a commit says of some nominal times."""

    first: int
    last: int
    what: str
    """The run's id, or `range`."""

    def __str__(self) -> str:
        if self.what != "range":
            return f"the run {self.what} of {instant(self.first)}"
        return f"a decision about {instant(self.first)} to {instant(self.last)}"


class SchedulingRules:
    """Follows every job through the log."""

    def __init__(self, verdict: Verdict, *, rebooted: bool, quiet: tuple[int, int]) -> None:
        """`rebooted`: mesh time as it was told may have gone back; `quiet`: everything works."""
        self.jobs: dict[str, JobLog] = {}
        self._verdict = verdict
        self._quiet = quiet
        self._schedules = ScheduleCache()
        self.ahead_ns = ahead_of(rebooted=rebooted)
        """So far a replica's idea of mesh time may be ahead."""

    def speak(self, verdict: Verdict) -> None:
        """Says from now on what it finds."""
        self._verdict = verdict

    def take(self, commit: MeshCommit, decided: Mapping[str, Decided]) -> None:
        """Looks at a commit."""
        for changed in commit.of(keys.JOBS):
            self._take_definition(changed, commit)
        states = {changed.uid: changed for changed in commit.of(keys.STATE)}
        if commit.of(keys.JOBS):
            for uid, changed in states.items():
                if changed.before is not None and uid in self.jobs:
                    self._check_change(self.jobs[uid], changed.before, commit)
        touched = {**states, **decided}
        for changed in commit.of(keys.ACTIVE):
            uid = keys.parse_handle_key(changed.key).uid
            if changed.after is None:
                touched[uid] = touched.get(uid)
                if uid in self.jobs:
                    self.jobs[uid].live.discard(changed.key)
        for uid in touched:
            one = decided.get(uid, Decided())
            self._take_job(uid, states.get(uid), one, commit)
            self._note_idle(self.jobs[uid], commit)
            if self.jobs[uid].is_over():
                del self.jobs[uid]

    def finish(self) -> None:
        """Looks at what still waits when the history ends."""
        for job in self.jobs.values():
            if job.idle_since_ns:
                self._check_idle(job, self._quiet[1], "the history ends")

    def _note_idle(self, job: JobLog, commit: MeshCommit) -> None:
        """A start that waits for nothing any more is started soon, whatever notice was lost."""
        if job.buffered and not job.live and not job.paused:
            job.idle_since_ns = job.idle_since_ns or commit.begun_ns
        elif job.idle_since_ns:
            self._check_idle(job, commit.begun_ns, commit)

    def _check_idle(self, job: JobLog, until_ns: int, event: object) -> None:
        since_ns = max(job.idle_since_ns, self._quiet[0])
        waited_ns = min(until_ns, self._quiet[1]) - since_ns
        job.idle_since_ns = 0
        self._verdict.checked["L3"] += 1
        if waited_ns > LOOKOUT_NS:
            self._verdict.violate(
                "L3",
                f"starts of {job.shown} waited for {waited_ns / 1e9:.3f} s, and nothing was in "
                f"their way",
                [f"nothing of it was in flight from {since_ns / 1e9:.3f} s on", event],
            )

    def _take_definition(self, changed: Changed, commit: MeshCommit) -> None:
        record: pb.JobRecord | None = changed.after
        if record is None:
            return
        namespace, name = keys.parse_job_key(changed.key)
        job = self.jobs.setdefault(record.uid, JobLog(record.uid))
        if record.version in job.versions:
            return
        job.namespace, job.name = namespace, name
        job.created_ns = record.create_time_ns
        effective = record.effective_time_ns
        if not job.versions and changed.before is not None:
            # The log began later: what ruled before is what stood there, or is not known.
            job.adopted = True
            self._verdict.unknown(_ADOPTED)
            if changed.before.uid == record.uid and changed.before.version != record.version:
                job.learn(changed.before, self._schedules)
            if changed.before.version == record.version:
                job.learn(record, self._schedules)
                return
        cursor = 0 if job.state is None else job.state.cursor_ns
        self._verdict.checked["S7"] += 1
        earliest, latest = commit.mesh_ns - _SLACK_NS, commit.mesh_ns + self.ahead_ns
        if not max(earliest, cursor) <= effective <= max(latest, cursor):
            self._verdict.violate(
                "S7",
                f"version {record.version} of {job.shown} is in force from {instant(effective)}, "
                f"not from the later of mesh time and cursor ({instant(cursor)})",
                [commit],
            )
        job.learn(record, self._schedules)

    def _take_job(
        self, uid: str, changed: Changed | None, decided: Decided, commit: MeshCommit
    ) -> None:
        job = self.jobs.setdefault(uid, JobLog(uid))
        before, state = job.state, None if changed is None else changed.after
        if before is None and changed is not None and changed.before is not None:
            before = changed.before
            job.namespace, job.name = before.namespace, before.job
            job.adopted = True
        if changed is None:
            self._take_without_state(job, decided, commit)
        elif state is None:
            job.state = None
        elif job.timeline is None:
            job.state = state
            self._verdict.unknown(_ADOPTED)
        else:
            job.state = state
            cursor = state.cursor_ns if before is None else before.cursor_ns
            self._walk(job, cursor, state.cursor_ns, decided, commit)
            for run in decided.runs:
                self._check_run(job, run, before, decided, commit)
            if not job.adopted:
                self._check_gate(job, decided, commit)
        job.live.update(decided.handles)
        self._check_buffer(job, decided, commit)

    def _take_without_state(self, job: JobLog, decided: Decided, commit: MeshCommit) -> None:
        """Only the leader who works off a deleted job's buffer writes without its state."""
        if job.state is not None and (decided.runs or decided.buffered or decided.decisions):
            self._verdict.violate(
                "S8",
                f"something was decided about {job.shown}, and its state was not written in the "
                f"same commit",
                [f"its cursor stays at {instant(job.state.cursor_ns)}", commit],
            )
        for run in decided.runs:
            if job.state is None:
                self._verdict.violate(
                    "S7", f"run {run.run_id} was made although {job.shown} is not there", [commit]
                )

    def _walk(
        self, job: JobLog, cursor: int, until: int, decided: Decided, commit: MeshCommit
    ) -> None:
        """Holds each nominal time in (cursor, until] to exactly one thing that became of it."""
        verdict = self._verdict
        if until < cursor:
            verdict.violate(
                "S8",
                f"the cursor of {job.shown} went from {instant(cursor)} back to {instant(until)}",
                [commit],
            )
            return
        items = sorted(self._items(decided))
        if cursor < job.known_from_ns:
            cursor = job.known_from_ns
            items = [
                it._replace(first=max(it.first, cursor + 1)) for it in items if it.last > cursor
            ]
        self._check_ranges(job, items, cursor, until, commit)
        at = 0
        assert job.timeline is not None, "its definition came with its first state"
        nominal = job.timeline.next_after(cursor)
        while nominal is not None and nominal <= until:
            verdict.checked["S8"] += 1
            while at < len(items) and items[at].last < nominal:
                self._not_asked(job, items[at], commit)
                at += 1
            if at == len(items) or items[at].first > nominal:
                verdict.violate(
                    "S8",
                    f"the cursor of {job.shown} moved over {instant(nominal)}, and nothing says "
                    f"what became of that time",
                    [
                        self._written(job),
                        commit,
                        f"it moved from {instant(cursor)} to {instant(until)}",
                        *(f"the commit decides {item}" for item in items[:3]),
                    ],
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

    def _check_ranges(
        self, job: JobLog, items: list[_Item], cursor: int, until: int, commit: MeshCommit
    ) -> None:
        """A range lies within what the commit decides, and what it says is said once."""
        said = cursor
        for item in items:
            if item.what == "range" and not said < item.first <= item.last <= until:
                self._verdict.violate(
                    "S8",
                    f"{job.shown} has {item}, which is not within what was undecided up to there: "
                    f"after {instant(said)}, up to {instant(until)}",
                    [commit],
                )
            said = max(said, item.last)

    def _written(self, job: JobLog) -> str:
        rules = ", ".join(
            f"version {it.version} after {instant(it.after)}" for it in job.rules[-3:]
        )
        return f"rules of {job.shown}: {rules}"

    def _items(self, decided: Decided) -> list[_Item]:
        """Gives what the commit says of nominal times that nothing had been said of before."""
        starts: list[Start] = [*decided.runs, *decided.buffered]
        items = [
            _Item(start.nominal_ns, start.nominal_ns, start.run_id)
            for start in starts
            if start.origin == run_pb2.RUN_ORIGIN_SCHEDULE
            and start.run_id not in decided.unbuffered
        ]
        items += [
            _Item(record.first_ns, record.last_ns, "range")
            for record in decided.decisions
            if record.kind != pb.DECISION_KIND_EXCLUDED
            and record.origin == run_pb2.RUN_ORIGIN_SCHEDULE
            and record.run_id not in decided.unbuffered
        ]
        return items

    def _not_asked(self, job: JobLog, item: _Item, commit: MeshCommit) -> None:
        first = job.fired.get(item.first)
        rule = "S8" if item.what == "range" or first is not None else "S7"
        before = None if first is None else f"revision {first} made a run of that time before"
        self._verdict.violate(
            rule,
            f"{job.shown} has {item}, and no definition in force asks for an undecided time there",
            [self._written(job), before, commit],
        )

    def _check_run(
        self,
        job: JobLog,
        run: pb.RunRecord,
        before: pb.StateRecord | None,
        decided: Decided,
        commit: MeshCommit,
    ) -> None:
        verdict, nominal = self._verdict, run.nominal_ns
        if run.origin != run_pb2.RUN_ORIGIN_SCHEDULE:
            return
        verdict.checked["S6"] += 1
        verdict.checked["S7"] += 1
        if run.run_id != scheduled_run_id(job.uid, nominal):
            verdict.violate(
                "S6",
                f"the run of {instant(nominal)} of {job.shown} has the id {run.run_id}, not "
                f"{scheduled_run_id(job.uid, nominal)}",
                [commit],
            )
        if nominal in job.fired:
            verdict.violate(
                "S6",
                f"{instant(nominal)} of {job.shown} has a second run",
                [f"revision {job.fired[nominal]} made the first one", commit],
            )
        job.fired[nominal] = commit.revision
        if len(job.fired) > _FIRED:
            del job.fired[next(iter(job.fired))]
        assert job.timeline is not None, "its definition came with its first state"
        due = job.timeline.due(nominal)
        if commit.mesh_ns < due:
            self._check_ahead(job, run, before, decided, commit)
        waited = decided.unbuffered.get(run.run_id)
        if waited is None and run.due_ns != due:
            verdict.violate(
                "S7",
                f"{instant(nominal)} of {job.shown} says that it was due at {instant(run.due_ns)}, "
                f"and it was at {instant(due)}",
                [commit],
            )
        if before is not None and before.HasField("paused_at_ns"):
            since = instant(before.paused_at_ns)
            verdict.violate(
                "S7", f"{instant(nominal)} of {job.shown} ran, paused since {since}", [commit]
            )
        version = job.timeline.stretch(nominal).definition.version
        if waited is not None:
            version = waited.version
        if run.template.version != version:
            verdict.violate(
                "S7",
                f"{instant(nominal)} of {job.shown} ran as version {run.template.version}, and "
                f"{version} was in force",
                [self._written(job), commit],
            )

    def _check_ahead(
        self,
        job: JobLog,
        run: pb.RunRecord,
        before: pb.StateRecord | None,
        decided: Decided,
        commit: MeshCommit,
    ) -> None:
        """A start may be written before it is due, a moment, where nothing can come between."""
        early_ns = run.due_ns - commit.mesh_ns
        wrong = ""
        if early_ns > AHEAD_NS:
            wrong = f"was written {early_ns / 1e9:.3f} s before it was due"
        elif decided.buffered or decided.unbuffered or decided.decisions or len(decided.runs) > 1:
            wrong = "was written before it was due, with something else"
        elif before is not None and _ahead_of(before, commit) is not None:
            wrong = "was written before it was due, and before the start before it was"
        elif job.versions[run.template.version].overlap in _ENDING:
            wrong = "was written before it was due, when nobody knew what it would end"
        if wrong:
            told = f"{instant(run.nominal_ns)} of {job.shown}, due at {instant(run.due_ns)}"
            self._verdict.violate("S7", f"{told}, {wrong}", [commit])

    def _check_change(self, job: JobLog, before: pb.StateRecord, commit: MeshCommit) -> None:
        """No change is made between a start's being written and its being due."""
        self._verdict.checked["S7"] += 1
        due = _ahead_of(before, commit)
        if due is not None:
            self._verdict.violate(
                "S7",
                f"{job.shown} was changed while its start of {instant(due)} was written already: "
                f"it will be as it was before the change",
                [commit],
            )

    def _check_gate(self, job: JobLog, decided: Decided, commit: MeshCommit) -> None:
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
                    f"runs; its policy {definition.overlap} allows {most}",
                    [
                        f"live: {', '.join(sorted(map(_run_id, job.live))[:4])}",
                        commit,
                    ],
                )

    def _check_buffer(self, job: JobLog, decided: Decided, commit: MeshCommit) -> None:
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
                    f"say what became of {instant(start.nominal_ns)}",
                    [commit],
                )
        for start in decided.buffered:
            job.buffered[start.run_id] = start
            self._check_room(job, start, commit)
        for run in decided.runs:
            if run.run_id in job.buffered:
                verdict.violate("S8", f"{run.run_id} runs, and still waits", [commit])

    def _check_room(self, job: JobLog, start: pb.BufferedRecord, commit: MeshCommit) -> None:
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


def ahead_of(*, rebooted: bool) -> int:
    """Tells how far a replica's idea of mesh time may be ahead of a commit's."""
    return _SLACK_NS + (_PERSISTED_NS if rebooted else 0)


def _ahead_of(state: pb.StateRecord, commit: MeshCommit) -> int | None:
    return ahead_until([handle.not_before_ns for handle in state.live], commit.mesh_ns)


def _run_id(handle: bytes) -> str:
    return keys.parse_handle_key(handle).run_id
