"""`client.jobs`, second part: what schedules ask for, what became of it, and running it again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from sexton import _operating_messages as messages
from sexton import _values
from sexton._calls import Calls
from sexton._spec_messages import OVERLAPS, spec_message
from sexton._values import job_name, namespace_name, timestamp
from sexton._wire import Call
from sexton.backfills import Backfill, BackfillOrder, BackfillPlan
from sexton.errors import InvalidArgument
from sexton.jobs import Job, JobSpec, Overlap
from sexton.ledger import JobVersion, LedgerEntry, Load, Preview
from sexton.v1 import backfill_pb2, backfill_pb2_grpc, job_pb2, scheduler_pb2, scheduler_pb2_grpc

JobRef: TypeAlias = str | Job
"""`JOB` (in the client's namespace), `NAMESPACE/JOB`, or a job that was read."""

SpecLike: TypeAlias = JobSpec | job_pb2.JobSpec
"""A definition, or its message as it is."""

_PAGE = 500


class AsyncJobQuestions:
    """The calls about a job's past and future; part of `AsyncJobs`."""

    def __init__(self, calls: Calls, namespace: str) -> None:
        self._calls = calls
        self._namespace = namespace

    async def preview(
        self,
        job: JobRef | JobSpec | job_pb2.JobSpec,
        spec: SpecLike | None = None,
        *,
        after: datetime | None = None,
        until: datetime | None = None,
        count: int = 20,
        timeout_s: float | None = None,
    ) -> Preview:
        """Computes the next nominal times, by the code that fires.

        >>> shown = client.jobs.preview("nightly", count=2)
        >>> [each.local_time for each in shown.times]
        ['2026-11-30T03:00:00+01:00', '2026-12-01T03:00:00+01:00']
        >>> spec = JobSpec(task=ShellTask("./backup"), schedules=(Every(timedelta(hours=6)),))
        >>> len(client.jobs.preview(spec, count=3).times)
        3

        Args:
            job: a job, or a definition that is not applied.
            spec: with a job: a definition that would replace the job's.
            after: only times later than this; None: now.
            until: none later than this.
            count: at most so many, 1 to 1,000.
            timeout_s: of the call, repetitions included.
        """
        request = scheduler_pb2.PreviewJobRequest(
            after_time=None if after is None else timestamp("after", after),
            until_time=None if until is None else timestamp("until", until),
            count=_values.count("count", count),
        )
        if isinstance(job, JobSpec | job_pb2.JobSpec):
            spec = job
        else:
            request.name = self._name(job)
        if spec is not None:
            request.spec.CopyFrom(message_of(spec))
        return messages.preview_of(await self._call("PreviewJob", request, timeout_s=timeout_s))

    async def versions(
        self, job: JobRef, *, timeout_s: float | None = None
    ) -> AsyncIterator[JobVersion]:
        """Yields the definitions that a job has had, newest first.

        >>> [each.version for each in client.jobs.versions("nightly")]
        [1]
        """
        request = scheduler_pb2.ListJobVersionsRequest(name=self._name(job), page_size=100)
        while True:
            page = await self._call("ListJobVersions", request, timeout_s=timeout_s)
            for each in page.versions:
                yield messages.version_of(each)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def decisions(
        self,
        job: JobRef,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        descending: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncIterator[LedgerEntry]:
        """Yields what became, or will become, of each nominal time: the job's ledger.

        >>> [str(each.decision) for each in client.jobs.decisions("nightly")]
        ['fired']

        Args:
            job: the job.
            start: from here on; None: since the job's creation.
            end: up to here; None: now.
            descending: newest first.
            timeout_s: of each page.
        """
        request = scheduler_pb2.ListDecisionsRequest(
            name=self._name(job),
            start_time=None if start is None else timestamp("start", start),
            end_time=None if end is None else timestamp("end", end),
            descending=descending,
            page_size=_PAGE,
        )
        while True:
            page = await self._call("ListDecisions", request, timeout_s=timeout_s)
            for each in page.entries:
                yield messages.entry_of(each)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def load(
        self,
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
        start: datetime | None = None,
        end: datetime | None = None,
        interval: timedelta = timedelta(minutes=1),
        timeout_s: float | None = None,
    ) -> Load:
        """Counts the nominal times of all active jobs to come, by interval.

        >>> client.jobs.load(interval=timedelta(hours=1)).total
        1

        Args:
            namespace: None: the client's.
            all_namespaces: those of every namespace instead.
            start: from here on; None: now.
            end: up to here, exclusive, at most 31 days later; None: 24 hours later.
            interval: whole seconds, up to a day; at most 50,000 of them.
            timeout_s: of the call, repetitions included.

        Raises:
            InvalidArgument: the range, or the interval, is none of these.
        """
        parent = "" if all_namespaces else namespace_name(namespace or self._namespace)
        second = timedelta(seconds=1)
        if not isinstance(interval, timedelta) or interval < second or interval % second:
            raise InvalidArgument("interval", str(interval), "a timedelta of whole seconds")
        request = scheduler_pb2.ForecastLoadRequest(
            parent=parent,
            start_time=None if start is None else timestamp("start", start),
            end_time=None if end is None else timestamp("end", end),
            interval_s=interval // second,
        )
        return messages.load_of(await self._call("ForecastLoad", request, timeout_s=timeout_s))

    async def backfill(
        self,
        job: JobRef,
        start: datetime,
        end: datetime,
        *,
        order: BackfillOrder = BackfillOrder.OLDEST_FIRST,
        overlap: Overlap | None = None,
        skip_succeeded: bool = False,
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Backfill:
        """Runs the nominal times of a range, whatever was decided about them before.

        >>> week = datetime(2026, 11, 22, tzinfo=UTC), datetime(2026, 11, 28, tzinfo=UTC)
        >>> client.jobs.backfill("nightly", *week, skip_succeeded=True).total
        6

        Args:
            job: the job; its current definition runs.
            start: first nominal time, inclusive.
            end: last nominal time, inclusive; not later than now.
            order: of the starts.
            overlap: of its starts; None: one run after another, each when none of the job is live.
            skip_succeeded: leaves out what has a run of the schedule that succeeded.
            request_id: unique per intention; None: the client makes one.
            timeout_s: of the call, repetitions included.
        """
        request = self._backfill(job, start, end, order, overlap, skip=skip_succeeded)
        request.request_id = self._calls.request_id(request_id)
        answer = await self._backfill_call(request, timeout_s)
        return messages.backfill_of(answer.backfill)

    async def plan_backfill(
        self,
        job: JobRef,
        start: datetime,
        end: datetime,
        *,
        order: BackfillOrder = BackfillOrder.OLDEST_FIRST,
        overlap: Overlap | None = None,
        skip_succeeded: bool = False,
        timeout_s: float | None = None,
    ) -> BackfillPlan:
        """Tells exactly which nominal times a backfill would run, and writes nothing.

        >>> week = datetime(2026, 11, 22, tzinfo=UTC), datetime(2026, 11, 28, tzinfo=UTC)
        >>> len(client.jobs.plan_backfill("nightly", *week).times)
        6
        """
        request = self._backfill(job, start, end, order, overlap, skip=skip_succeeded)
        request.request_id, request.validate_only = self._calls.request_id(None), True
        answer = await self._backfill_call(request, timeout_s)
        return BackfillPlan(
            times=tuple(time.ToDatetime(UTC) for time in answer.times),
            backfill=messages.backfill_of(answer.backfill),
        )

    def _backfill(
        self,
        job: JobRef,
        start: datetime,
        end: datetime,
        order: BackfillOrder,
        overlap: Overlap | None,
        *,
        skip: bool,
    ) -> backfill_pb2.CreateBackfillRequest:
        request = backfill_pb2.CreateBackfillRequest(
            parent=self._name(job),
            start_time=timestamp("start", start),
            end_time=timestamp("end", end),
            order=messages.BACKFILL_ORDERS.message(order),
            skip_succeeded=skip,
        )
        if overlap is not None:
            request.overlap = OVERLAPS.message(overlap)
        return request

    async def _backfill_call(
        self, request: backfill_pb2.CreateBackfillRequest, timeout_s: float | None
    ) -> Any:
        call = Call(backfill_pb2_grpc.BackfillServiceStub, "CreateBackfill", request)
        return await self._calls.unary(call, idempotent=True, timeout_s=timeout_s)

    def _name(self, job: JobRef) -> str:
        return job_name(job.full_name if isinstance(job, Job) else job, self._namespace)

    async def _call(
        self, method: str, request: Any, *, timeout_s: float | None, idempotent: bool = True
    ) -> Any:
        call = Call(scheduler_pb2_grpc.JobServiceStub, method, request)
        return await self._calls.unary(call, idempotent=idempotent, timeout_s=timeout_s)


def message_of(spec: SpecLike) -> job_pb2.JobSpec:
    """Gives a definition's message."""
    return spec if isinstance(spec, job_pb2.JobSpec) else spec_message(spec)
