"""What goes by, counted: by minute, by job, by kind of failure. In bounded memory, without a clock.

Times are seconds since the Unix epoch. A run is counted once; where a mesh is faster than it can be
followed each run that was seen stands for several (`weight`), and the numbers are estimates.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

MINUTES: Final = 60
"""Minutes that are remembered, the present one included."""
MAX_JOBS: Final = 20_000
"""Jobs of which the newest outcomes are remembered."""
OUTCOMES_PER_JOB: Final = 12
MAX_FAILURES: Final = 500
"""Kinds of failures that are told apart; the one that was seen least recently goes first."""
MAX_SEEN: Final = 50_000
"""Runs that are known to be counted."""
_RUNS_PER_FAILURE: Final = 3

_FIRST_BUCKET_S: Final = 0.001
_GROWTH: Final = 1.25
_BUCKETS: Final = 90
"""The last one begins at about five days."""

_VARIABLE: Final = re.compile(
    r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\b[0-9a-f]{12,}\b|\d+"
)
_MESSAGE_CHARACTERS: Final = 160


class Seen(NamedTuple):
    """One run that has ended."""

    job: str
    """`NAMESPACE/JOB`."""
    run: str
    """The run's id."""
    state: str
    due_s: float
    started_s: float
    """When its first attempt was assigned; 0: none was."""
    ended_s: float
    kind: str = ""
    message: str = ""
    weight: float = 1.0


class Outcome(NamedTuple):
    """How a run of a job ended, for a row of marks."""

    run: str
    state: str
    ended_s: float
    took_s: float
    late_s: float


@dataclass(slots=True)
class Minute:
    """What fell due, and what ended, in one minute."""

    number: int
    """Minutes since the epoch."""
    due: float = 0.0
    done: float = 0.0
    failed: float = 0.0
    late: list[float] = field(default_factory=lambda: [0.0] * _BUCKETS)
    """Starts by how late they were."""
    estimated: bool = False
    """Whether runs that were not seen are counted too."""


@dataclass(slots=True)
class Failure:
    """Failures that look alike."""

    alike: str
    """The same for all of them, and for no others; short enough for an address."""
    job: str
    kind: str
    message: str
    count: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    runs: deque[str] = field(default_factory=lambda: deque(maxlen=_RUNS_PER_FAILURE))


class Lateness(NamedTuple):
    """How late starts were, in seconds: upper bounds, 25 % apart. None: there were none."""

    p50: float | None
    p95: float | None
    p99: float | None
    starts: float


