"""What people do to a job: create, edit, pause, resume, delete. None of it starts a run.

Each returns what one commit writes. The commit compares the revision of `state/`, so a change that
meets a fire, or another change, is refused and computed again from what is then true.
"""

from typing import Final, NamedTuple

from sexton_core.checks import check_range
from sexton_core.errors import IllegalChange
from sexton_core.instants import Instant
from sexton_core.policy._plan import Pass, with_excluded
from sexton_core.policy.decide import due_next, record_of, rules_after
from sexton_core.policy.job import Definition, Job
from sexton_core.policy.state import (
    CHANGE_SLACK,
    Change,
    Counters,
    DecisionRange,
    Handle,
    JobState,
    Rule,
)
from sexton_core.policy.timeline import Timeline
from sexton_core.schedule import first_or_refuse
from sexton_core.words import Decision, Reason, ResumeMode

RULES_LIMIT: Final = 100
"""Edits that undecided nominal times may be waiting behind; bounds every walk over versions."""


class Deletion(NamedTuple):
    """What remains of a deleted job.

    handles: runs that may be in flight, to be moved to `deleted/` and cancelled.
    ranges: how the buffered starts ended.
    """

    handles: tuple[Handle, ...]
    ranges: tuple[DecisionRange, ...]


def create(job: Job, now: Instant) -> Change:
    """Returns the first state: nothing of the past is asked for, nothing fires by creation.

    Raises:
        NeverFiresError: the schedule has no nominal time after `now`.

    """
    rules = (Rule(now, job.current.version),)
    schedule = job.current.schedule
    armed = None
    if schedule is not None:
        armed = first_or_refuse(schedule, now, field="schedule")
    return _change(job, JobState(cursor=now, armed=armed, rules=rules), now)


def edit(job: Job, state: JobState, definition: Definition, now: Instant) -> tuple[Job, Change]:
    """Puts a new version in force from now on; it fires nothing in the past.

    What was asked for up to now stays with the versions before. Whether the new version ever
    fires is for the caller to judge: a finished job may be edited.

    Raises:
        PolicyError: the version is not the next one.
        IllegalChange: `RULES_LIMIT` edits wait for a decision about what came before them.

    """
    following = job.current.version + 1
    check_range("version", definition.version, following, following)
    effective = max(now, state.cursor)
    timeline = Timeline(job, state.rules)
    undecided = timeline.next_after(state.cursor, unfiltered=True)
    rules: tuple[Rule, ...] = ()
    if undecided is not None and undecided <= effective:
        rules = rules_after(state, state.cursor)
        if rules[-1].after == effective:
            rules = rules[:-1]
        if len(rules) >= RULES_LIMIT:
            raise IllegalChange(
                f"job {job.namespace}/{job.name}",
                "an edit",
                f"edited {len(rules)} times since its last decision",
                "it is resumed, or its leader has caught up",
            )
    rules = (*rules, Rule(effective, definition.version))
    needed = {rule.version for rule in rules} | {entry.version for entry in state.buffered}
    kept = tuple(version for version in job.definitions if version.version in needed)
    edited = Job(
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        created_at=job.created_at,
        definitions=(*kept, definition),
    )
    armed = Timeline(edited, rules).next_after(state.cursor)
    return edited, _change(edited, state._replace(rules=rules, armed=armed), now)


def pause(job: Job, state: JobState, now: Instant) -> Change:
    """Stops new starts and holds the buffer; live runs go on. Pausing twice is pausing once."""
    if state.paused_at is not None:
        return _change(job, state, now)._replace(changed=False)
    return _change(job, state._replace(paused_at=now), now)


def resume(job: Job, state: JobState, now: Instant, mode: ResumeMode = ResumeMode.NEXT) -> Change:
    """Lets a job start again, and says what becomes of what the pause passed over.

    That is everything undecided, including what was due before the pause and not decided then.
    With `now` the newest of it is left to the leader, who starts it however old it is; if the
    pause passed over nothing, nothing starts. What an earlier resume left to the leader and was
    not started is undecided like the rest. Resuming a job that is not paused changes nothing.
    """
    if state.paused_at is None:
        return _change(job, state, now)._replace(changed=False)
    state = state._replace(paused_at=None, resumed=None)
    if mode is ResumeMode.CATCH_UP or state.armed is None:
        return _change(job, state, now)
    timeline = Timeline(job, state.rules)
    last = timeline.previous_before(now + 1)
    resumed = None
    if mode is ResumeMode.NOW and last is not None and last > state.cursor:
        resumed = last
        last = timeline.previous_before(last)
    if last is None or last <= state.cursor:
        return _change(job, state._replace(resumed=resumed), now)
    ranges = _passed_over(timeline, state, last, now)
    skipped = sum(record.times for record in ranges if record.decision is Decision.SKIPPED)
    excluded = sum(record.times for record in ranges if record.decision is Decision.EXCLUDED)
    counters: Counters = state.counters._replace(
        skipped=state.counters.skipped + skipped, excluded=state.counters.excluded + excluded
    )
    state = state._replace(
        cursor=last,
        armed=timeline.next_after(last),
        rules=rules_after(state, last),
        counters=counters,
        resumed=resumed,
    )
    return _change(job, state, now, ranges)


def delete(state: JobState, now: Instant) -> Deletion:
    """Ends a job: its buffered starts are dropped, its live runs are left to be worked off."""
    return Deletion(
        state.live,
        tuple(
            DecisionRange(
                Decision.DROPPED,
                Reason.DELETED,
                entry.nominal,
                entry.nominal,
                1,
                True,
                entry.version,
                now,
                entry.waits_for,
                entry.run_id,
                entry.origin,
            )
            for entry in state.buffered
        ),
    )


def _passed_over(
    timeline: Timeline, state: JobState, last: Instant, now: Instant
) -> tuple[DecisionRange, ...]:
    """Records (cursor, last] as skipped; what calendars take away before it, as excluded."""
    assert state.armed is not None, "something was passed over"
    skipped = tuple(
        Pass(*piece, Decision.SKIPPED, Reason.PAUSED) for piece in timeline.split(state.armed, last)
    )
    return tuple(
        record_of(timeline, step, now)
        for step in with_excluded(timeline, state.cursor, skipped)
        if isinstance(step, Pass)
    )


def _change(
    job: Job, state: JobState, now: Instant, ranges: tuple[DecisionRange, ...] = ()
) -> Change:
    return Change(state, ranges, due_next(job, state), now + CHANGE_SLACK)
