"""Why did it run, or not, and will it: the answer for any instant of a job, gate by gate.

For the past the answer comes from the record, never from a second computation: the gates are shown
with what was recorded. For the future it comes from `decide`, on the state as it is.
"""

from typing import NamedTuple

from sexton_core.ids import scheduled_run_id
from sexton_core.instants import MAX_INSTANT, Instant, format_duration, format_instant
from sexton_core.policy.decide import decide
from sexton_core.policy.job import Definition, Job
from sexton_core.policy.standing import (
    NO_EVIDENCE,
    UNDECIDED,
    Evidence,
    RecordedRun,
    Standing,
    standing_of,
)
from sexton_core.policy.state import DecisionRange, JobState
from sexton_core.policy.timeline import Timeline
from sexton_core.schedules import JobSchedule
from sexton_core.words import Decision, Reason, RunState


class GateReport(NamedTuple):
    """One condition on the way from an instant to a run, with the values that were compared."""

    name: str
    passed: bool
    detail: str


class Explanation(NamedTuple):
    """The answer.

    nominal: the instant, where it is a nominal time; else None.
    summary: one sentence.
    gates: in their order, up to the one that decided.
    decision: as recorded or forecast; None: no nominal time, not decided yet, or no longer known.
    forecast: the decision has not been taken yet.
    previous, following: the nearest nominal times.
    """

    nominal: Instant | None
    summary: str
    gates: tuple[GateReport, ...]
    decision: Decision | None
    forecast: bool
    previous: Instant | None
    following: Instant | None


def explain(
    job: Job,
    state: JobState,
    at: Instant,
    now: Instant,
    evidence: Evidence = NO_EVIDENCE,
    *,
    deleted_at: Instant | None = None,
) -> Explanation:
    """Answers for an instant.

    Args:
        job: with every version that the rules name.
        state: as last read.
        at: any instant.
        now: mesh time.
        evidence: what the store holds about `at`.
        deleted_at: when the job was deleted; its state is as it was then. None: it is there.

    """
    timeline = Timeline(job, evidence.rules or state.rules)
    answer = _Answer(job, state, timeline, at, now, deleted_at=deleted_at)
    if deleted_at is not None and at > deleted_at:
        return answer.deleted(deleted_at)
    if job.created_at < at <= timeline.begins:
        return answer.forgotten(evidence)
    if not answer.asked():
        # What was started by hand or by a backfill is no nominal time of a schedule.
        return answer.end("no schedule asks for a run at this time", None)
    standing = standing_of(job, state, timeline, at, now=now, evidence=evidence)
    if deleted_at is not None and standing in UNDECIDED:
        return answer.left_undecided(deleted_at)
    match standing:
        case Standing.FIRED:
            assert evidence.run is not None, "it is what says so"
            return answer.fired(evidence.run)
        case Standing.RECORDED:
            assert evidence.range is not None, "it is what says so"
            return answer.recorded(evidence.range)
        case Standing.EXCLUDED:
            return answer.calendar()
        case Standing.BUFFERED:
            return answer.buffered()
        case Standing.FORGOTTEN:
            return answer.end("it was decided, and the record is no longer kept", None)
        case Standing.PAUSED:
            return answer.paused()
        case Standing.OVERDUE:
            return answer.overdue()
        case Standing.AHEAD:
            return answer.ahead()


