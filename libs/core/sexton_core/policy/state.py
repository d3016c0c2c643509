"""What is known about a job between two decisions, and what a decision says.

Tuples with names, not dataclasses: the leader makes several of them per run.
"""

from typing import Final, NamedTuple

from sexton_core.ids import RunId
from sexton_core.instants import Duration, Instant
from sexton_core.words import Ask, Decision, Origin, Overlap, Reason

make: Final = tuple.__new__
"""Makes a named tuple of what is known to be whole; its own constructor costs twice as much."""


class Rule(NamedTuple):
    """From when on a version rules: nominal times strictly later than `after`."""

    after: Instant
    version: int


class Handle(NamedTuple):
    """Names the key of a run in flight: all that the key is made of, fixed at its creation."""

    run_id: RunId
    queue: str
    priority: int
    not_before: Instant


class Buffered(NamedTuple):
    """A start that waits until no run of its job is live. Written once and deleted once.

    waits_for: the run that was in the way when it was buffered. The start waits for every live
        run of the job, which `JobState.live` names.
    retry_of: the run that it repeats; empty: none.
    """

    run_id: RunId
    origin: Origin
    nominal: Instant
    due: Instant
    version: int
    overlap: Overlap
    ask: Ask
    waits_for: RunId
    buffered_at: Instant
    retry_of: RunId = ""


class Counters(NamedTuple):
    """How many nominal times ended how, since the job's creation. For people, not for rules.

    A range too long to be counted adds as far as it was counted.
    """

    fired: int = 0
    skipped: int = 0
    missed: int = 0
    dropped: int = 0
    excluded: int = 0


NO_COUNTERS: Final = Counters()


class JobState(NamedTuple):
    """Everything that changes about a job.

    One record, rewritten by every fire, edit, pause and resume, so that comparing its revision
    compares everything that a decision rested on.

    cursor: every nominal time up to here is decided or buffered, none after it. It only rises.
    armed: the first undecided nominal time; None: never again.
    rules: which version rules which nominal times after the cursor, ascending.
    live: runs that may be in flight, oldest first. Who has ended stays named until the next
        change, and does no harm.
    buffered: in the order in which they will start.
    paused_at: since when no start is made; None: not paused.
    resumed: a nominal time that a resume with `now` starts however old it is.
    """

    cursor: Instant
    armed: Instant | None
    rules: tuple[Rule, ...]
    live: tuple[Handle, ...] = ()
    buffered: tuple[Buffered, ...] = ()
    counters: Counters = NO_COUNTERS
    paused_at: Instant | None = None
    resumed: Instant | None = None


class NewRun(NamedTuple):
    """The decision FIRED: a run to be made, with the handle under which it will live.

    nominal: for a manual run, the second of the request or what the repeated run had.
    due: nominal time plus jitter; of a manual run when it was asked for.
    retry_of: the run that it repeats; empty: none.
    """

    handle: Handle
    origin: Origin
    nominal: Instant
    due: Instant
    version: int
    reason: Reason
    retry_of: RunId = ""

    @property
    def run_id(self) -> RunId:
        """Returns the run's id."""
        return self.handle.run_id


class DecisionRange(NamedTuple):
    """Why the nominal times from `first` to `last`, both included, were not fired.

    Ranges of one job never overlap and never contain a nominal time that was fired or buffered.
    A range that is not EXCLUDED may contain times that a calendar takes away; they count as
    excluded when somebody asks, and not in `times`.

    times: how many nominal times; with `counted_all` false, at least that many.
    blocked_by: the run that was in the way; None where none was.
    run_id: of the start that this was, where it had waited in the buffer; else None.
    origin: SCHEDULE, or what asked for a buffered start that is no nominal time of the schedule.
    """

    decision: Decision
    reason: Reason
    first: Instant
    last: Instant
    times: int
    counted_all: bool
    version: int
    decided_at: Instant
    blocked_by: RunId | None = None
    run_id: RunId | None = None
    origin: Origin = Origin.SCHEDULE


class Verdict(NamedTuple):
    """What one look at a job concludes: everything that belongs into one commit.

    The commit compares the revision of `state/` and, for the leader, its lease; that the handle
    of every new run is absent; and that every handle in `requires` exists. If it is refused,
    nothing of it has happened: read again, decide again.

    state: the new `state/`.
    runs: handles to create.
    ranges: to write to `decisions/`.
    buffered, unbuffered: to write to and delete from `buffered/`.
    requires: runs whose being live the decisions rest on; never one that this commit creates.
    asks: cancel and terminate requests to send after the commit; repeated by every later look
        until the start that asks has left the buffer, so that a lost one does no harm.
    not_before: the commit is refused before this mesh time; None where it may come at any time.
    next_due: when to look again, for the timer; None: only when something else happens. Not
        later than `now` where there was more to decide than fits one commit.
    changed: false where there is nothing to commit.
    """

    state: JobState
    runs: tuple[NewRun, ...]
    ranges: tuple[DecisionRange, ...]
    buffered: tuple[Buffered, ...]
    unbuffered: tuple[Buffered, ...]
    requires: tuple[Handle, ...]
    asks: tuple[tuple[Handle, Ask], ...]
    not_before: Instant | None
    next_due: Instant | None
    changed: bool

    @property
    def is_one_start(self) -> bool:
        """Tells whether it is one run that rests on nothing, and nothing else."""
        _, runs, ranges, buffered, unbuffered, requires, asks, _, _, _ = self
        return len(runs) == 1 and not (ranges or buffered or unbuffered or requires or asks)


class Admission(NamedTuple):
    """What the gate said to one start: FIRED, BUFFERED, SKIPPED or DROPPED, and why."""

    run_id: RunId
    decision: Decision
    reason: Reason
    blocked_by: RunId | None = None


class Change(NamedTuple):
    """What a create, edit, pause or resume writes, in one commit that compares `state/`.

    ranges: to write to `decisions/`.
    next_due: for the timer; None: no timer.
    not_after: the commit is refused after this mesh time, because `now` would be stale.
    changed: false where it was so already and nothing is to be written.
    """

    state: JobState
    ranges: tuple[DecisionRange, ...]
    next_due: Instant | None
    not_after: Instant
    changed: bool = True


CHANGE_SLACK: Final[Duration] = 1_000_000_000
"""How long a change may take to its commit: it was computed for one `now`."""
