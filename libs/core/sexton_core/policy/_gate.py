"""The gate that every start passes: overlap, buffer and bounds of one job."""

from collections.abc import Collection
from typing import Final, NamedTuple

from sexton_core.ids import RunId, is_backfill_run
from sexton_core.instants import Instant
from sexton_core.policy.job import Definition, Job
from sexton_core.policy.state import (
    Admission,
    Buffered,
    Counters,
    DecisionRange,
    Handle,
    JobState,
    NewRun,
    Rule,
    Verdict,
    make,
)
from sexton_core.words import Ask, Decision, Origin, Overlap, Reason

ACTIONS_LIMIT: Final = 24
"""Runs, ranges and buffer changes of one verdict. A transaction has at most 100 operations: two
per run, and room for what every decision writes and for `REQUIRES_LIMIT` compares."""

REQUIRES_LIMIT: Final = 32
"""Handles that one verdict compares. Only a drop for `max_live` rests on more live runs; it names
the oldest ones."""

ASKS: Final = {Overlap.CANCEL_OTHER: Ask.CANCEL, Overlap.TERMINATE_OTHER: Ask.TERMINATE}


class Candidate(NamedTuple):
    """A start before the gate."""

    run_id: RunId
    origin: Origin
    nominal: Instant
    due: Instant
    definition: Definition
    overlap: Overlap
    reason: Reason
    retry_of: RunId = ""


class Moved(NamedTuple):
    """Where the cursor has come to, and what then lies ahead; fields of `JobState`."""

    cursor: Instant
    armed: Instant | None
    rules: tuple[Rule, ...]
    resumed: Instant | None


