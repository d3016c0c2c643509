"""`client.backfills`, `client.dead` and `client.mesh`: what has to be looked after."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias, TypedDict, Unpack

from sexton import _messages, errors
from sexton import _operating_messages as messages
from sexton._calls import Calls
from sexton._values import backfill_name, job_name, namespace_name, run_name, text, timestamp
from sexton._wire import Call
from sexton.backfills import Backfill
from sexton.dead_letters import DeadLetter, Requeued
from sexton.jobs import Job
from sexton.mesh import Mesh, Queue, StoreStatus, Worker
from sexton.runs import Run
from sexton.v1 import (
    backfill_pb2,
    backfill_pb2_grpc,
    dead_letter_pb2,
    dead_letter_pb2_grpc,
    scheduler_pb2,
    scheduler_pb2_grpc,
)

BackfillRef: TypeAlias = str | Backfill
"""`JOB/BACKFILL`, `NAMESPACE/JOB/BACKFILL`, or a backfill that was read."""

_PAGE: Final = 500
_LOOK_EVERY_S: Final = 1.0


class AsyncBackfills:
    """The calls about backfills; `client.jobs.backfill` starts one."""

    def __init__(self, calls: Calls, namespace: str) -> None:
        self._calls = calls
        self._namespace = namespace

    async def get(self, backfill: BackfillRef, *, timeout_s: float | None = None) -> Backfill:
        """Reads a backfill.

        >>> client.backfills.get("nightly/0a1b2c3d").state.value
        'done'
        """
        request = backfill_pb2.GetBackfillRequest(name=self._name(backfill))
        return messages.backfill_of((await self._call("GetBackfill", request, timeout_s)).backfill)

    async def list(
        self, job: str | Job, *, timeout_s: float | None = None
    ) -> AsyncIterator[Backfill]:
        """Yields a job's backfills that go on, or ended in the last 30 days, newest first.

        >>> [each.id for each in client.backfills.list("nightly")]
        ['0a1b2c3d']
        """
        name = job.full_name if isinstance(job, Job) else job
        request = backfill_pb2.ListBackfillsRequest(
            parent=job_name(name, self._namespace), page_size=_PAGE
        )
        while True:
            page = await self._call("ListBackfills", request, timeout_s)
            for each in page.backfills:
                yield messages.backfill_of(each)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def cancel(self, backfill: BackfillRef, *, timeout_s: float | None = None) -> Backfill:
        """Starts no further run of a backfill; runs that it has started go on.

        >>> client.backfills.cancel("nightly/0a1b2c3d").ended
        True
        """
        request = backfill_pb2.CancelBackfillRequest(name=self._name(backfill))
        answer = await self._call("CancelBackfill", request, timeout_s)
        return messages.backfill_of(answer.backfill)

    async def wait(self, backfill: BackfillRef, *, timeout_s: float | None = None) -> Backfill:
        """Waits until a backfill has started all its runs, or was cancelled. None: without end.

        >>> client.backfills.wait("nightly/0a1b2c3d", timeout_s=60).started
        6

        Raises:
            DeadlineExceeded: it goes on.
        """
        wire = self._calls.wire
        end_s = None if timeout_s is None else wire.monotonic_s() + timeout_s
        while True:
            found = await self.get(backfill)
            if found.ended:
                return found
            if end_s is not None and wire.monotonic_s() + _LOOK_EVERY_S > end_s:
                raise errors.DeadlineExceeded(
                    f"backfill {found.full_name} has started {found.started} of {found.total} "
                    f"runs within {timeout_s:g} s and goes on"
                )
            await wire.sleep(_LOOK_EVERY_S)

    def _name(self, backfill: BackfillRef) -> str:
        full = backfill.full_name if isinstance(backfill, Backfill) else backfill
        return backfill_name(full, self._namespace)

    async def _call(self, method: str, request: Any, timeout_s: float | None) -> Any:
        call = Call(backfill_pb2_grpc.BackfillServiceStub, method, request)
        return await self._calls.unary(call, idempotent=True, timeout_s=timeout_s)


class Which(TypedDict, total=False):
    """Which dead letters; what is not said is any, in the client's namespace."""

    runs: Sequence[str | Run]
    """By name, or as they were read; at most 1,000."""
    job: str | Job
    namespace: str
    all_namespaces: bool
    fingerprint: str
    """Those that look alike."""
    after: datetime
    """Those that ended at or after this."""
    before: datetime
    """Those that ended before this."""


