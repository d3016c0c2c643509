"""Where one nominal time of a job stands, by the record: what `why` and the ledger both rest on."""

from enum import StrEnum
from typing import Final, NamedTuple

from sexton_core.ids import RunId, scheduled_run_id
from sexton_core.instants import Instant
from sexton_core.policy.job import Job
from sexton_core.policy.state import DecisionRange, JobState, Rule
from sexton_core.policy.timeline import Timeline
from sexton_core.words import Decision, RunState


class RecordedRun(NamedTuple):
    """The run of a nominal time, as its record has it."""

    run_id: RunId
    state: RunState
    created_at: Instant


class Evidence(NamedTuple):
    """What the store holds about an instant of a job.

    run: the run with the id that the nominal time gives.
    range: the recorded range that contains the instant.
    rules: which version ruled from when on, from the job's creation; the job holds those versions.
        Empty: what `JobState` knows.
    """

    run: RecordedRun | None = None
    range: DecisionRange | None = None
    rules: tuple[Rule, ...] = ()


NO_EVIDENCE: Final = Evidence()


class Standing(StrEnum):
    """What is known of a nominal time."""

    # Its run is on record.
    FIRED = "fired"
    # A range says why it did not fire.
    RECORDED = "recorded"
    # A calendar takes it away.
    EXCLUDED = "excluded"
    # Its start waits in the buffer.
    BUFFERED = "buffered"
    # It was decided, and neither run nor range is kept any more.
    FORGOTTEN = "forgotten"
    # Undecided, and the job is paused: whoever resumes it says what becomes of it.
    PAUSED = "paused"
    # Due, and not decided yet.
    OVERDUE = "overdue"
    # Not due yet.
    AHEAD = "ahead"


UNDECIDED: Final = frozenset({Standing.PAUSED, Standing.OVERDUE, Standing.AHEAD})
"""Of a deleted job nobody will decide these any more."""


def standing_of(
    job: Job,
    state: JobState,
    timeline: Timeline,
    nominal: Instant,
    *,
    now: Instant,
    evidence: Evidence,
) -> Standing:
    """Returns where a nominal time (of the schedules, calendars aside) stands.

    Args:
        job: the incarnation that the evidence is about.
        state: as read before the evidence.
        timeline: of the versions that ruled.
        nominal: one of its times.
        now: mesh time.
        evidence: the run and the range of this time, where there are any.

    """
    recorded = evidence.range
    if evidence.run is not None:
        return Standing.FIRED
    excluded = recorded is not None and recorded.decision is Decision.EXCLUDED
    if excluded or timeline.next_after(nominal - 1) != nominal:
        return Standing.EXCLUDED
    if recorded is not None:
        return Standing.RECORDED
    run_id = scheduled_run_id(job.uid, nominal)
    if any(entry.run_id == run_id for entry in state.buffered):
        return Standing.BUFFERED
    if nominal <= state.cursor:
        return Standing.FORGOTTEN
    if state.paused_at is not None:
        return Standing.PAUSED
    return Standing.OVERDUE if timeline.due(nominal) <= now else Standing.AHEAD
