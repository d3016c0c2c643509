"""Sexton's Python SDK: define jobs, follow their runs, and write the tasks that they run.

>>> import sexton
>>> spec = sexton.JobSpec(
...     task=sexton.ShellTask("pg_dump shop | gzip > shop.sql.gz"),
...     schedules=(sexton.Cron("0 3 * * *", timezone="Europe/Berlin"),),
... )
>>> with sexton.Client() as client:
...     client.jobs.create("dump-shop", spec).full_name
'default/dump-shop'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sexton.backfills import Backfill, BackfillOrder, BackfillPlan, BackfillState
from sexton.context import Context, current_context
from sexton.dead_letters import DeadLetter, Requeued
from sexton.errors import (
    AlreadyExists,
    Conflict,
    DeadlineExceeded,
    IllegalState,
    InvalidArgument,
    NotFound,
    OutcomeUnknown,
    PermissionDenied,
    Refused,
    ResourceExhausted,
    SextonError,
    Unauthenticated,
    Unavailable,
)
from sexton.jobs import (
    Applied,
    CatchUp,
    CatchUpPolicy,
    Change,
    Delivery,
    Explanation,
    FromWorker,
    HttpTask,
    Job,
    JobOrder,
    JobSpec,
    Overlap,
    PythonTask,
    ResumeMode,
    Retention,
    Retry,
    ShellTask,
    Triggered,
)
from sexton.ledger import (
    Decision,
    JobVersion,
    LedgerEntry,
    Load,
    LoadInterval,
    Preview,
    PreviewedTime,
)
from sexton.mesh import Lease, Member, Mesh, Queue, Role, StoreStatus, Worker
from sexton.runs import Attempt, AttemptState, Progress, Run, RunError, RunState
from sexton.schedules import (
    At,
    Calendar,
    CalendarInterval,
    CalendarUnit,
    Cron,
    DayRule,
    DstRule,
    Every,
    RRule,
    Schedule,
    ShortMonth,
)
from sexton.task import Failure, Isolation, task
from sexton.tls import Tls

if TYPE_CHECKING:
    from sexton.client import AsyncClient as AsyncClient
    from sexton.client import Client as Client

__all__ = [
    "AlreadyExists",
    "Applied",
    "AsyncClient",
    "At",
    "Attempt",
    "AttemptState",
    "Backfill",
    "BackfillOrder",
    "BackfillPlan",
    "BackfillState",
    "Calendar",
    "CalendarInterval",
    "CalendarUnit",
    "CatchUp",
    "CatchUpPolicy",
    "Change",
    "Client",
    "Conflict",
    "Context",
    "Cron",
    "DayRule",
    "DeadLetter",
    "DeadlineExceeded",
    "Decision",
    "Delivery",
    "DstRule",
    "Every",
    "Explanation",
    "Failure",
    "FromWorker",
    "HttpTask",
    "IllegalState",
    "InvalidArgument",
    "Isolation",
    "Job",
    "JobOrder",
    "JobSpec",
    "JobVersion",
    "Lease",
    "LedgerEntry",
    "Load",
    "LoadInterval",
    "Member",
    "Mesh",
    "NotFound",
    "OutcomeUnknown",
    "Overlap",
    "PermissionDenied",
    "Preview",
    "PreviewedTime",
    "Progress",
    "PythonTask",
    "Queue",
    "RRule",
    "Refused",
    "Requeued",
    "ResourceExhausted",
    "ResumeMode",
    "Retention",
    "Retry",
    "Role",
    "Run",
    "RunError",
    "RunState",
    "Schedule",
    "SextonError",
    "ShellTask",
    "ShortMonth",
    "StoreStatus",
    "Tls",
    "Triggered",
    "Unauthenticated",
    "Unavailable",
    "Worker",
    "current_context",
    "task",
]


def __getattr__(name: str) -> Any:
    # The clients bring gRPC with them, which a module that only defines tasks does not need.
    if name in {"AsyncClient", "Client"}:
        from sexton import client  # noqa: PLC0415

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
