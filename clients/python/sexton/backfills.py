"""Backfills as values: ranges of nominal times that are run, whatever was decided before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sexton.jobs import Overlap


class BackfillOrder(StrEnum):
    """The order in which a backfill starts its runs."""

    OLDEST_FIRST = "oldest_first"
    NEWEST_FIRST = "newest_first"


class BackfillState(StrEnum):
    """Where a backfill stands."""

    STARTING = "starting"
    """It starts runs, or waits to."""
    DONE = "done"
    """Every nominal time of the range has its run or was left out."""
    CANCELLED = "cancelled"
    """It was cancelled, or its job deleted, before that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """A backfill as it stands."""

    namespace: str
    job: str
    id: str
    """Part of its runs' ids."""
    job_uid: str
    start_time: datetime | None
    """First nominal time (inclusive)."""
    end_time: datetime | None
    """Last nominal time (inclusive)."""
    order: BackfillOrder
    overlap: Overlap | None
    """Of its starts; None: one run after another, each when no run of the job is live."""
    skip_succeeded: bool
    """Whether nominal times whose run of the schedule has succeeded are left out."""
    job_version: int
    state: BackfillState
    total: int
    """Nominal times in the range."""
    started: int
    skipped: int
    """Left out because they had succeeded."""
    waits_for: str
    """What it waits for: a live run, `paused`; empty: nothing."""
    create_time: datetime | None
    ended_time: datetime | None
    """When it was done or cancelled."""

    @property
    def full_name(self) -> str:
        """Gives `NAMESPACE/JOB/BACKFILL`."""
        return f"{self.namespace}/{self.job}/{self.id}"

    @property
    def ended(self) -> bool:
        """Whether it starts nothing any more."""
        return self.state is not BackfillState.STARTING


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPlan:
    """What a backfill would run."""

    times: tuple[datetime, ...]
    """In the order of their starts."""
    backfill: Backfill
