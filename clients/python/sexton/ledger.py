"""What a job's schedules ask for, and what became of it, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sexton.jobs import JobSpec
from sexton.runs import Run


class Decision(StrEnum):
    """What became of a nominal time."""

    FIRED = "fired"
    """It has its run."""
    SKIPPED = "skipped"
    MISSED = "missed"
    DROPPED = "dropped"
    EXCLUDED = "excluded"
    BUFFERED = "buffered"
    """It waits for a run before it, and then becomes one of the above."""
    DUE = "due"
    """It has passed and is not decided yet."""
    FORECAST = "forecast"
    """It lies in the future."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewedTime:
    """One nominal time that a schedule asks for."""

    nominal_time: datetime
    due_time: datetime
    """When it is due: with its jitter."""
    local_time: str
    """Its wall time with offset, in the zone of the schedule that asks for it."""
    note: str
    """What the clock change did to it; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The next nominal times."""

    times: tuple[PreviewedTime, ...]
    complete: bool
    """Whether the schedules ask for nothing after these."""
    descriptions: tuple[str, ...]
    """Each schedule in one sentence."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobVersion:
    """A definition, and the nominal times that it rules."""

    version: int
    """From 1."""
    spec: JobSpec
    after_time: datetime | None
    """It rules the nominal times later than this ..."""
    until_time: datetime | None
    """... up to and including this; None: it is the current one."""
    source: str
    """The file or tool that applied it; empty: none was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """What became, or will become, of one nominal time."""

    nominal_time: datetime
    decision: Decision | None
    """None: it was decided, and the record of it is not kept any more; or the job was deleted
    before, and the reason is `deleted`."""
    reason: str
    """Why: a word of the vocabulary."""
    blocked_by: str
    """The run that was in the way, `NAMESPACE/JOB/RUN`; empty: none was."""
    run: Run | None
    """Where it fired and the run's history is kept; without results and output."""
    decide_time: datetime | None
    job_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadInterval:
    """Nominal times of one interval."""

    start_time: datetime
    count: int
    jobs: tuple[str, ...]
    """`NAMESPACE/JOB` of those with most of them, at most three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How many nominal times lie ahead."""

    intervals: tuple[LoadInterval, ...]
    """Those in which something is due, in order of time."""
    total: int
    jobs: int
    """Jobs that were counted: active ones with a schedule."""
    truncated: bool
    """Whether the count ended at its bound: the numbers are lower bounds then."""

    @property
    def fullest(self) -> tuple[LoadInterval, ...]:
        """Gives the intervals with most, fullest first."""
        return tuple(sorted(self.intervals, key=lambda each: (-each.count, each.start_time)))
