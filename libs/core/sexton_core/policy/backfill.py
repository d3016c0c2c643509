"""Backfill: runs for nominal times of a range, on request, one after the other or together.

Its runs are runs of their own: they have ids of their own, pass the job's gate like every start,
and never change what was decided about a nominal time. Progress is one record, written in the
commit that makes the runs.
"""

from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from sexton_core.errors import PolicyError
from sexton_core.ids import RunId, backfill_id, backfill_run_id
from sexton_core.instants import Instant, format_instant
from sexton_core.policy._gate import ACTIONS_LIMIT, ASKS, Candidate, Gate
from sexton_core.policy.decide import due_next
from sexton_core.policy.job import Definition, Job
from sexton_core.policy.state import Handle, JobState, Verdict
from sexton_core.schedule import Schedule, between, between_backwards
from sexton_core.words import Ask, BackfillOrder, Origin, Overlap, Reason

MAX_BACKFILL_RUNS: Final = 10_000
"""Nominal times of one backfill; a larger range is asked for in parts."""


_RESERVED: Final = 10
"""A backfill leaves one of so many of a job's live runs, and at least one, to other starts."""


class Waiting(StrEnum):
    """Why a backfill goes no further for now."""

    # It does: there is more, for the next commit.
    NOTHING = "nothing"
    # A run of the job is live, and the overlap policy says to wait.
    LIVE_RUN = "live_run"
    # The job is paused.
    PAUSED = "paused"
    # It has come to its end.
    DONE = "done"


class Backfill(NamedTuple):
    """A backfill in progress.

    first, last: the range, both included.
    version: the job's definition when it was asked for; all of its runs have it.
    overlap: with a live run, SKIP leaves the nominal time out, ALLOW_ALL starts beside it up to
        nearly `max_live`, the others wait; CANCEL_OTHER and TERMINATE_OTHER end the live run first.
    total: nominal times in the range.
    position: the nominal time handled last; None: none yet.
    started, skipped: nominal times so far. Skipped ones had succeeded already, or a run was live.
    """

    id: str
    first: Instant
    last: Instant
    version: int
    overlap: Overlap
    order: BackfillOrder
    skip_succeeded: bool
    total: int = 0
    position: Instant | None = None
    started: int = 0
    skipped: int = 0


class BackfillStep(NamedTuple):
    """What one look at a backfill concludes.

    verdict: for the commit, as any other; it also writes `backfill` and compares its revision.
    waits_for: the live run, with LIVE_RUN.
    """

    verdict: Verdict
    backfill: Backfill
    waiting: Waiting
    waits_for: Handle | None = None


def request_backfill(
    job: Job,
    now: Instant,
    request_id: str,
    *,
    first: Instant,
    last: Instant,
    overlap: Overlap = Overlap.BUFFER_ALL,
    order: BackfillOrder = BackfillOrder.OLDEST_FIRST,
    skip_succeeded: bool = True,
    total: int | None = None,
) -> Backfill:
    """Returns a backfill of the job's current definition, not begun.

    Args:
        job: with its current definition.
        now: mesh time.
        request_id: makes its id.
        first: of the range, included.
        last: of the range, included.
        overlap: as in `Backfill`.
        order: of its starts.
        skip_succeeded: whether what has succeeded is left out.
        total: how many of `range_times` there are, where somebody has counted; None: they are
            counted here.

    Raises:
        PolicyError: the range is backwards, reaches beyond `now`, or holds no nominal time or more
            than `MAX_BACKFILL_RUNS`; the job has no schedule, or `overlap` contradicts it.

    """
    times = range_times(job, now, first, last, overlap)
    if total is None:
        counted = list(times)
        check_total(counted, first, last)
        total = len(counted)
    return Backfill(
        id=backfill_id(job.uid, request_id),
        first=first,
        last=last,
        version=job.current.version,
        overlap=overlap,
        order=order,
        skip_succeeded=skip_succeeded,
        total=total,
    )


def range_times(
    job: Job, now: Instant, first: Instant, last: Instant, overlap: Overlap
) -> Iterator[Instant]:
    """Returns the nominal times of a range of the past, oldest first, one by one as asked for.

    At most one more than `MAX_BACKFILL_RUNS`; `check_total` judges how many there are.

    Raises:
        PolicyError: as `request_backfill`, number aside.

    """
    job.check_overlap(overlap)
    schedule = _schedule(job.current)
    if last < first:
        raise PolicyError(
            "last", format_instant(last), f"a time at or after {format_instant(first)}"
        )
    if last > now:
        raise PolicyError(
            "last", format_instant(last), f"a time in the past, before {format_instant(now)}"
        )
    return between(schedule, first - 1, last, MAX_BACKFILL_RUNS + 1)