class Numbers:
    """Counts runs that have ended."""

    def __init__(self) -> None:
        self.counted = 0
        """Runs that were counted since the start."""
        self._minutes: OrderedDict[int, Minute] = OrderedDict()
        self._jobs: OrderedDict[str, deque[Outcome]] = OrderedDict()
        self._failures: OrderedDict[str, Failure] = OrderedDict()
        self._seen: OrderedDict[str, None] = OrderedDict()

    def add(self, seen: Seen) -> bool:
        """Counts a run; tells whether it was new."""
        name = f"{seen.job}/{seen.run}"
        if name in self._seen:
            return False
        self._seen[name] = None
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        self.counted += 1
        late_s = max(0.0, seen.started_s - seen.due_s) if seen.started_s else 0.0
        self._count(seen, late_s)
        self._remember(seen, late_s)
        if seen.state in FAILED:
            self._group(seen)
        return True

    def minutes(self, now_s: float) -> list[Minute]:
        """Gives the last hour, minute by minute; the last one is the present."""
        last = int(now_s // 60)
        return [
            self._minutes.get(number) or Minute(number)
            for number in range(last - MINUTES + 1, last + 1)
        ]

    def estimated(self, now_s: float) -> bool:
        """Tells whether some of the last hour was estimated."""
        return any(minute.estimated for minute in self.minutes(now_s))

    def lateness(self, now_s: float, minutes: int = 15) -> Lateness:
        """Gives how late starts of the last minutes were."""
        buckets = [0.0] * _BUCKETS
        for minute in self.minutes(now_s)[-minutes:]:
            buckets = [sum(pair) for pair in zip(buckets, minute.late, strict=True)]
        starts = sum(buckets)
        p50, p95, p99 = (_percentile(buckets, starts, part) for part in (0.5, 0.95, 0.99))
        return Lateness(p50, p95, p99, starts)

    def failures(self, since_s: float = 0.0) -> list[Failure]:
        """Gives the kinds of failures that were seen since then, the most frequent first."""
        found = [each for each in self._failures.values() if each.last_s >= since_s]
        return sorted(found, key=lambda each: (-each.count, -each.last_s))

    def outcomes(self, job: str) -> tuple[Outcome, ...]:
        """Gives a job's newest outcomes, oldest first."""
        return tuple(self._jobs.get(job, ()))

    def jobs_ended(self) -> Iterator[tuple[str, Outcome]]:
        """Gives each job of which an outcome is known, with its newest."""
        return ((job, outcomes[-1]) for job, outcomes in self._jobs.items() if outcomes)

    def _count(self, seen: Seen, late_s: float) -> None:
        due, done = self._minute(seen.due_s), self._minute(seen.ended_s)
        if due is not None:
            due.due += seen.weight
            if seen.started_s:
                due.late[_bucket(late_s)] += seen.weight
        if done is not None:
            done.done += seen.weight
            done.failed += seen.weight if seen.state in FAILED else 0.0
            done.estimated = done.estimated or seen.weight > 1

    def _minute(self, time_s: float) -> Minute | None:
        """Gives the minute of a time; None where it is older than what is remembered."""
        number = int(time_s // 60)
        newest = max(self._minutes, default=number)
        if number <= newest - 2 * MINUTES:
            return None
        minute = self._minutes.get(number)
        if minute is None:
            minute = self._minutes[number] = Minute(number)
            while len(self._minutes) > 2 * MINUTES:
                del self._minutes[min(self._minutes)]
        return minute

    def _remember(self, seen: Seen, late_s: float) -> None:
        outcomes = self._jobs.setdefault(seen.job, deque(maxlen=OUTCOMES_PER_JOB))
        took_s = max(0.0, seen.ended_s - (seen.started_s or seen.ended_s))
        outcome = Outcome(seen.run, seen.state, seen.ended_s, took_s, late_s)
        outcomes.append(outcome)
        if len(outcomes) > 1 and outcomes[-2].ended_s > outcome.ended_s:
            ordered = sorted(outcomes, key=lambda each: each.ended_s)
            outcomes.clear()
            outcomes.extend(ordered)
        self._jobs.move_to_end(seen.job)
        if len(self._jobs) > MAX_JOBS:
            self._jobs.popitem(last=False)

    def _group(self, seen: Seen) -> None:
        found = alike(seen.job, seen.kind, seen.message)
        failure = self._failures.get(found)
        if failure is None:
            message = seen.message[:_MESSAGE_CHARACTERS]
            failure = Failure(found, seen.job, seen.kind or seen.state, message)
            failure.first_s = seen.ended_s
            self._failures[found] = failure
        failure.count += seen.weight
        failure.first_s = min(failure.first_s, seen.ended_s)
        if seen.ended_s >= failure.last_s:
            failure.last_s = seen.ended_s
            failure.runs.appendleft(seen.run)
        self._failures.move_to_end(found)
        if len(self._failures) > MAX_FAILURES:
            self._failures.popitem(last=False)


FAILED: Final = frozenset({"failed", "timed_out", "lost", "expired"})
"""States that a person may have to look at; cancelled and terminated were asked for."""


def alike(job: str, kind: str, message: str) -> str:
    """Gives what failures that look alike have in common: numbers and ids are left out."""
    lines = message.splitlines()
    said = _VARIABLE.sub("#", lines[0] if lines else "")[:_MESSAGE_CHARACTERS]
    return hashlib.blake2b(f"{job}|{kind}|{said}".encode(), digest_size=8).hexdigest()


def percentile(values: Iterable[float], part: float) -> float | None:
    """Gives the value below or at which this part of the values lies."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else None


def _bucket(late_s: float) -> int:
    if late_s <= _FIRST_BUCKET_S:
        return 0
    return min(_BUCKETS - 1, math.ceil(math.log(late_s / _FIRST_BUCKET_S, _GROWTH)))


def _percentile(buckets: list[float], starts: float, part: float) -> float | None:
    if not starts:
        return None
    below = 0.0
    for number, count in enumerate(buckets):
        below += count
        if below >= part * starts:
            return float(_FIRST_BUCKET_S * _GROWTH**number)
    return float(_FIRST_BUCKET_S * _GROWTH ** (_BUCKETS - 1))
