"""A job as the policies see it: who it is, when it is due, and what its policies are."""

from dataclasses import dataclass, field
from typing import Final

from sexton_core.checks import check_duration, check_range
from sexton_core.errors import PolicyError
from sexton_core.ids import check_name, check_uid
from sexton_core.instants import (
    DAY,
    HOUR,
    MAX_DURATION,
    SECOND,
    Duration,
    Instant,
)
from sexton_core.runs.policy import RunPolicy
from sexton_core.schedule import Schedule
from sexton_core.words import CatchUpPolicy, Overlap

MAX_LIVE: Final = 1_000
"""Live runs of one job under any policy: `state/` names them all and has to stay small."""

MAX_BUFFER: Final = 1_000
MAX_CAUGHT_UP: Final = 1_000
"""The largest `catch_up.max`: finding where the newest that many begin is a walk."""

MAX_LATE_AFTER: Final = HOUR
MAX_DEFAULT_WINDOW: Final = DAY
MAX_RETAINED: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """What becomes of nominal times that nobody decided in time.

    One model for crash, sleep, overload and resume. What is decided within `late_after_ns` of its
    due time is late, not missed, and starts under every policy.

    Raises:
        PolicyError: a value is outside its range.

    """

    policy: CatchUpPolicy = CatchUpPolicy.LATEST
    window_ns: Duration | None = None
    """How old a start may be. None: the time to the following nominal time, at least
    `late_after_ns`, at most 24 hours; for a start in the buffer, 24 hours."""
    max_starts: int = 100
    """The newest that many under `all`; from 1 to `MAX_CAUGHT_UP`."""
    late_after_ns: Duration = 15 * SECOND
    """From one second to an hour."""

    def __post_init__(self) -> None:
        check_duration("catch_up.late_after", self.late_after_ns, SECOND, MAX_LATE_AFTER)
        check_range("catch_up.max", self.max_starts, 1, MAX_CAUGHT_UP)
        if self.window_ns is not None:
            check_duration("catch_up.window", self.window_ns, self.late_after_ns, MAX_DURATION)

    def window_of(self, nominal: Instant, following: Instant | None) -> Duration:
        """Returns how old the start of a nominal time may be after an outage."""
        if self.window_ns is not None:
            return self.window_ns
        if following is None:
            return MAX_DEFAULT_WINDOW
        return min(max(following - nominal, self.late_after_ns), MAX_DEFAULT_WINDOW)

    @property
    def buffer_window_ns(self) -> Duration:
        """Returns how old a start may be when it comes out of the buffer.

        A buffered start was told to wait, behind a run that may well take longer than a period:
        without a declared window it has the longest default.
        """
        return MAX_DEFAULT_WINDOW if self.window_ns is None else self.window_ns

    def warnings(self) -> tuple[str, ...]:
        """Returns what is allowed and probably not meant."""
        wide = self.policy in (CatchUpPolicy.ALL, CatchUpPolicy.EARLIEST)
        if wide and self.window_ns is None:
            return (
                (
                    f"catch_up: policy {self.policy} without a window reaches back no further than "
                    "one period; declare how far, such as `window: 1h`"
                ),
            )
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long ended runs and decisions are kept: until either bound is passed.

    Raises:
        PolicyError: a value is outside its range.

    """

    max_age_ns: Duration = 30 * DAY
    """From an hour to ten years."""
    max_runs: int = 1_000
    """From 1 to `MAX_RETAINED`, per job."""

    def __post_init__(self) -> None:
        check_duration("retention.max_age", self.max_age_ns, HOUR, 3_660 * DAY)
        check_range("retention.max_runs", self.max_runs, 1, MAX_RETAINED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One version of what a job says. Never changed: an edit makes the next version.

    Raises:
        PolicyError: a value is outside its range.

    """

    version: int
    """From 1, in the order of the edits."""
    schedule: Schedule | None
    """What is asked for, calendars taken away; several schedules are one union. None: the job runs
    only by trigger."""
    unfiltered: Schedule | None = None
    """The same before any calendar; None where there are no calendars."""
    jitter_ns: Duration = 0
    """A start is due up to this long after its nominal time, but before the next one."""
    overlap: Overlap = Overlap.SKIP
    max_buffered: int = 100
    """Starts that may wait under `buffer_all`; from 1 to `MAX_BUFFER`."""
    max_live: int = MAX_LIVE
    """Runs that may be live at once, which only `allow_all` can reach; from 1 to `MAX_LIVE`."""
    catch_up: CatchUp = field(default_factory=CatchUp)
    run: RunPolicy = field(default_factory=RunPolicy)
    retention: Retention = field(default_factory=Retention)

    def __post_init__(self) -> None:
        check_range("version", self.version, 1, 2**53)
        check_duration("jitter", self.jitter_ns, 0, MAX_DURATION)
        check_range("max_buffered", self.max_buffered, 1, MAX_BUFFER)
        check_range("max_live", self.max_live, 1, MAX_LIVE)
        if self.run.exclusive and self.overlap is Overlap.ALLOW_ALL:
            raise PolicyError(
                "exclusive", True, "false, because overlap is allow_all and starts runs together"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One incarnation of a job, with the versions that something undecided still needs.

    Raises:
        IdError: a name or the uid is none.
        PolicyError: there is no definition, or their versions do not rise.

    """

    namespace: str
    name: str
    uid: str
    created_at: Instant
    definitions: tuple[Definition, ...]
    """Ascending; the last one is the current one."""

    def __post_init__(self) -> None:
        check_name("namespace", self.namespace)
        check_name("job", self.name)
        check_uid(self.uid)
        if len(self.definitions) == 1:  # as of most jobs
            return
        versions = [definition.version for definition in self.definitions]
        if not versions or versions != sorted(set(versions)):
            raise PolicyError("definitions", versions, "one or more versions, rising")

    def check_overlap(self, overlap: Overlap) -> None:
        """Refuses what a request may not ask of the gate.

        Raises:
            PolicyError: the job is exclusive, and the start would run beside another.

        """
        if self.current.run.exclusive and overlap is Overlap.ALLOW_ALL:
            raise PolicyError("overlap", str(overlap), "another policy, for the job is exclusive")

    @property
    def current(self) -> Definition:
        """Returns the newest version."""
        return self.definitions[-1]

    def definition(self, version: int) -> Definition:
        """Returns a version that `JobState` or a buffered start names.

        Raises:
            LookupError: the job was loaded without it.

        """
        for definition in reversed(self.definitions):
            if definition.version == version:
                return definition
        raise LookupError(f"version {version} of job {self.namespace}/{self.name} was not loaded")