class AsyncDeadLetters:
    """The calls about runs that ended without success and wait for a person.

    Which ones is said with the words of `Which`.
    """

    def __init__(self, calls: Calls, namespace: str) -> None:
        self._calls = calls
        self._namespace = namespace

    async def list(
        self, *, timeout_s: float | None = None, **which: Unpack[Which]
    ) -> AsyncIterator[DeadLetter]:
        """Yields dead letters, newest first.

        >>> [each.run.error.kind for each in client.dead.list(job="nightly")]
        ['exit 1']
        """
        request = dead_letter_pb2.ListDeadLettersRequest(
            filter=self._filter(which),
            page_size=_PAGE,
        )
        while True:
            page = await self._call("ListDeadLetters", request, timeout_s)
            for each in page.dead_letters:
                yield messages.dead_letter_of(each)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def requeue(
        self,
        *,
        limit: int = 1_000,
        dry_run: bool = False,
        timeout_s: float | None = None,
        **which: Unpack[Which],
    ) -> tuple[Requeued, ...]:
        """Runs dead letters again, each as a new run, and takes them off the list.

        Asking twice makes one run: its id is a function of the dead one's.

        >>> [each.new_run for each in client.dead.requeue(job="nightly")]
        ['default/nightly/m20261129T120000Z-0a1b2c3d']

        Args:
            limit: at most so many in one call, 1 to 1,000.
            dry_run: tells which, and writes nothing.
            timeout_s: of the call, repetitions included.
            which: which ones; one of its words at least.
        """
        request = dead_letter_pb2.RequeueDeadLettersRequest(
            filter=self._filter(_said(which)),
            all=True,
            limit=limit,
            validate_only=dry_run,
        )
        answer = await self._call("RequeueDeadLetters", request, timeout_s)
        return tuple(messages.requeued_of(each) for each in answer.requeued)

    async def purge(
        self,
        *,
        limit: int = 10_000,
        dry_run: bool = False,
        timeout_s: float | None = None,
        **which: Unpack[Which],
    ) -> int:
        """Takes dead letters off the list and tells how many; the runs stay in the history.

        >>> client.dead.purge(job="nightly")
        1

        Args:
            limit: at most so many in one call, 1 to 10,000.
            dry_run: counts, and writes nothing.
            timeout_s: of the call, repetitions included.
            which: which ones; one of its words at least.
        """
        request = dead_letter_pb2.PurgeDeadLettersRequest(
            filter=self._filter(_said(which)),
            all=True,
            limit=limit,
            validate_only=dry_run,
        )
        return int((await self._call("PurgeDeadLetters", request, timeout_s)).purged)

    def _filter(self, which: Which) -> dead_letter_pb2.DeadLetterFilter:
        namespace = which.get("namespace") or self._namespace
        job, runs = which.get("job"), which.get("runs", ())
        after, before = which.get("after"), which.get("before")
        if job is not None:
            parent = job_name(job.full_name if isinstance(job, Job) else job, namespace)
        else:
            everywhere = runs or which.get("all_namespaces", False)
            parent = "" if everywhere else namespace_name(namespace)
        names = [run.full_name if isinstance(run, Run) else run for run in runs]
        return dead_letter_pb2.DeadLetterFilter(
            runs=[run_name(name, namespace) for name in names],
            parent=parent,
            fingerprint=which.get("fingerprint", ""),
            after_time=None if after is None else timestamp("after", after),
            before_time=None if before is None else timestamp("before", before),
        )

    async def _call(self, method: str, request: Any, timeout_s: float | None) -> Any:
        call = Call(dead_letter_pb2_grpc.DeadLetterServiceStub, method, request)
        return await self._calls.unary(call, idempotent=True, timeout_s=timeout_s)


