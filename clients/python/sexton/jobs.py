"""Jobs as values: what to run, when, under which rules, and what the mesh answers about them.

>>> from sexton import Cron, JobSpec, ShellTask
>>> spec = JobSpec(task=ShellTask("./backup"), schedules=(Cron("0 3 * * *"),))
>>> spec.overlap
<Overlap.SKIP: 'skip'>
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias

from sexton.runs import Run
from sexton.schedules import Schedule, _Shown


class Overlap(StrEnum):
    """What happens to an instant that comes due while a run of the job is live."""

    SKIP = "skip"
    """It is skipped."""
    BUFFER_ONE = "buffer_one"
    """One start waits; further ones are dropped."""
    BUFFER_ALL = "buffer_all"
    """Starts wait, up to `max_buffered`; further ones are dropped."""
    CANCEL_OTHER = "cancel_other"
    """The live run is asked to end; the new one starts when it has."""
    TERMINATE_OTHER = "terminate_other"
    """The live run is killed; the new one starts when it is dead."""
    ALLOW_ALL = "allow_all"
    """Runs may overlap, up to `max_live`."""


class CatchUpPolicy(StrEnum):
    """Which of the missed instants still run."""

    NONE = "none"
    """None."""
    LATEST = "latest"
    """The newest of all undecided ones."""
    EARLIEST = "earliest"
    """The oldest inside the window."""
    ALL = "all"
    """The newest `max` inside the window, in order."""


class Delivery(StrEnum):
    """Whether a run may be delivered again after its worker was lost."""

    AT_LEAST_ONCE = "at_least_once"
    """Until it ends, or `max_deliveries`."""
    AT_MOST_ONCE = "at_most_once"
    """At most one attempt ever starts; a lost worker ends the run as LOST."""


class JobOrder(StrEnum):
    """The order of a list of jobs."""

    NAME = "name"
    NEXT_TIME = "next_time"
    """The earliest first. Jobs without a next time are left out: those that are paused, that have
    no further time, or that only run by hand."""


class ResumeMode(StrEnum):
    """What becomes of the instants that a pause passed over."""

    NEXT = "next"
    """They are skipped."""
    NOW = "now"
    """The newest of them starts at once, the others are skipped."""
    CATCH_UP = "catch_up"
    """They are caught up, as after an outage."""


class Change(StrEnum):
    """What applying a definition did."""

    NONE = "none"
    """It was there, and the same."""
    CREATED = "created"
    UPDATED = "updated"
    PRUNED = "pruned"
    """It was deleted, for it stands in its source no more."""


@dataclass(frozen=True, slots=True)
class FromWorker:
    """A value that the worker takes from its own environment, so that no definition holds it."""

    name: str


EnvValue: TypeAlias = str | FromWorker


@dataclass(frozen=True, slots=True, repr=False)
class PythonTask(_Shown):
    """Calls a function registered with `@sexton.task`."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments, as JSON knows them; at most 64 KiB."""


@dataclass(frozen=True, slots=True, repr=False)
class ShellTask(_Shown):
    """Runs a command with `bash -o pipefail -c` (`sh -c` where there is no bash)."""

    command: str
    """At most 32 KiB."""
    env: Mapping[str, EnvValue] = field(default_factory=dict, kw_only=True)
    """Variables beside those that every run has."""
    cwd: str = field(default="", kw_only=True)
    """Working directory; empty: a scratch directory of the attempt."""


@dataclass(frozen=True, slots=True, repr=False)
class HttpTask(_Shown):
    """Makes a call."""

    url: str
    method: str = field(default="POST", kw_only=True)
    headers: Mapping[str, EnvValue] = field(default_factory=dict, kw_only=True)
    body: str = field(default="", kw_only=True)
    """`$SEXTON_...` variables of the run are replaced by value."""
    expect: tuple[int, ...] = field(default=(), kw_only=True)
    """Status codes that count as success; empty: 200 to 299."""


