"""Runs as values: one execution of a job, and its attempts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any


class RunState(StrEnum):
    """Where a run stands. States in -ING move on; the others are final."""

    WAITING = "waiting"
    """In its queue's line for its first attempt, or given back."""
    RETRYING = "retrying"
    """In line again after a failed attempt, until its backoff is over."""
    RUNNING = "running"
    """Assigned to a worker."""
    CANCELLING = "cancelling"
    """Running, and asked to end."""
    TERMINATING = "terminating"
    """Running, and to be killed."""
    SUCCEEDED = "succeeded"
    """An attempt succeeded."""
    FAILED = "failed"
    """Its attempts or deliveries are used up, or the failure is not to be retried."""
    TIMED_OUT = "timed_out"
    """The last attempt ran into its timeout."""
    CANCELLED = "cancelled"
    """Ended at a person's or policy's request."""
    TERMINATED = "terminated"
    """Killed at a person's or policy's request."""
    EXPIRED = "expired"
    """It had not started within `start_within`."""
    LOST = "lost"
    """Its worker was lost and delivery is at most once: the effect is unknown."""

    @property
    def ended(self) -> bool:
        """Whether this state is final."""
        return not self.value.endswith("ing")


class Origin(StrEnum):
    """What asked for a run."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    BACKFILL = "backfill"


class AttemptState(StrEnum):
    """How an attempt ended, or that it has not."""

    ASSIGNED = "assigned"
    """The worker has not said that it began."""
    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"
    LOST = "lost"
    """Its session ended without an answer."""
    RETURNED = "returned"
    """The worker gave it back unbegun."""


class CancelMode(StrEnum):
    """How a run is to be ended."""

    CANCEL = "cancel"
    """Ask the task to end; kill it after its grace."""
    TERMINATE = "terminate"
    """Kill it now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunError:
    """Why something did not succeed."""

    kind: str
    """An exception's type, `exit 3`, `signal 9`, `timeout`, `session lost`, ..."""
    message: str
    detail: str = field(default="", repr=False)
    """A traceback or the last of standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest:
    """That a run's end has been requested."""

    mode: CancelMode
    reason: str
    request_time: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One delivery of a run to one worker."""

    number: int
    """From 1."""
    token: int
    """Its fencing token."""
    session: str
    worker: str
    """The worker's name for people."""
    state: AttemptState
    assign_time: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    execution: timedelta | None
    """How long it executed, measured by the worker."""
    error: RunError | None
    output_tail: str = field(repr=False)
    """Last part of its output, at most 16 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a running task says about itself."""

    fraction: float | None
    """0 to 1; None: unknown."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution of a job."""

    namespace: str
    job: str
    id: str
    """A pure function of what asked for the run."""
    job_uid: str
    state: RunState
    origin: Origin
    nominal_time: datetime | None
    """The instant that the schedule asked for; of a manual run the second of the request."""
    due_time: datetime | None
    """When it was to run: nominal time and jitter."""
    create_time: datetime | None
    end_time: datetime | None
    job_version: int
    queue: str
    priority: int
    failures: int
    """Failed attempts so far."""
    attempts: tuple[Attempt, ...]
    """Oldest first; of many, the first and the newest 20."""
    error: RunError | None
    """Why it failed, was cancelled, expired or lost."""
    cancel_request: CancelRequest | None
    not_before_time: datetime | None
    """Not assigned before this time (retry, delay)."""
    retry_of: str
    """The run that this one repeats, `NAMESPACE/JOB/RUN`; empty: none."""
    traceparent: str = field(repr=False)
    result_json: str = field(repr=False)
    """What the task returned, as JSON; empty: nothing yet, or nothing to say."""
    progress: Progress | None = None
    """What the task last said about itself, while it runs; only where one run was read."""

    @property
    def full_name(self) -> str:
        """Gives `NAMESPACE/JOB/RUN`."""
        return f"{self.namespace}/{self.job}/{self.id}"

    @property
    def ended(self) -> bool:
        """Whether it has ended, for ever."""
        return self.state.ended

    @property
    def result(self) -> Any:
        """Gives what the task returned; None where it returned nothing."""
        return json.loads(self.result_json) if self.result_json else None
