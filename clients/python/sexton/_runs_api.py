"""`client.runs`: follow runs, and end them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, TypeAlias

from sexton import _messages as messages
from sexton import errors
from sexton._calls import Calls
from sexton._spec_messages import OVERLAPS
from sexton._values import job_name, namespace_name, run_name, text, timestamp
from sexton._watching import RunChanges
from sexton._wire import Call
from sexton.jobs import Job, Overlap, Triggered
from sexton.runs import Run, RunState
from sexton.v1 import scheduler_pb2, scheduler_pb2_grpc

RunRef: TypeAlias = str | Run
"""`JOB/RUN` (in the client's namespace), `NAMESPACE/JOB/RUN`, or a run that was read."""

_PAGE: Final = 500


class AsyncRuns:
    """The calls about runs. The examples are of the blocking client.

    Every call has a deadline (`timeout_s`, else the client's) and raises `sexton.errors`.
    """

    def __init__(self, calls: Calls, namespace: str) -> None:
        self._calls = calls
        self._namespace = namespace

    async def get(self, run: RunRef, *, timeout_s: float | None = None) -> Run:
        """Reads a run.

        >>> run = client.jobs.trigger("nightly").run
        >>> client.runs.get(run).state
        <RunState.WAITING: 'waiting'>

        Raises:
            NotFound: there is none, or its history is gone.
        """
        request = scheduler_pb2.GetRunRequest(name=self._name(run))
        return messages.run_of((await self._call("GetRun", request, timeout_s)).run)

    async def list(
        self,
        job: str | Job | None = None,
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
        states: Collection[RunState] = (),
        after: datetime | None = None,
        before: datetime | None = None,
        full: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Run]:
        """Yields live runs, then ended ones, newest first; page by page as they are asked for.

        >>> [run.job for run in client.runs.list("nightly", states=[RunState.SUCCEEDED])]
        ['nightly']

        Args:
            job: only this job's.
            namespace: without a job: all runs of this namespace; None: the client's.
            all_namespaces: those of every namespace instead.
            states: only runs in these.
            after: only runs that ended, or are due, at or after this.
            before: only runs that ended, or are due, before this.
            full: with results, details and output, which are left out otherwise.
            timeout_s: of each page.
        """
        request = scheduler_pb2.ListRunsRequest(
            parent=self._parent(job, namespace, all_namespaces=all_namespaces),
            page_size=_PAGE,
            states=[messages.RUN_STATES.message(state) for state in states],
            after_time=None if after is None else timestamp("after", after),
            before_time=None if before is None else timestamp("before", before),
            view=scheduler_pb2.VIEW_FULL if full else scheduler_pb2.VIEW_BASIC,
        )
        while True:
            page = await self._call("ListRuns", request, timeout_s)
            for run in page.runs:
                yield messages.run_of(run)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def cancel(self, run: RunRef, *, reason: str = "", timeout_s: float | None = None) -> Run:
        """Asks a run to end: a waiting one at once, a running one when its worker has ended it.

        >>> client.runs.cancel(client.jobs.trigger("nightly").run).state
        <RunState.CANCELLED: 'cancelled'>

        One that has ended stays as it is, and is returned so.

        Raises:
            NotFound: there is none.
        """
        request = scheduler_pb2.CancelRunRequest(
            name=self._name(run), reason=text("reason", reason)
        )
        return messages.run_of((await self._call("CancelRun", request, timeout_s)).run)

    async def terminate(
        self, run: RunRef, *, reason: str = "", timeout_s: float | None = None
    ) -> Run:
        """Has a run killed.

        >>> client.runs.terminate(client.jobs.trigger("nightly").run).ended
        True

        One that has ended stays as it is, and is returned so.

        Raises:
            NotFound: there is none.
        """
        request = scheduler_pb2.TerminateRunRequest(
            name=self._name(run), reason=text("reason", reason)
        )
        return messages.run_of((await self._call("TerminateRun", request, timeout_s)).run)

    async def retry(
        self,
        run: RunRef,
        *,
        request_id: str | None = None,
        overlap: Overlap | None = None,
        timeout_s: float | None = None,
    ) -> Triggered:
        """Runs an ended run again: a new run, with the job's current definition, through the gate.

        >>> again = client.runs.retry("nightly/t20261129T020000Z-0a1b2c3d").run
        >>> again.retry_of
        'default/nightly/t20261129T020000Z-0a1b2c3d'

        Args:
            run: it has ended.
            request_id: unique per intention: the new run's id is made of it. None: the client makes
                one.
            overlap: overrides the job's overlap policy for this start.
            timeout_s: of the call, repetitions included.

        Raises:
            IllegalState: it is live.
        """
        request = scheduler_pb2.RetryRunRequest(
            name=self._name(run), request_id=self._calls.request_id(request_id)
        )
        if overlap is not None:
            request.overlap = OVERLAPS.message(overlap)
        answer = await self._call("RetryRun", request, timeout_s)
        return Triggered(
            run=messages.run_of(answer.run) if answer.HasField("run") else None,
            decision=answer.decision,
            reason=answer.reason,
        )

    async def wait(self, run: RunRef, *, timeout_s: float | None = None) -> Run:
        """Waits until a run has ended; however it ended. None: without end.

        >>> client.runs.wait("nightly/t20261129T020000Z-0a1b2c3d", timeout_s=60).result
        {'files': 3}

        Raises:
            DeadlineExceeded: it has not ended in time.
            NotFound: there is none.
        """
        following = self._follow(self._name(run), timeout_s, ended_only=True)
        async with aclosing(following) as changes:
            async for change in changes:
                if change.ended:
                    return change
        shown = run if isinstance(run, str) else run.full_name
        raise errors.DeadlineExceeded(f"run {shown} has not ended within {timeout_s:g} s")

    async def watch(
        self,
        run: RunRef | None = None,
        *,
        job: str | Job | None = None,
        namespace: str | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Run]:
        """Yields a run, or those in flight of a job or namespace, and then each change.

        Opens the stream anew when it breaks. Ends when the one run has ended, or the time is up;
        else never. Between two changes that are seen there may have been more.

        >>> for run in client.runs.watch("nightly/t20261129T020000Z-0a1b2c3d"):
        ...     print(run.state)
        succeeded
        """
        name = self._name(run) if run is not None else self._parent(job, namespace)
        async with aclosing(self._follow(name, timeout_s)) as changes:
            async for change in changes:
                yield change
                if run is not None and change.ended:
                    return

    def _follow(
        self, name: str, timeout_s: float | None, *, ended_only: bool = False
    ) -> AsyncGenerator[Run, None]:
        changes = RunChanges(self._calls, name, self.get, ended_only=ended_only)
        return changes.follow(timeout_s)

    def _name(self, run: RunRef) -> str:
        return run_name(run.full_name if isinstance(run, Run) else run, self._namespace)

    def _parent(
        self, job: str | Job | None, namespace: str | None, *, all_namespaces: bool = False
    ) -> str:
        chosen = namespace or self._namespace
        if job is not None:
            return job_name(job.full_name if isinstance(job, Job) else job, chosen)
        return "" if all_namespaces else namespace_name(chosen)

    async def _call(self, method: str, request: Any, timeout_s: float | None) -> Any:
        call = Call(scheduler_pb2_grpc.RunServiceStub, method, request)
        return await self._calls.unary(call, idempotent=True, timeout_s=timeout_s)