Task: TypeAlias = PythonTask | ShellTask | HttpTask


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CatchUp(_Shown):
    """What happens to instants that were not decided within `late_after` of their time."""

    policy: CatchUpPolicy = CatchUpPolicy.LATEST
    window: timedelta | None = None
    """How old a missed instant may be. None: the time to the following one, at most 24 h."""
    max: int = 100
    """With ALL: how many at most, 1 to 1,000."""
    late_after: timedelta = timedelta(seconds=15)
    """Up to this late an instant is simply late; 1 s to 1 h."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Retry(_Shown):
    """How failed attempts are repeated."""

    max_attempts: int | None = None
    """Failed attempts at most, 1 (no retry) to 1,000. None: 3, or 1 with AT_MOST_ONCE."""
    max_deliveries: int = 10
    """Deliveries at most, failed, lost or returned, 1 to 1,000."""
    initial_backoff: timedelta = timedelta(seconds=1)
    """Pause before the second attempt."""
    multiplier: float = 2.0
    """Growth of the pause, 1 to 100."""
    max_backoff: timedelta = timedelta(minutes=5)
    """Longest pause, up to 7 days."""
    jitter: float = 0.1
    """Part of the pause, 0 to 1, that is taken off it."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Retention(_Shown):
    """How much of a job's history is kept; what is beyond either bound goes."""

    max_runs: int = 1_000
    """Ended runs at most, 1 to 100,000."""
    max_age: timedelta = timedelta(days=30)
    """Age of an ended run at most, 1 h to 10 years."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JobSpec(_Shown):
    """A job's definition."""

    task: Task
    """What to run."""
    schedules: tuple[Schedule, ...] = ()
    """When: the union of these, at most 20. None: only by trigger or backfill."""
    queue: str = "default"
    """The queue that its runs stand in."""
    priority: int = 0
    """Strict order within a queue: higher first, -100 to 100."""
    overlap: Overlap = Overlap.SKIP
    max_buffered: int = 100
    """Buffered starts that BUFFER_ALL keeps at most, 1 to 1,000."""
    max_live: int = 1_000
    """Live runs at most, under every overlap policy, 1 to 1,000."""
    catch_up: CatchUp = field(default_factory=CatchUp)
    retry: Retry = field(default_factory=Retry)
    timeout: timedelta = timedelta(hours=1)
    """Longest time of one attempt, 1 s to 366 days."""
    deadline: timedelta | None = None
    """Longest time of a whole run, retries included; None: none."""
    start_within: timedelta | None = None
    """A run that has not started this long after its due time ends as EXPIRED; None: never."""
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    exclusive: bool = False
    """Two executions of this job never overlap, also not by redelivery."""
    retention: Retention = field(default_factory=Retention)
    labels: Mapping[str, str] = field(default_factory=dict)
    """For people and filters; at most 32, keys and values at most 63 characters."""
    description: str = ""
    """For people; at most 1,000 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it stands."""

    namespace: str
    name: str
    uid: str
    """Identity of this incarnation: deleted and created again, it has another."""
    etag: str
    """Changes with every change of definition or pause."""
    spec: JobSpec | None
    """The definition; None in lists, unless they were asked for it."""
    version: int
    """Number of the definition's version, from 1."""
    paused: bool
    pause_reason: str
    create_time: datetime | None
    update_time: datetime | None
    next_time: datetime | None
    """The next instant that the schedules ask for; None: never again, or no schedule."""
    cursor_time: datetime | None
    """Every nominal time up to here (inclusive) has been decided."""
    live_runs: tuple[str, ...]
    """Ids of the runs that have not ended."""
    warnings: tuple[str, ...]
    """What deserves a second look in this definition."""
    source: str
    """The file or tool that last applied it; empty: none was given."""
    notices: tuple[str, ...] = ()
    """What stands in the way of its runs at this moment: no worker serves its queue, allows its
    kind or knows its task; its queue is paused. Not in lists."""

    @property
    def full_name(self) -> str:
        """Gives `NAMESPACE/JOB`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of one job of an `apply`."""

    job: Job
    """As it now stands; of a dry run: as it would."""
    change: Change
    changed: tuple[str, ...]
    """Fields of the definition that changed."""
    gained: int = 0
    """Of a dry run: nominal times of the next 30 days that the change adds, up to 10,000."""
    lost: int = 0
    """Likewise: those that it takes away."""
    gained_times: tuple[datetime, ...] = ()
    """The first few of those that it adds."""
    lost_times: tuple[datetime, ...] = ()
    """The first few of those that it takes away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggered:
    """What became of a start that was asked for."""

    run: Run | None
    """The run, if one was created or there already."""
    decision: str
    """Otherwise what was decided: `skipped`, `dropped` or `buffered`."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One condition on the way from an instant to a run."""

    name: str
    passed: bool
    detail: str
    """What was compared, with the values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What became, or will become, of a job at an instant."""

    nominal_time: datetime | None
    """The nominal time that the answer is about; None: the instant is none."""
    summary: str
    """In one sentence."""
    gates: tuple[Gate, ...]
    """The gates in their order, up to the one that decided."""
    decision: str
    """`fired`, `skipped`, ...; empty: not a nominal time."""
    forecast: bool
    """Whether the decision is a forecast rather than the record."""
    previous_time: datetime | None
    """The nearest nominal time before."""
    following_time: datetime | None
    """The nearest one after."""
    run: Run | None