def _said(which: Which) -> Which:
    """Refuses to work off everything because nothing was said."""
    if not which:
        words = "runs, job, namespace, all_namespaces, fingerprint, after or before"
        raise errors.InvalidArgument("which", "nothing", words)
    return which


class AsyncMesh:
    """The calls about what jobs run on."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def members(self, *, timeout_s: float | None = None) -> Mesh:
        """Lists who leads, who stands by, who works, and how far their clocks are off.

        >>> [member.role.value for member in client.mesh.members().members]
        ['store', 'coordinator', 'queue', 'worker']
        """
        request = scheduler_pb2.ListMembersRequest()
        return _messages.mesh_of(await self._call("ListMembers", request, timeout_s))

    async def queues(self, *, timeout_s: float | None = None) -> tuple[Queue, ...]:
        """Lists the queues with a run in line or a worker, and those that are paused.

        >>> [(queue.name, queue.ready) for queue in client.mesh.queues()]
        [('default', 2), ('reports', 0)]
        """
        answer = await self._call("ListQueues", scheduler_pb2.ListQueuesRequest(), timeout_s)
        return tuple(messages.queue_of(each) for each in answer.queues)

    async def workers(self, *, timeout_s: float | None = None) -> tuple[Worker, ...]:
        """Lists the workers' sessions.

        >>> [(worker.name, worker.running, worker.slots) for worker in client.mesh.workers()]
        [('one', 1, 4)]
        """
        answer = await self._call("ListQueues", scheduler_pb2.ListQueuesRequest(), timeout_s)
        return tuple(messages.worker_of(each) for each in answer.workers)

    async def pause_queue(
        self, queue: str, *, reason: str = "", timeout_s: float | None = None
    ) -> Queue:
        """Assigns no further run of a queue; live runs go on. Lasts until it is resumed.

        >>> client.mesh.pause_queue("reports", reason="the printer is away").paused
        True
        """
        request = scheduler_pb2.PauseQueueRequest(
            queue=queue, paused=True, reason=text("reason", reason)
        )
        return messages.queue_of((await self._call("PauseQueue", request, timeout_s)).queue)

    async def resume_queue(self, queue: str, *, timeout_s: float | None = None) -> Queue:
        """Assigns runs of a queue again.

        >>> client.mesh.resume_queue("reports").paused
        False
        """
        request = scheduler_pb2.PauseQueueRequest(queue=queue, paused=False)
        return messages.queue_of((await self._call("PauseQueue", request, timeout_s)).queue)

    async def drain(self, worker: str | Worker, *, timeout_s: float | None = None) -> None:
        """Has a worker give back what it has not begun, take nothing further, and end when done.

        >>> client.mesh.drain(client.mesh.workers()[0])

        Args:
            worker: its session's id, or a worker that was read.
            timeout_s: of the call, repetitions included.

        Raises:
            NotFound: there is no such session.
        """
        session = worker.session if isinstance(worker, Worker) else worker
        request = scheduler_pb2.DrainWorkerRequest(session=session)
        await self._call("DrainWorker", request, timeout_s)

    async def store(self, *, timeout_s: float | None = None) -> StoreStatus:
        """Tells how the store is, and who holds its leases.

        >>> client.mesh.store().full
        False
        """
        request = scheduler_pb2.GetStoreStatusRequest()
        return messages.store_of(await self._call("GetStoreStatus", request, timeout_s))

    async def _call(self, method: str, request: Any, timeout_s: float | None) -> Any:
        call = Call(scheduler_pb2_grpc.MeshServiceStub, method, request)
        return await self._calls.unary(call, idempotent=True, timeout_s=timeout_s)
