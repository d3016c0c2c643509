"""A small world for the policies: schedules as lists, a store that compares, a checker of S8."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from sexton_core.ids import manual_run_id
from sexton_core.instants import SECOND, Instant
from sexton_core.policy import (
    Admission,
    Buffered,
    Change,
    DecisionRange,
    Definition,
    Handle,
    Job,
    NewRun,
    Rule,
    Verdict,
    create,
    decide,
    edit,
    pause,
    resume,
    trigger,
)
from sexton_core.policy.timeline import COUNT_LIMIT
from sexton_core.words import Decision, Origin, Overlap, ResumeMode

UID = "abcdefghijklmnopqrstuvwx"
OPERATIONS_LIMIT = 100
"""Of one transaction of the store."""


class Listed:
    """A schedule that is the list of its nominal times, in seconds."""

    def __init__(self, seconds: Iterable[int]) -> None:
        self.times = sorted(second * SECOND for second in seconds)

    def next_after(self, t: Instant) -> Instant | None:
        at = bisect_right(self.times, t)
        return self.times[at] if at < len(self.times) else None

    def previous_before(self, t: Instant) -> Instant | None:
        at = bisect_left(self.times, t)
        return self.times[at - 1] if at else None

    def explain(self) -> str:
        return f"at {len(self.times)} listed times"


class Every:
    """Every so many seconds since the epoch, without end; counts the questions."""

    def __init__(self, period_s: int) -> None:
        self.period = period_s * SECOND
        self.questions = 0

    def next_after(self, t: Instant) -> Instant | None:
        self.questions += 1
        return (t // self.period + 1) * self.period

    def previous_before(self, t: Instant) -> Instant | None:
        self.questions += 1
        before = (t - 1) // self.period * self.period
        return before if before >= 0 else None

    def explain(self) -> str:
        return f"every {self.period // SECOND} s"


def definition(schedule: Any, version: int = 1, **policies: Any) -> Definition:
    return Definition(version=version, schedule=schedule, **policies)


def job_of(schedule: Any, **policies: Any) -> Job:
    return Job(
        namespace="default",
        name="report",
        uid=UID,
        created_at=0,
        definitions=(definition(schedule, **policies),),
    )


def seconds(instants: Iterable[Instant]) -> list[int]:
    return [instant // SECOND for instant in instants]


@dataclass
class World:
    """One job, the runs that are really live, and everything that was recorded.

    Ended runs are known to the leader only after `notice()`: until then its view lags.
    """

    job: Job
    now_s: int = 0
    live: dict[str, Handle] = field(default_factory=dict)
    known_ended: set[str] = field(default_factory=set)
    runs: list[NewRun] = field(default_factory=list)
    ranges: list[DecisionRange] = field(default_factory=list)
    buffered: dict[str, Buffered] = field(default_factory=dict)
    history: list[tuple[Rule, Definition]] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    refused: int = 0
    next_due: Instant | None = None

    def __post_init__(self) -> None:
        change = create(self.job, self.now)
        self.state = change.state
        self.next_due = change.next_due
        self.created = self.now
        self.history = [(self.state.rules[0], self.job.current)]

    @property
    def now(self) -> Instant:
        return self.now_s * SECOND

    def sleep(self, seconds: int) -> None:
        """Nobody decides for a while."""
        self.now_s += seconds

    def tick(self, seconds: int = 1) -> None:
        """Time passes and the leader does its work each second."""
        for _ in range(seconds):
            self.now_s += 1
            self.look()

    def look(self) -> None:
        """Decides and commits until nothing is due. A refused commit means: read again."""
        for _ in range(1_000):
            verdict = decide(self.job, self.state, self.now, self.known_ended)
            if not self.commit(verdict):
                self.notice()
                continue
            if verdict.next_due is None or verdict.next_due > self.now:
                return
        raise AssertionError("deciding does not come to an end")

    def commit(self, verdict: Verdict) -> bool:
        """Does what the store does with a verdict; false where a compare fails."""
        assert not set(verdict.requires) & {run.handle for run in verdict.runs}
        if any(handle.run_id not in self.live for handle in verdict.requires):
            self.refused += 1
            return False
        writes = (verdict.ranges, verdict.buffered, verdict.unbuffered, verdict.requires)
        assert 2 * len(verdict.runs) + sum(map(len, writes)) + 6 <= OPERATIONS_LIMIT
        assert verdict.state.cursor >= self.state.cursor, "the cursor only rises"
        assert verdict.not_before is None or verdict.not_before <= self.now, "nothing is early"
        if not verdict.changed:
            assert not any((verdict.runs, verdict.ranges, verdict.buffered, verdict.unbuffered))
        self._gate_holds(verdict)
        for run in verdict.runs:
            assert run.run_id not in {earlier.run_id for earlier in self.runs}, "one run each"
            self.live[run.run_id] = run.handle
        for entry in verdict.unbuffered:
            del self.buffered[entry.run_id]
        for entry in verdict.buffered:
            self.buffered[entry.run_id] = entry
        self.runs += verdict.runs
        self.ranges += verdict.ranges
        self.state = verdict.state
        self.next_due = verdict.next_due
        self.verdicts.append(verdict)
        assert set(self.live) <= {handle.run_id for handle in self.state.live}
        assert list(self.buffered) == [entry.run_id for entry in self.state.buffered]
        return True

    def _gate_holds(self, verdict: Verdict) -> None:
        """A start of the schedule finds no live run, but under allow_all; bounds are kept."""
        others = set(self.live)
        for run in verdict.runs:
            overlap = self.job.definition(run.version).overlap
            if overlap is not Overlap.ALLOW_ALL and run.origin is Origin.SCHEDULE:
                assert not others, "a start found a live run"
            others.add(run.run_id)
        assert len(others) <= 1_000

    def end(self, index: int) -> None:
        """A live run ends. The leader does not know yet."""
        if self.live:
            names = sorted(self.live)
            del self.live[names[index % len(names)]]

    def notice(self) -> None:
        self.known_ended = {handle.run_id for handle in self.state.live} - set(self.live)

    def pause(self) -> None:
        self._change(pause(self.job, self.state, self.now))

    def resume(self, mode: ResumeMode = ResumeMode.NEXT) -> None:
        self._change(resume(self.job, self.state, self.now, mode))

    def edit(self, schedule: Any, **policies: Any) -> None:
        changed = definition(schedule, self.job.current.version + 1, **policies)
        self.job, change = edit(self.job, self.state, changed, self.now)
        self.history.append((change.state.rules[-1], changed))
        self._change(change)

    def trigger(self, request: str, overlap: Overlap | None = None) -> Admission:
        run_id = manual_run_id(self.job.uid, self.now, request)
        verdict, admission = trigger(
            self.job, self.state, self.now, run_id, overlap=overlap, ended=self.known_ended
        )
        if not self.commit(verdict):
            self.notice()
            return self.trigger(request, overlap)
        return admission

    def _change(self, change: Change) -> None:
        assert change.state.cursor >= self.state.cursor, "the cursor only rises"
        self.ranges += change.ranges
        self.state = change.state
        self.next_due = change.next_due

    # What was decided, for tests to read.

    def fired(self) -> list[int]:
        return seconds(run.nominal for run in self.runs if run.origin is Origin.SCHEDULE)

    def passed(self, decision: Decision | None = None) -> list[tuple[str, str, int, int]]:
        return [
            (str(one.decision), str(one.reason), one.first // SECOND, one.last // SECOND)
            for one in self.ranges
            if decision is None or one.decision is decision
        ]

    def nominal_times(self) -> dict[Instant, Definition]:
        """Every time that was asked for up to the cursor, calendars included, by its version.

        Read from the lists and the history of edits: nothing of the code under test.
        """
        asked: dict[Instant, Definition] = {}
        ends = [rule.after for rule, _ in self.history[1:]] + [10**30]
        for (rule, ruling), until in zip(self.history, ends, strict=True):
            schedule: Any = ruling.unfiltered or ruling.schedule
            for t in schedule.times:
                if max(rule.after, self.created) < t <= min(until, self.state.cursor):
                    asked[t] = ruling
        return asked

    def check_conservation(self) -> None:
        """S8: runs, ranges and buffered starts tile the nominal times up to the cursor."""
        asked = self.nominal_times()
        decided: dict[Instant, list[object]] = {t: [] for t in asked}
        for run in self.runs:
            if run.origin is Origin.SCHEDULE:
                decided[run.nominal].append(run)
                assert run.version == asked[run.nominal].version
        for entry in self.buffered.values():
            if entry.origin is Origin.SCHEDULE:
                decided[entry.nominal].append(entry)
        for record in self.ranges:
            if record.origin is not Origin.SCHEDULE:
                continue
            assert record.first in asked
            assert record.last in asked
            inside = [t for t in asked if record.first <= t <= record.last]
            for t in inside:
                decided[t].append(record)
                assert asked[t].version == record.version
            net = [t for t in inside if t in _net(asked[t])]
            if record.decision is Decision.EXCLUDED:
                assert not net
                net = inside
            assert record.times == min(len(net), COUNT_LIMIT)
            assert record.counted_all is (len(net) <= COUNT_LIMIT)
        wrong = {t // SECOND: found for t, found in decided.items() if len(found) != 1}
        assert not wrong, wrong
        self._check_blockers()

    def _check_blockers(self) -> None:
        made = {run.run_id for run in self.runs} | {one.run_id for one in self.ranges}
        made |= set(self.buffered)
        for record in self.ranges:
            blocked = record.reason in ("overlap", "buffer_full", "max_live", "superseded")
            assert not blocked or record.blocked_by in made


def _net(ruling: Definition) -> list[Instant]:
    schedule: Any = ruling.schedule
    return list(schedule.times)


def with_calendar(schedule: Listed, excluded: Iterable[int]) -> dict[str, Any]:
    """The fields of a definition whose calendar takes some of the seconds away."""
    kept = Listed(set(seconds(schedule.times)) - set(excluded))
    return {"schedule": kept, "unfiltered": schedule}


__all__ = ["Every", "Listed", "World", "definition", "job_of", "replace", "seconds"]
