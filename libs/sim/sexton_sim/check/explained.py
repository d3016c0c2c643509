"""What records say of starts and decisions, beside that they were made: S26.

Why a run was started or a nominal time was not, what was in its way, how many times a range has,
what a job's state then is: all of it follows from the definitions, from what was committed before,
and from the one time for which a commit was computed. It is derived here, and compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_core.ids import scheduled_run_id
from sexton_core.instants import SECOND
from sexton_core.policy import Definition
from sexton_core.policy.timeline import COUNT_LIMIT, Timeline
from sexton_core.words import Ask, CatchUpPolicy, Overlap, Reason
from sexton_records import keys
from sexton_records.state import ASKS, OVERLAP_OF, OVERLAPS
from sexton_sim.check.describe import instant
from sexton_sim.check.jobs import Decided, JobLog
from sexton_sim.check.records import MeshCommit
from sexton_sim.check.verdict import Verdict

_SCHEDULE: Final = run_pb2.RUN_ORIGIN_SCHEDULE
_KINDS: Final = {
    Reason.OVERLAP: pb.DECISION_KIND_SKIPPED,
    Reason.PAUSED: pb.DECISION_KIND_SKIPPED,
    Reason.NO_CATCH_UP: pb.DECISION_KIND_MISSED,
    Reason.PASSED_OVER: pb.DECISION_KIND_MISSED,
    Reason.OUTSIDE_WINDOW: pb.DECISION_KIND_MISSED,
    Reason.BUFFER_FULL: pb.DECISION_KIND_DROPPED,
    Reason.MAX_LIVE: pb.DECISION_KIND_DROPPED,
    Reason.SUPERSEDED: pb.DECISION_KIND_DROPPED,
    Reason.DELETED: pb.DECISION_KIND_DROPPED,
    Reason.CALENDAR: pb.DECISION_KIND_EXCLUDED,
}
_COUNTERS: Final = {
    pb.DECISION_KIND_SKIPPED: "skipped",
    pb.DECISION_KIND_MISSED: "missed",
    pb.DECISION_KIND_DROPPED: "dropped",
    pb.DECISION_KIND_EXCLUDED: "excluded",
}
_BLOCKED: Final = {
    Reason.OVERLAP: (Overlap.SKIP,),
    Reason.BUFFER_FULL: (Overlap.BUFFER_ONE, Overlap.BUFFER_ALL),
    Reason.MAX_LIVE: (Overlap.ALLOW_ALL,),
}
"""What rests on a live run, and the policies under which it does."""
_CATCH_UPS: Final = {
    Reason.NO_CATCH_UP: (CatchUpPolicy.NONE,),
    Reason.PASSED_OVER: (CatchUpPolicy.LATEST, CatchUpPolicy.EARLIEST, CatchUpPolicy.ALL),
    Reason.OUTSIDE_WINDOW: (CatchUpPolicy.LATEST, CatchUpPolicy.EARLIEST, CatchUpPolicy.ALL),
}
_ASKING: Final = {
    Overlap.CANCEL_OTHER: ASKS[Ask.CANCEL],
    Overlap.TERMINATE_OTHER: ASKS[Ask.TERMINATE],
}
_MOST_COUNTED: Final = 10_000
"""Nominal times of a range that are counted here: more than are ever late together."""
_OF_A_NEW_RUN: Final = (
    "failures",
    "deliveries",
    "started",
    "session",
    "token",
    "attempts",
    "end_time_ns",
    "result_json",
    "completed",
    "deadline_passed",
)
"""What a run's record says nothing about at first."""
_FROM_THE_BUFFER: Final = ("origin", "nominal_ns", "due_ns", "retry_of")


class ExplainedRules:
    """Compares what each commit says of a job with what follows from what was before it."""

    def __init__(self, verdict: Verdict, jobs: Mapping[str, JobLog], *, ahead_ns: int) -> None:
        """`jobs` as they were before each commit; `ahead_ns`: how far replicas' time may be."""
        self._verdict = verdict
        self._ahead_ns = ahead_ns
        self._jobs = jobs

    def speak(self, verdict: Verdict) -> None:
        """Says from now on what it finds."""
        self._verdict = verdict

    def take(self, commit: MeshCommit, decided: Mapping[str, Decided]) -> None:
        """Looks at a commit, before anybody takes note of what it does to jobs."""
        for uid, one in decided.items():
            job = self._jobs.get(uid)
            if job is not None and job.timeline is not None and not job.adopted:
                look = _Look(job, job.timeline, one, commit, self._verdict)
                look.take(commit.mesh_ns + self._ahead_ns)

    def check_states(self, commit: MeshCommit, decided: Mapping[str, Decided]) -> None:
        """Looks at the same commit, when what it does to definitions is known."""
        by_person = bool(commit.of(keys.JOBS))
        for changed in commit.of(keys.STATE):
            job = self._jobs.get(changed.uid)
            before, after = changed.before, changed.after
            if before is None or after is None or job is None or job.adopted:
                continue
            if job.timeline is not None:
                self._verdict.checked["S26"] += 1
                one = decided.get(changed.uid, Decided())
                times = {*_times(one, commit)}
                for said in _wrong_in_state(
                    job, before, after, one, times=times, by_person=by_person
                ):
                    self._verdict.violate("S26", f"the state of {job.shown} {said}", [commit])


