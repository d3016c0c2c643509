"""What a job file would do over a stretch of time, by the very functions that the mesh uses.

Each job is followed on its own, from its creation at the beginning: `decide` is called when the
mesh would call it, every run takes as long as it is said to and succeeds, and workers are never
short. During an outage nothing is decided; what falls due then is decided at its end, as a
successor would. No clock and no I/O.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from sexton_cli.jobfile import FileJob
from sexton_core.errors import FieldError
from sexton_core.instants import MINUTE, Duration, Instant
from sexton_core.policy import DecisionRange, JobState, NewRun, Verdict, create, decide
from sexton_core.policy import Job as CoreJob
from sexton_core.schedules import ScheduleCache
from sexton_core.words import Ask, Decision, Reason

MAX_DECISIONS: Final = 200_000
"""Looks at jobs in one simulation, about ten seconds; it says where it stopped. Each job has its
part of what is left, so that a busy one does not leave those after it without any."""

_MOST_PEAKS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A time, [begin, end), in which nothing is decided."""

    begin: Instant
    end: Instant


@dataclass(slots=True, kw_only=True)
class SimulatedRun:
    """One run: why it started, when, and when it ended."""

    run_id: str
    nominal: Instant
    started: Instant
    ended: Instant
    reason: Reason
    stopped: bool = False
    """Cancelled or terminated by the job's overlap policy."""


@dataclass(slots=True, kw_only=True)
class SimulatedJob:
    """What became of one job's nominal times."""

    name: str
    runs: list[SimulatedRun] = field(default_factory=list)
    ranges: list[DecisionRange] = field(default_factory=list)
    waiting: int = 0
    """Starts still in the buffer at the end."""
    refused: str | None = None
    """Why the job can't be created at the beginning; then nothing else is filled in."""
    stopped_at: Instant | None = None
    """Where the simulation ended early because of `MAX_DECISIONS`."""

    def count(self, decision: Decision) -> int:
        """Returns how many nominal times ended so."""
        if decision is Decision.FIRED:
            return len(self.runs)
        return sum(each.times for each in self.ranges if each.decision is decision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What became of all jobs, and the fullest minutes."""

    jobs: tuple[SimulatedJob, ...]
    peaks: tuple[tuple[Instant, int], ...]
    """(minute, runs started in it), fullest first."""


def simulate(
    jobs: Sequence[FileJob],
    begin: Instant,
    end: Instant,
    *,
    outages: Sequence[Outage] = (),
    run_times: Mapping[str, Duration] | None = None,
) -> Simulation:
    """Follows jobs from their creation at `begin` to `end`.

    Args:
        jobs: of a file; those without a schedule are left out.
        begin: when they are created; their first nominal time is later.
        end: the last instant looked at.
        outages: when nothing is decided; they may overlap.
        run_times: by name or full name, how long each run takes; else a run ends as it starts.

    """
    merged = _merge(outages)
    cache = ScheduleCache()
    left = MAX_DECISIONS
    found: list[SimulatedJob] = []
    times = run_times or {}
    scheduled = [(job, job.spec) for job in jobs if job.spec is not None]
    for to_come, (job, spec) in zip(range(len(scheduled), 0, -1), scheduled, strict=True):
        run_time_ns = times.get(job.name, times.get(job.full_name, 0))
        schedule = cache.build(spec, job.identity(begin))
        one = _Follower(job.job(schedule, begin), job.full_name, run_time_ns, merged)
        left -= one.follow(begin, end, left // to_come)
        found.append(one.result)
    minutes: dict[Instant, int] = {}
    for result in found:
        for run in result.runs:
            minute = run.started - run.started % MINUTE
            minutes[minute] = minutes.get(minute, 0) + 1
    peaks = sorted(minutes.items(), key=lambda item: (-item[1], item[0]))[:_MOST_PEAKS]
    return Simulation(jobs=tuple(found), peaks=tuple(peaks))


class _Follower:
    """Follows one job."""

    def __init__(
        self, job: CoreJob, name: str, run_time_ns: Duration, outages: tuple[Outage, ...]
    ) -> None:
        self._job: Final = job
        self._run_time_ns: Final = run_time_ns
        self._outages: Final = outages
        self._live: dict[str, SimulatedRun] = {}
        self._ends: list[tuple[Instant, str]] = []
        self.result: Final = SimulatedJob(name=name)

    def follow(self, begin: Instant, end: Instant, limit: int) -> int:
        """Decides until the end and returns how many looks that took."""
        try:
            change = create(self._job, begin)
        except FieldError as error:
            self.result.refused = str(error)
            return 0
        state, due = change.state, change.next_due
        now = begin
        for looks in range(limit):
            upcoming = self._upcoming(state, due)
            if upcoming is None or max(upcoming, now) > end:
                self.result.waiting = len(state.buffered)
                return looks
            now = self._after_outage(max(upcoming, now))
            if now > end:
                self.result.waiting = len(state.buffered)
                return looks
            verdict = decide(self._job, state, now, self._ended(now))
            state, due = verdict.state, verdict.next_due
            self._take(verdict, now)
        self.result.stopped_at = now
        self.result.waiting = len(state.buffered)
        return limit

    def _upcoming(self, state: JobState, due: Instant | None) -> Instant | None:
        """Returns when the mesh looks again: a nominal time, or the end of a run waited for."""
        while self._ends and self._ends[0][1] not in self._live:
            heappop(self._ends)
        if state.buffered and self._ends:
            ended = self._ends[0][0]
            return ended if due is None else min(due, ended)
        return due

    def _ended(self, now: Instant) -> frozenset[str]:
        return frozenset(run_id for run_id, run in self._live.items() if run.ended <= now)

    def _take(self, verdict: Verdict, now: Instant) -> None:
        self.result.ranges.extend(verdict.ranges)
        for handle, ask in verdict.asks:
            run = self._live.get(handle.run_id)
            if ask is not Ask.NOTHING and run is not None and run.ended > now:
                # It stops at once; the mesh would wait for its worker to say so.
                run.ended = now
                run.stopped = True
                heappush(self._ends, (now, run.run_id))
        live = {handle.run_id for handle in verdict.state.live}
        for started in verdict.runs:
            self._start(started, now)
        for run_id in [run_id for run_id in self._live if run_id not in live]:
            del self._live[run_id]

    def _start(self, started: NewRun, now: Instant) -> None:
        run = SimulatedRun(
            run_id=started.run_id,
            nominal=started.nominal,
            started=now,
            ended=now + self._run_time_ns,
            reason=started.reason,
        )
        self.result.runs.append(run)
        self._live[run.run_id] = run
        heappush(self._ends, (run.ended, run.run_id))

    def _after_outage(self, t: Instant) -> Instant:
        for outage in self._outages:
            if outage.begin <= t < outage.end:
                return outage.end
        return t


def _merge(outages: Sequence[Outage]) -> tuple[Outage, ...]:
    merged: list[Outage] = []
    for outage in sorted(outages, key=lambda each: each.begin):
        if merged and outage.begin <= merged[-1].end:
            longest = max(merged[-1].end, outage.end)
            merged[-1] = Outage(begin=merged[-1].begin, end=longest)
        else:
            merged.append(outage)
    return tuple(merged)