class _Answer:
    """Collects the gates that were passed, in order."""

    def __init__(
        self,
        job: Job,
        state: JobState,
        timeline: Timeline,
        at: Instant,
        now: Instant,
        *,
        deleted_at: Instant | None,
    ) -> None:
        self._last = MAX_INSTANT if deleted_at is None else deleted_at
        self._job = job
        self._state = state
        self._timeline = timeline
        self._at = at
        self._now = now
        self._nominal: Instant | None = None
        self._gates: list[GateReport] = []

    @property
    def _definition(self) -> Definition:
        return self._timeline.stretch(self._at).definition

    def add(self, name: str, detail: str, *, passed: bool = True) -> None:
        self._gates.append(GateReport(name, passed, detail))

    def end(
        self, sentence: str, decision: Decision | None, *, forecast: bool = False
    ) -> Explanation:
        following = self._timeline.next_after(self._at)
        return Explanation(
            nominal=self._nominal,
            summary=f"{format_instant(self._at)}: {sentence}.",
            gates=tuple(self._gates),
            decision=decision,
            forecast=forecast,
            previous=self._timeline.previous_before(min(self._at, self._last + 1)),
            following=following if following is not None and following <= self._last else None,
        )

    def deleted(self, deleted_at: Instant) -> Explanation:
        said = f"{self._job.namespace}/{self._job.name} was deleted at {format_instant(deleted_at)}"
        self.add("exists", said, passed=False)
        return self.end(said, None)

    def left_undecided(self, deleted_at: Instant) -> Explanation:
        """Answers for what a deletion came before: nobody will decide it any more."""
        if self._state.paused_at is not None:
            since = f"paused since {format_instant(self._state.paused_at)}"
            self.add("paused", since, passed=False)
        else:
            since = "not decided yet"
            self.add("paused", "not paused")
            self.add("leader", "not decided yet when the job was deleted", passed=False)
        return self.end(f"{since} when the job was deleted at {format_instant(deleted_at)}", None)

    def forgotten(self, evidence: Evidence) -> Explanation:
        """Answers where the version that ruled is not known: by what was recorded alone."""
        self.add("exists", "the definition that ruled this time is no longer kept", passed=False)
        if evidence.run is not None:
            run = evidence.run
            return self.end(f"run {run.run_id} is {run.state}", Decision.FIRED)
        if evidence.range is not None:
            recorded = evidence.range
            return self.end(
                f"if it was asked for, it was {recorded.decision} ({recorded.reason})", None
            )
        return self.end("the definition that ruled this time is no longer kept", None)

    def asked(self) -> bool:
        """Looks whether the job existed and its schedule, calendars aside, asks for the instant."""
        job, at, definition = self._job, self._at, self._definition
        existed = at > job.created_at
        word = "after" if existed else "not after"
        self.add(
            "exists",
            f"{word} the creation of {job.namespace}/{job.name}, {format_instant(job.created_at)}",
            passed=existed,
        )
        if not existed:
            return False
        following = self._timeline.next_after(at - 1, unfiltered=True)
        schedule = definition.schedule
        text = "no schedule: only triggers" if schedule is None else schedule.explain()
        self.add("schedule", f"version {definition.version}: {text}", passed=following == at)
        if following == at:
            self._nominal = at
        return following == at

    def calendar(self) -> Explanation:
        schedule = self._definition.schedule
        span = schedule.excluded_at(self._at) if isinstance(schedule, JobSchedule) else None
        calendar = "a calendar" if span is None else f"the calendar {span.calendar}"
        self.add("calendar", f"{calendar} takes it away", passed=False)
        decided = self._at <= self._state.cursor
        return self.end(f"{calendar} excludes it", Decision.EXCLUDED, forecast=not decided)

    def fired(self, run: RecordedRun) -> Explanation:
        late = run.created_at - self._due()
        self.add("paused", "not paused")
        before_or_after = "before" if late < 0 else "after"
        self.add("catch_up", f"decided {format_duration(abs(late))} {before_or_after} it was due")
        self.add("overlap", f"{self._definition.overlap}: let through")
        ended = run.state not in (RunState.EXPIRED, RunState.LOST)
        self.add("run", f"{run.run_id} is {run.state}", passed=ended)
        return self.end(f"run {run.run_id} is {run.state}", Decision.FIRED)

    def recorded(self, record: DecisionRange) -> Explanation:
        """Shows the gates up to the one at which the record says that it ended."""
        at = format_instant(record.decided_at)
        gate, detail = _STOPS[record.reason]
        detail = detail.format(blocker=record.blocked_by, at=at)
        if gate != "paused":
            self.add("paused", "not paused when it was decided")
            if gate != "catch_up":
                self.add("catch_up", f"decided at {at}, in time")
        self.add(gate, detail, passed=False)
        return self.end(f"{record.decision}: {detail}", record.decision)

    def buffered(self) -> Explanation:
        run_id = scheduled_run_id(self._job.uid, self._at)
        entry = next(entry for entry in self._state.buffered if entry.run_id == run_id)
        self.add("overlap", f"waits in the buffer for run {entry.waits_for}", passed=False)
        return self.end(f"it waits for run {entry.waits_for} to end", Decision.BUFFERED)

    def paused(self) -> Explanation:
        assert self._state.paused_at is not None, "it is what says so"
        since = f"paused since {format_instant(self._state.paused_at)}"
        self.add("paused", since, passed=False)
        return self.end(f"{since}; whoever resumes the job says what becomes of it", None)

    def overdue(self) -> Explanation:
        self.add("paused", "not paused")
        late = format_duration(self._now - self._due())
        self.add("leader", f"due for {late} and not decided yet", passed=False)
        return self.end(f"due for {late}; no leader has decided it yet", None)

    def ahead(self) -> Explanation:
        state, due = self._state, self._due()
        self.add("paused", "not paused")
        self.add("due", f"due at {format_instant(due)}", passed=False)
        alone = state._replace(cursor=self._at - 1, armed=self._at, live=(), buffered=())
        verdict = decide(self._job, alone, due)
        decision = Decision.FIRED if verdict.runs else verdict.ranges[0].decision
        condition = ""
        if state.live:
            names = ", ".join(handle.run_id for handle in state.live[:3])
            condition = f"; by {self._definition.overlap}, if {names} is live then"
        self.add("overlap", f"{self._definition.overlap}{condition}")
        return self.end(f"will start at {format_instant(due)}{condition}", decision, forecast=True)

    def _due(self) -> Instant:
        return self._timeline.due(self._at)


_STOPS = {
    Reason.OVERLAP: ("overlap", "run {blocker} was live at {at}"),
    Reason.PAUSED: ("paused", "the job was paused, and resumed at {at} with the next time"),
    Reason.NO_CATCH_UP: ("catch_up", "nobody decided it in time, and nothing is caught up"),
    Reason.PASSED_OVER: (
        "catch_up",
        "nobody decided it in time, and at {at} the catch-up policy passed it over for another",
    ),
    Reason.OUTSIDE_WINDOW: ("catch_up", "older than the catch-up window at {at}"),
    Reason.BUFFER_FULL: ("overlap", "the buffer behind run {blocker} was full at {at}"),
    Reason.MAX_LIVE: ("overlap", "as many runs as allowed were live at {at}, such as {blocker}"),
    Reason.SUPERSEDED: ("overlap", "the newer start {blocker} took its place at {at}"),
    Reason.DELETED: ("overlap", "it waited for run {blocker} when the job was deleted at {at}"),
}
"""For each reason not to fire: the gate at which it ended, and the words."""