def check_total(times: Sequence[Instant], first: Instant, last: Instant) -> None:
    """Refuses a range with no nominal time, or too many for one backfill.

    Raises:
        PolicyError: saying how far one backfill may reach.

    """
    if 1 <= len(times) <= MAX_BACKFILL_RUNS:
        return
    found = "no nominal time"
    if times:
        until = format_instant(times[MAX_BACKFILL_RUNS - 1])
        found = f"more than {MAX_BACKFILL_RUNS:,}: ask in parts, the first one up to {until}"
    raise PolicyError(
        "range",
        f"{format_instant(first)}..{format_instant(last)}",
        f"one with 1 to {MAX_BACKFILL_RUNS:,} nominal times; it holds {found}",
    )


def upcoming(job: Job, backfill: Backfill, limit: int = ACTIONS_LIMIT) -> tuple[Instant, ...]:
    """Returns the nominal times that come next, in the backfill's order.

    With `skip_succeeded`, these are the ones to look up before `advance`.
    """
    schedule = _schedule(job.definition(backfill.version))
    position = backfill.position
    if backfill.order is BackfillOrder.OLDEST_FIRST:
        after = backfill.first - 1 if position is None else position
        return tuple(between(schedule, after, backfill.last, limit))
    before = backfill.last + 1 if position is None else position
    return tuple(between_backwards(schedule, backfill.first, before, limit))


def advance(
    job: Job,
    state: JobState,
    backfill: Backfill,
    now: Instant,
    *,
    ended: Collection[RunId] = frozenset(),
    succeeded: Collection[Instant] = frozenset(),
    limit: int = ACTIONS_LIMIT,
) -> BackfillStep:
    """Starts as many of its runs as one commit takes and the gate lets through.

    Starts that wait in the job's buffer go first, and while they do it starts nothing. It never
    fills `max_live`: the schedule's own starts find room. A paused job holds its backfills too.

    Args:
        job: with the versions that `state` and `backfill` name.
        state: as last read; the commit compares its revision.
        backfill: as last read; likewise.
        now: mesh time.
        ended: as in `decide`.
        succeeded: which of `upcoming` have a run of the schedule that succeeded.
        limit: of starts in one verdict, for runs so large that fewer fit one commit.

    """
    gate = Gate(job, state, now, ended, limit)
    next_due = due_next(job, state)
    if state.paused_at is not None:
        return BackfillStep(gate.verdict(next_due), backfill, Waiting.PAUSED)
    gate.start_buffered()
    times = upcoming(job, backfill, limit)
    for nominal in times:
        if gate.full:
            return BackfillStep(gate.verdict(next_due), backfill, Waiting.NOTHING)
        taken = backfill.skip_succeeded and nominal in succeeded
        if not taken and not _free(gate, job, backfill):
            blocker = gate.block()
            if backfill.overlap is not Overlap.SKIP or gate.buffer:
                ask = ASKS.get(backfill.overlap, Ask.NOTHING)
                verdict = gate.verdict(next_due, ask=ask)
                return BackfillStep(verdict, backfill, Waiting.LIVE_RUN, blocker)
            taken = True
        if not taken:
            gate.admit(_candidate(job, backfill, nominal, now))
        backfill = backfill._replace(
            position=nominal,
            started=backfill.started + (not taken),
            skipped=backfill.skipped + taken,
        )
    done = len(times) < limit
    return BackfillStep(gate.verdict(next_due), backfill, Waiting.DONE if done else Waiting.NOTHING)


def _schedule(definition: Definition) -> Schedule:
    if definition.schedule is None:
        raise PolicyError("schedule", None, "a job with a schedule: only that can be backfilled")
    return definition.schedule


def _free(gate: Gate, job: Job, backfill: Backfill) -> bool:
    if gate.buffer:
        return False
    if backfill.overlap is Overlap.ALLOW_ALL:
        most = job.definition(backfill.version).max_live
        return len(gate.live) < max(1, most - max(1, most // _RESERVED))
    return not gate.live


def _candidate(job: Job, backfill: Backfill, nominal: Instant, now: Instant) -> Candidate:
    return Candidate(
        backfill_run_id(backfill.id, nominal),
        Origin.BACKFILL,
        nominal,
        now,
        job.definition(backfill.version),
        backfill.overlap,
        Reason.BACKFILL,
    )
