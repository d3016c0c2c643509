"""The one decision function: what is due, what starts, what does not and why, what comes next."""

from collections.abc import Collection
from typing import NamedTuple

from sexton_core.ids import RunId, scheduled_run_id
from sexton_core.instants import SECOND, Instant
from sexton_core.policy._gate import ACTIONS_LIMIT, Candidate, Gate, Moved
from sexton_core.policy._one_start import decide_one_start
from sexton_core.policy._plan import Pass, Plan, Step
from sexton_core.policy.job import Job
from sexton_core.policy.state import Admission, DecisionRange, JobState, Rule, Verdict, make
from sexton_core.policy.timeline import Timeline
from sexton_core.words import Decision, Origin, Overlap, Reason


class Repeated(NamedTuple):
    """The run that a start repeats."""

    nominal: Instant
    run_id: RunId


def decide(
    job: Job,
    state: JobState,
    now: Instant,
    ended: Collection[RunId] = frozenset(),
    *,
    limit: int = ACTIONS_LIMIT,
) -> Verdict:
    """Decides about everything that is due at `now`, as far as it fits one commit.

    Pure and bounded: an outage of any length is a few steps per version of the job, plus one per
    start, of which one verdict makes at most `ACTIONS_LIMIT`. Where more is to be decided,
    `next_due` is not later than `now`: commit, and decide again.

    Args:
        job: with every version that `state` names.
        state: as last read; the commit compares its revision.
        now: mesh time, never later than the real one.
        ended: runs of `state.live` that are known to have ended. Leaving one out is safe.
        limit: of starts in one verdict, for runs so large that fewer fit one commit.

    """
    if limit > 1 and (verdict := decide_one_start(job, state, now, ended)) is not None:
        return verdict
    return decide_any(job, state, now, ended, limit=limit)


def decide_any(
    job: Job,
    state: JobState,
    now: Instant,
    ended: Collection[RunId] = frozenset(),
    *,
    limit: int = ACTIONS_LIMIT,
) -> Verdict:
    """Decides whatever it is: `decide` without the short way, which comes to the same."""
    timeline = Timeline(job, state.rules)
    gate = Gate(job, state, now, ended, limit)
    if state.paused_at is not None:
        return gate.verdict(None)
    more = False
    if state.buffered:
        gate.start_buffered()
        more = gate.full
    plan = Plan(timeline, state, now)
    for unit in () if more else plan.units():
        for step in unit:
            _take(job, timeline, gate, step, now)
        more = gate.full
        if more:
            break
    cursor, armed = plan.cursor, plan.upcoming
    next_due = now if more else None if armed is None else timeline.due(armed)
    if cursor == state.cursor:
        return gate.verdict(next_due)
    resumed = state.resumed if state.resumed is None or state.resumed > cursor else None
    moved = make(Moved, (cursor, armed, rules_after(state, cursor), resumed))
    return gate.verdict(next_due, moved)


def trigger(
    job: Job,
    state: JobState,
    now: Instant,
    run_id: RunId,
    *,
    overlap: Overlap | None = None,
    repeats: Repeated | None = None,
    ended: Collection[RunId] = frozenset(),
    limit: int = ACTIONS_LIMIT,
) -> tuple[Verdict, Admission]:
    """Starts a run because somebody asks for it, through the same gate.

    It decides no nominal time and works on a paused job too; what it has to wait for, or was
    already waiting, then waits for the resume. The commit also writes what makes asking again the
    same: the request's record, or that the dead letter is off its list.

    Args:
        job: with every version that `state` names.
        state: as last read.
        now: mesh time.
        run_id: of the run to be, from `manual_run_id` or `requeued_run_id`.
        overlap: instead of the job's policy, for this start only.
        repeats: the run that this one repeats, whose nominal time it keeps.
        ended: as in `decide`.
        limit: as in `decide`.

    Raises:
        PolicyError: `overlap` contradicts the job.

    """
    overlap = overlap or job.current.overlap
    job.check_overlap(overlap)
    gate = Gate(job, state, now, ended, limit)
    if state.paused_at is None:
        gate.start_buffered()
    nominal, retry_of = repeats or Repeated(now - now % SECOND, "")
    admission = gate.admit(
        Candidate(
            run_id,
            Origin.MANUAL,
            nominal,
            now,
            job.current,
            overlap,
            Reason.MANUAL,
            retry_of,
        )
    )
    return gate.verdict(due_next(job, state)), admission


def due_next(job: Job, state: JobState) -> Instant | None:
    """Returns when the timer of a state is to wake the leader; None: no timer."""
    if state.armed is None or state.paused_at is not None:
        return None
    return Timeline(job, state.rules).due(state.armed)


def rules_after(state: JobState, cursor: Instant) -> tuple[Rule, ...]:
    """Returns the rules that undecided nominal times still need."""
    rules = state.rules
    while len(rules) > 1 and rules[1].after <= cursor:
        rules = rules[1:]
    return rules


def record_of(timeline: Timeline, step: Pass, now: Instant) -> DecisionRange:
    """Returns the record of nominal times that never came to the gate, counted."""
    excluded = step.decision is Decision.EXCLUDED
    times, counted_all = timeline.count(step.first, step.last, unfiltered=excluded)
    return DecisionRange(
        step.decision,
        step.reason,
        step.first,
        step.last,
        times,
        counted_all,
        step.definition.version,
        now,
    )


def _take(job: Job, timeline: Timeline, gate: Gate, step: Step, now: Instant) -> None:
    if isinstance(step, Pass):
        gate.record(record_of(timeline, step, now))
        return
    nominal, due, definition, reason = step
    run_id = scheduled_run_id(job.uid, nominal)
    fields = run_id, Origin.SCHEDULE, nominal, due, definition, definition.overlap, reason, ""
    gate.admit(make(Candidate, fields))