class _Look:
    """One job in one commit."""

    def __init__(
        self,
        job: JobLog,
        timeline: Timeline,
        decided: Decided,
        commit: MeshCommit,
        verdict: Verdict,
    ) -> None:
        self._job = job
        self._timeline = timeline
        self._decided = decided
        self._commit = commit
        self._verdict = verdict
        self._now = 0

    def take(self, until_ns: int) -> None:
        """Looks at everything that it says; it can't have been computed for later."""
        times = {*_times(self._decided, self._commit)}
        self._verdict.checked["S26"] += 1
        if len(times) > 1 or max(times, default=0) > until_ns:
            told = ", ".join(map(instant, sorted(times)))
            self._violate(f"one commit about {{}} was computed for {told}")
        self._now = max(times, default=0)
        for run in self._decided.runs:
            self._check_new(run)
            self._check_run(run)
        for start in self._decided.buffered:
            self._check_buffered(start)
        for record in self._decided.decisions:
            self._check_decision(record)

    # Starts

    def _check_new(self, run: pb.RunRecord) -> None:
        """What is made is in line, and nothing has become of it."""
        job = self._job
        for name in _OF_A_NEW_RUN:
            if getattr(run, name):
                self._violate(f"new run {run.run_id} of {{}} has {name}")
        if run.state != run_pb2.RUN_STATE_WAITING or run.HasField("cancel"):
            self._violate(f"new run {run.run_id} of {{}} does not wait")
        if not run.not_before_ns == run.handle_not_before_ns == run.due_ns:
            self._violate(f"new run {run.run_id} of {{}} may not begin when it is due")
        template = job.template(run.template.version)
        if template is not None and template != run.template:
            self._violate(f"new run {run.run_id} of {{}} is not as its definition says")

    def _check_run(self, run: pb.RunRecord) -> None:
        waited = self._decided.unbuffered.get(run.run_id)
        if waited is not None:
            wrong = [name for name in _FROM_THE_BUFFER
                     if getattr(run, name) != getattr(waited, name)]  # fmt: skip
            if wrong:
                self._violate(f"run {run.run_id} of {{}} was buffered with another {wrong[0]}")
            self._check_reason(run, (Reason.WAITED,))
        elif run.origin == run_pb2.RUN_ORIGIN_MANUAL:
            self._check_reason(run, (Reason.MANUAL,))
            if not run.retry_of and run.nominal_ns != run.due_ns - run.due_ns % SECOND:
                self._violate(f"run {run.run_id} of {{}} is of {instant(run.nominal_ns)}")
        elif run.origin == run_pb2.RUN_ORIGIN_BACKFILL:
            self._check_reason(run, (Reason.BACKFILL,))
        else:
            self._check_reason(run, self._reasons(run.nominal_ns))

    def _reasons(self, nominal: int) -> tuple[Reason, ...]:
        """Gives why a nominal time of the schedule may start at this time."""
        state = self._job.state
        late_ns = self._now - self._timeline.due(nominal)
        catch_up = self._timeline.stretch(nominal).definition.catch_up
        if state is not None and state.HasField("resumed_ns") and state.resumed_ns == nominal:
            return (Reason.RESUMED,)
        if late_ns <= SECOND:
            return (Reason.ON_TIME,)
        if late_ns <= catch_up.late_after_ns:
            return (Reason.LATE,)
        if catch_up.policy is CatchUpPolicy.NONE or not self._in_window(nominal):
            return ()
        return (Reason.CAUGHT_UP,)

    def _in_window(self, nominal: int) -> bool:
        catch_up = self._timeline.stretch(nominal).definition.catch_up
        following = self._timeline.next_after(nominal) if catch_up.window_ns is None else None
        age_ns = self._now - self._timeline.due(nominal)
        return age_ns <= catch_up.window_of(nominal, following)

    def _check_reason(self, run: pb.RunRecord, reasons: tuple[Reason, ...]) -> None:
        if run.reason not in reasons:
            right = " or ".join(reasons) or "nothing"
            self._violate(f"run {run.run_id} of {{}} fired as {run.reason!r}, and is {right}")

    def _check_buffered(self, start: pb.BufferedRecord) -> None:
        job, nominal = self._job, start.nominal_ns
        overlap = OVERLAP_OF[start.overlap]
        wrong = start.ask != _ASKING.get(overlap, pb.ASK_UNSPECIFIED)
        if start.origin == _SCHEDULE:
            definition = self._timeline.stretch(nominal).definition
            said = (start.run_id, start.due_ns, start.version, start.overlap, start.retry_of)
            right = (
                scheduled_run_id(job.uid, nominal),
                self._timeline.due(nominal),
                definition.version,
                OVERLAPS[definition.overlap],
                "",
            )
            wrong = wrong or said != right
        else:
            wrong = wrong or start.version != max(job.versions)
            if not start.retry_of:
                wrong = wrong or nominal != start.due_ns - start.due_ns % SECOND
        if wrong:
            self._violate(f"start {start.run_id} of {{}} waits as something that it is not")
        blocker = self._blocker()
        if start.waits_for != blocker:
            self._violate(
                f"start {start.run_id} of {{}} waits for {start.waits_for!r}, and {blocker!r} was "
                f"in its way"
            )

    def _blocker(self) -> str:
        """Gives the oldest run of the job that was live, made before or by this commit."""
        state, job = self._job.state, self._job
        live = {keys.parse_handle_key(handle).run_id for handle in job.live}
        named = [] if state is None else [handle.run_id for handle in state.live]
        made = [run.run_id for run in self._decided.runs]
        return next((run_id for run_id in (*named, *made) if run_id in live or run_id in made), "")

    # Decisions

    def _check_decision(self, record: pb.DecisionRecord) -> None:
        said = f"decision about {instant(record.first_ns)} of {{}}"
        try:
            reason = Reason(record.reason)
        except ValueError:
            self._violate(f"{said} has the reason {record.reason!r}")
            return
        if _KINDS.get(reason) != record.kind:
            kind = pb.DecisionKind.Name(record.kind)
            self._violate(f"{said} is {kind} for {record.reason!r}")
        if record.run_id:
            wrong = self._wrong_of_buffered(record, reason)
        else:
            wrong = self._wrong_of_range(record, reason)
        if wrong:
            self._violate(f"{said} says {record.reason!r}: {wrong}")

    def _wrong_of_buffered(self, record: pb.DecisionRecord, reason: Reason) -> str:
        """Says what is wrong with a decision about a start that had waited."""
        decided, run_id = self._decided, record.run_id
        start = decided.unbuffered.get(run_id)
        newer = {start.run_id for start in decided.buffered}
        newer |= {it.run_id for it in decided.decisions} - {run_id}
        if start is None:
            known = reason is Reason.SUPERSEDED and record.blocked_by in newer
            return "" if known else "it had not waited"
        same = (
            record.first_ns == record.last_ns == start.nominal_ns
            and (record.times, record.counted_all) == (1, True)
            and (record.version, record.origin) == (start.version, start.origin)
        )
        if not same:
            return "another start had waited"
        if reason is Reason.SUPERSEDED:
            return "" if record.blocked_by in newer else f"{record.blocked_by!r} is not newer"
        if record.blocked_by != start.waits_for:
            return f"it had waited for {start.waits_for!r}, not for {record.blocked_by!r}"
        if reason is Reason.DELETED:
            return ""
        definition = self._job.versions.get(start.version)
        if reason is not Reason.OUTSIDE_WINDOW or definition is None:
            return "nobody gives up what waits for that"
        too_old = self._now - start.due_ns > definition.catch_up.buffer_window_ns
        return "" if too_old else "it was not that old"

    def _wrong_of_range(self, record: pb.DecisionRecord, reason: Reason) -> str:
        """Says what is wrong with a decision about nominal times."""
        definition = self._timeline.stretch(record.first_ns).definition
        if record.version != definition.version and not self._by_person():
            return f"version {definition.version} asked for it, not {record.version}"
        if wrong := self._wrong_in_count(record, reason):
            return wrong
        if reason in _BLOCKED:
            return self._wrong_of_blocked(record, reason, definition)
        if record.blocked_by:
            return f"{record.blocked_by!r} was not in its way"
        if reason is Reason.PAUSED:
            return "" if self._by_person() else "nobody resumed it"
        if reason in _CATCH_UPS:
            late = self._now - self._timeline.due(record.last_ns) > (
                definition.catch_up.late_after_ns
            )
            if definition.catch_up.policy not in _CATCH_UPS[reason] or not late:
                return "it was not late enough, or its policy is another"
            if reason is Reason.OUTSIDE_WINDOW and self._in_window(record.last_ns):
                return "it was not that old"
        return ""

    def _wrong_of_blocked(
        self, record: pb.DecisionRecord, reason: Reason, definition: Definition
    ) -> str:
        if definition.overlap not in _BLOCKED[reason]:
            return f"its policy is {definition.overlap}"
        if record.blocked_by != self._blocker():
            return f"{self._blocker()!r} was in its way, not {record.blocked_by!r}"
        if reason is Reason.MAX_LIVE:
            live = len(self._job.live) + len(self._decided.runs)
            return "" if live >= definition.max_live else f"{live} runs were live"
        return ""

    def _wrong_in_count(self, record: pb.DecisionRecord, reason: Reason) -> str:
        unfiltered = reason is Reason.CALENDAR
        most = min(max(record.times, COUNT_LIMIT), _MOST_COUNTED)
        t, times = record.first_ns - 1, 0
        while times <= most:
            following = self._timeline.next_after(t, unfiltered=unfiltered)
            if following is None or following > record.last_ns:
                break
            t, times = following, times + 1
        if t != record.last_ns and times <= most:
            return f"it asks for nothing at {instant(record.last_ns)}"
        if record.counted_all:
            right = record.times == times or record.times > _MOST_COUNTED < times
        else:
            right = record.times == COUNT_LIMIT < times
        return "" if right or self._by_person() else f"it has {times} times, not {record.times}"

    def _by_person(self) -> bool:
        return bool(self._commit.of(keys.JOBS))

    def _violate(self, what: str) -> None:
        self._verdict.violate("S26", what.format(self._job.shown), [self._commit])