class Gate:
    """A job's live runs and buffer while one verdict is being made.

    A run that is not known to have ended counts as live. Whoever commits compares that the ones
    in `requires` exist, so a lagging view costs a second look and never a wrong decision; that a
    run has ended needs no compare, because ended is for ever.
    """

    __slots__ = (
        "_buffered",
        "_created",
        "_job",
        "_limit",
        "_now",
        "_ranges",
        "_requires",
        "_runs",
        "_state",
        "_unbuffered",
        "buffer",
        "live",
    )

    def __init__(
        self,
        job: Job,
        state: JobState,
        now: Instant,
        ended: Collection[RunId] = (),
        limit: int = ACTIONS_LIMIT,
    ) -> None:
        self._job = job
        self._limit = limit
        self._state = state
        self._now = now
        self.live = [handle for handle in state.live if handle.run_id not in ended]
        self.buffer = list(state.buffered)
        self._runs: list[NewRun] = []
        self._ranges: list[DecisionRange] = []
        self._buffered: list[Buffered] = []
        self._unbuffered: list[Buffered] = []
        self._requires: dict[RunId, Handle] = {}
        self._created: set[RunId] = set()

    @property
    def full(self) -> bool:
        """Tells whether the verdict is as large as a commit may be."""
        return (
            len(self._runs) + len(self._ranges) + len(self._buffered) + len(self._unbuffered)
            >= self._limit
        )

    def start_buffered(self) -> None:
        """Starts what has waited, if nothing is live any more; gives up what waited too long."""
        while self.buffer and not self.live and not self.full:
            entry = self.buffer.pop(0)
            self._leave(entry)
            definition = self._job.definition(entry.version)
            if self._now - entry.due > definition.catch_up.buffer_window_ns:
                self._give_up(entry, Decision.MISSED, Reason.OUTSIDE_WINDOW, entry.waits_for)
            else:
                self._fire(
                    Candidate(
                        entry.run_id,
                        entry.origin,
                        entry.nominal,
                        entry.due,
                        definition,
                        entry.overlap,
                        Reason.WAITED,
                        entry.retry_of,
                    )
                )

    def admit(self, start: Candidate) -> Admission:
        """Lets a start through, makes it wait, or turns it away, by its overlap policy."""
        overlap = start.overlap
        if overlap is Overlap.ALLOW_ALL:
            if len(self.live) < start.definition.max_live:
                return self._fire(start)
            return self._turn_away(start, Decision.DROPPED, Reason.MAX_LIVE, rests_on_all=True)
        if not self.live:
            return self._fire(start)
        if overlap is Overlap.SKIP:
            if self._yields_to(start):
                return self._wait(start)
            return self._turn_away(start, Decision.SKIPPED, Reason.OVERLAP)
        if overlap in ASKS:
            self._supersede(start.run_id)
        else:
            limit = 1 if overlap is Overlap.BUFFER_ONE else start.definition.max_buffered
            if len(self.buffer) >= limit:
                return self._turn_away(start, Decision.DROPPED, Reason.BUFFER_FULL)
        return self._wait(start)

    def block(self) -> Handle:
        """Returns the live run that blocks, and lets the verdict rest on it."""
        blocker = self.live[0]
        self._require(blocker)
        return blocker

    def record(self, passed: DecisionRange) -> None:
        """Records nominal times that never came to the gate."""
        self._ranges.append(passed)

    def verdict(
        self, next_due: Instant | None, moved: Moved | None = None, ask: Ask = Ask.NOTHING
    ) -> Verdict:
        """Returns all of it, with the new state.

        Args:
            next_due: when to look again.
            moved: where the cursor now is; None: where it was.
            ask: what a start outside the buffer asks of the live runs.

        """
        state = self._state
        runs = self._runs
        changed = bool(moved or runs or self._ranges or self._buffered or self._unbuffered)
        if changed:
            cursor, armed, rules, resumed = moved or Moved(
                state.cursor, state.armed, state.rules, state.resumed
            )
            live, buffer = tuple(self.live), tuple(self.buffer)
            now_is = cursor, armed, rules, live, buffer, self._count(), state.paused_at, resumed
            state = make(JobState, now_is)
        concluded = (
            state,
            tuple(runs),
            tuple(self._ranges),
            tuple(self._buffered),
            tuple(self._unbuffered),
            tuple(self._requires.values()),
            self._asks(ask),
            max([run.due for run in runs]) if runs else None,
            next_due,
            changed,
        )
        return make(Verdict, concluded)

    def _asks(self, ask: Ask) -> tuple[tuple[Handle, Ask], ...]:
        """Returns the strongest thing that any waiting start asks, of every live run."""
        if ask is Ask.NOTHING and not self.buffer:
            return ()
        asked = {ask, *(entry.ask for entry in self.buffer)}
        strongest = Ask.TERMINATE if Ask.TERMINATE in asked else Ask.CANCEL
        return tuple((handle, strongest) for handle in self.live) if strongest in asked else ()

    def _fire(self, start: Candidate) -> Admission:
        run_id, origin, nominal, due, definition, _, reason, retry_of = start
        run = definition.run
        handle = make(Handle, (run_id, run.queue, run.priority, due))
        new = handle, origin, nominal, due, definition.version, reason, retry_of
        self._runs.append(make(NewRun, new))
        self._created.add(run_id)
        self.live.append(handle)
        return make(Admission, (run_id, Decision.FIRED, reason, None))

    def _wait(self, start: Candidate) -> Admission:
        blocker = self.block()
        entry = Buffered(
            run_id=start.run_id,
            origin=start.origin,
            nominal=start.nominal,
            due=start.due,
            version=start.definition.version,
            overlap=start.overlap,
            ask=ASKS.get(start.overlap, Ask.NOTHING),
            waits_for=blocker.run_id,
            buffered_at=self._now,
            retry_of=start.retry_of,
        )
        self.buffer.append(entry)
        self._buffered.append(entry)
        return Admission(start.run_id, Decision.BUFFERED, Reason.WAITS, blocker.run_id)

    def _yields_to(self, start: Candidate) -> bool:
        """Tells whether only backfills are in the way of a nominal time.

        It is not skipped for them: one waits for their live runs, and they go on after it.
        """
        return (
            start.origin is Origin.SCHEDULE
            and not self.buffer
            and all(is_backfill_run(handle.run_id) for handle in self.live)
        )

    def _supersede(self, newer: RunId) -> None:
        """Gives up the starts that wait for a cancel or terminate: the newest takes their place."""
        for entry in [entry for entry in self.buffer if entry.ask is not Ask.NOTHING]:
            self.buffer.remove(entry)
            self._leave(entry)
            self._give_up(entry, Decision.DROPPED, Reason.SUPERSEDED, newer)

    def _turn_away(
        self, start: Candidate, decision: Decision, reason: Reason, *, rests_on_all: bool = False
    ) -> Admission:
        blocker = self.block()
        if rests_on_all:
            for handle in self.live[:REQUIRES_LIMIT]:
                self._require(handle)
        if start.origin is Origin.SCHEDULE:
            self._merge(
                DecisionRange(
                    decision,
                    reason,
                    start.nominal,
                    start.nominal,
                    1,
                    True,
                    start.definition.version,
                    self._now,
                    blocker.run_id,
                )
            )
        return Admission(start.run_id, decision, reason, blocker.run_id)

    def _merge(self, record: DecisionRange) -> None:
        """Adds the decision about one nominal time to the range before it where they agree.

        Nothing fired or buffered lies between the two: within one verdict and version, a gate that
        has turned a start away for a reason does not open again.
        """
        before = self._ranges[-1] if self._ranges else None
        if (
            before is not None
            and before.run_id is None
            and before._replace(first=record.first, last=record.last, times=1) == record
        ):
            record = before._replace(last=record.last, times=before.times + 1)
            self._ranges.pop()
        self._ranges.append(record)

    def _give_up(
        self, entry: Buffered, decision: Decision, reason: Reason, blocked_by: RunId
    ) -> None:
        self._ranges.append(
            DecisionRange(
                decision,
                reason,
                entry.nominal,
                entry.nominal,
                1,
                True,
                entry.version,
                self._now,
                blocked_by,
                entry.run_id,
                entry.origin,
            )
        )

    def _leave(self, entry: Buffered) -> None:
        """Takes a start out of the buffer; one that this verdict put there was never written."""
        if entry in self._buffered:
            self._buffered.remove(entry)
        else:
            self._unbuffered.append(entry)

    def _require(self, handle: Handle) -> None:
        if handle.run_id not in self._created:
            self._requires[handle.run_id] = handle

    def _count(self) -> Counters:
        counters = self._state.counters
        fired = counters.fired
        for run in self._runs:
            fired += run.origin is Origin.SCHEDULE
        if not self._ranges:
            return make(Counters, (fired, *counters[1:]))
        added = dict.fromkeys(counters._fields, 0)
        for record in self._ranges:
            if record.origin is Origin.SCHEDULE:
                added[record.decision] += record.times
        added["fired"] = fired - counters.fired
        return Counters(*(was + added[name] for was, name in zip(counters, added, strict=True)))
