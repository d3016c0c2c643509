"""What a job says about each of its runs, once the run exists."""

from dataclasses import dataclass
from typing import Final

from sexton_core.checks import check_duration, check_range
from sexton_core.errors import PolicyError
from sexton_core.ids import check_name
from sexton_core.instants import DAY, HOUR, SECOND, Duration, format_duration
from sexton_core.runs.retry import Retry
from sexton_core.words import Delivery

MAX_DELIVERIES: Final = 1_000
MAX_PRIORITY: Final = 100
LONGEST_RUN: Final = 366 * DAY
"""A run that takes longer than a year is a service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """Where a run stands in line, how long it may take, and what its failures and losses mean.

    Raises:
        PolicyError: a value is outside its range, or two of them contradict each other.
        IdError: the queue's name is none.

    """

    queue: str = "default"
    priority: int = 0
    """From -100 to 100, higher first. Strict: a 0 waits for every 1."""
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    exclusive: bool = False
    """Two executions of the job never overlap, for which a lost worker's run waits the full
    session time."""
    retry: Retry | None = None
    """None: `Retry()`, or a single attempt under `at_most_once`."""
    max_deliveries: int = 10
    """Attempts of every kind, lost and returned ones too; protects workers from poison."""
    timeout_ns: Duration = HOUR
    """Of one attempt, from its assignment, or from when it may begin. At least a second."""
    deadline_ns: Duration | None = None
    """Of the whole run, retries included, from its creation, or from when it is due where that is
    later. At least a second."""
    start_within_ns: Duration | None = None
    """The first attempt starts at most this long after the run was due. At least a second."""

    def __post_init__(self) -> None:
        check_name("queue", self.queue)
        check_range("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY)
        check_range("max_deliveries", self.max_deliveries, 1, MAX_DELIVERIES)
        for field, value in (
            ("timeout", self.timeout_ns),
            ("deadline", self.deadline_ns),
            ("start_within", self.start_within_ns),
        ):
            if value is not None:
                check_duration(field, value, SECOND, LONGEST_RUN)
        retry = self.retry
        if self.delivery is Delivery.AT_MOST_ONCE and retry and retry.max_attempts != 1:
            raise PolicyError(
                "retry.max_attempts", retry.max_attempts, "1, because delivery is at_most_once"
            )

    def warnings(self) -> tuple[str, ...]:
        """Returns what is allowed and probably not meant."""
        if self.deadline_ns is not None and self.deadline_ns < self.timeout_ns:
            deadline, timeout = format_duration(self.deadline_ns), format_duration(self.timeout_ns)
            return (
                (
                    f"deadline: the whole run ends after {deadline}, so no attempt can take the "
                    f"{timeout} of its timeout"
                ),
            )
        return ()

    @property
    def retries(self) -> Retry:
        """Returns the retry rules in force."""
        if self.retry is not None:
            return self.retry
        return _ONCE if self.delivery is Delivery.AT_MOST_ONCE else _DEFAULT


_DEFAULT = Retry()
_ONCE = Retry(max_attempts=1)