def _times(decided: Decided, commit: MeshCommit) -> Iterator[int]:
    """Gives all times for which a commit says that it was computed."""
    for run in decided.runs:
        yield run.create_time_ns
        if run.run_id not in decided.unbuffered and run.origin != _SCHEDULE:
            yield run.due_ns
    for start in decided.buffered:
        yield start.buffered_at_ns
        if start.origin != _SCHEDULE:
            yield start.due_ns
    yield from (record.decide_time_ns for record in decided.decisions)
    for changed in commit.of(keys.REQUESTS):
        if changed.after is not None:
            yield changed.after.create_time_ns


def _wrong_in_state(
    job: JobLog,
    before: pb.StateRecord,
    after: pb.StateRecord,
    decided: Decided,
    *,
    times: Collection[int],
    by_person: bool,
) -> Iterator[str]:
    """Says what in a state does not follow from the one before and from its commit.

    Where there may be more than fitted it is looked at again at once: at one of these times.
    """
    assert job.timeline is not None, "its definition came with its first state"
    armed = job.timeline.next_after(after.cursor_ns)
    paused = after.HasField("paused_at_ns")
    if _optional(after, "armed_ns") != armed:
        yield f"is armed for {_told(_optional(after, 'armed_ns'))}, and {_told(armed)} is next"
    due = None if armed is None or paused else job.timeline.due(armed)
    timer = _optional(after, "timer_ns")
    if timer != due and timer not in times:
        yield f"has a timer for {_told(timer)}, and {_told(due)} is next"
    counters = {name: getattr(before.counters, name) for name in ("fired", *_COUNTERS.values())}
    counters["fired"] += sum(run.origin == _SCHEDULE for run in decided.runs)
    for record in decided.decisions:
        if record.origin == _SCHEDULE:
            counters[_COUNTERS[record.kind]] += record.times
    for name, count in counters.items():
        if getattr(after.counters, name) != count:
            yield f"counts {getattr(after.counters, name)} {name}, and there were {count}"
    known = {handle.run_id for handle in before.live} | {run.run_id for run in decided.runs}
    strangers = {handle.run_id for handle in after.live} - known
    if strangers:
        yield f"names {min(strangers)} among its live runs, which is none"
    rules = [(rule.after_ns, rule.version) for rule in after.rules]
    if rules != [(rule.after, rule.version) for rule in job.rules[-len(rules) :]]:
        yield "names other versions than are in force"
    if not by_person:
        if before.paused_at_ns != after.paused_at_ns or paused != before.HasField("paused_at_ns"):
            yield "was paused or resumed, and nobody asked for it"
        resumed = _optional(after, "resumed_ns")
        if resumed is not None and resumed != _optional(before, "resumed_ns"):
            yield "starts a time after a pause that nobody asked for"


def _optional(record: Any, name: str) -> int | None:
    return int(getattr(record, name)) if record.HasField(name) else None


def _told(at: int | None) -> str:
    return "nothing" if at is None else instant(at)
