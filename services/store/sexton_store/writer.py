"""The one writer: takes what waits, evaluates it, makes it durable, answers it.

Group commit: while one step is being made durable, requests gather for the next. Evaluation runs
on the event loop, between two durable steps, so nothing that it reads can change under it; it
lets others run every few hundred operations (renewals must not wait for a bulk commit). Only the
disk's own work is done elsewhere.

What a step did is published - revision, watchers, leases, answers - only after `Disk.write` has
returned, and all of it between two awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

import structlog

from sexton.errors import DeadlineExceeded, OutcomeUnknown, Overloaded, Unavailable
from sexton_store.cluster import Cluster, encode
from sexton_store.contract import EngineConfig, EngineCounters
from sexton_store.disk import DamagedError, Disk, DiskFailedError, DiskFullError, WriteBatch
from sexton_store.history import commit_line, start_line
from sexton_store.known import KnownHeads
from sexton_store.lanes import Lanes
from sexton_store.leases import LeaseTable
from sexton_store.machine import Space, Step
from sexton_store.requests import BREATH_OPS, ExpireRequest, PersistRequest, Request
from sexton_store.timekeeper import Timekeeper
from sexton_store.watch import WatchHub

T = TypeVar("T")
_NOT_BEGUN = "the time was up before the request was begun; nothing happened"
_log = structlog.get_logger(__name__)


class Writer:
    """Turns waiting requests into durable steps, one at a time."""

    def __init__(
        self,
        *,
        disk: Disk,
        cluster: Cluster,
        revision: int,
        leases: LeaseTable,
        time: Timekeeper,
        config: EngineConfig,
        failed: asyncio.Event,
    ) -> None:
        self.revision = revision
        """The last revision that is durable and published."""
        self.full = False
        """Whether the last step that wanted to grow found no space."""
        self.failed = failed
        self.counters = EngineCounters()
        self.lanes = Lanes(config)
        self.hub = WatchHub(
            revision=revision,
            max_events=config.watch_window_events,
            max_bytes=config.watch_window_bytes,
            max_watchers=config.max_watchers,
            mesh_ns=time.mesh_ns,
        )
        self._known = KnownHeads()
        self._disk = disk
        self._cluster = cluster
        self._leases = leases
        self._time = time
        self._history = config.history
        self._started_history = False
        self._refusal: str | None = None
        self._wake = asyncio.Event()
        self._writing: asyncio.Future[None] | None = None
        self._persisting: asyncio.Future[None] | None = None

    async def submit(self, request: Request[T]) -> T:
        """Lets a request wait for a step and gives its answer; see `enqueue`."""
        return await self.enqueue(request)

    def enqueue(self, request: Request[T], *, timeout_s: float | None = None) -> asyncio.Future[T]:
        """Lets a request wait for a step, and gives where its answer will be.

        One whose future is cancelled, or whose time is up, before it is evaluated is taken out
        again; once evaluated it is carried through.
        """
        self.check_serving()
        try:
            self.lanes.add(request)
        except Overloaded:
            self.counters.overloaded += 1
            raise
        timer: asyncio.TimerHandle | None = None
        if timeout_s is not None:
            loop = asyncio.get_running_loop()
            request.deadline_s = loop.time() + timeout_s
            timer = loop.call_at(request.deadline_s, self._drop, request)

        def ended(future: asyncio.Future[T]) -> None:
            if timer is not None:
                timer.cancel()
            if future.cancelled():
                self._drop(request)

        request.future.add_done_callback(ended)
        self._wake.set()
        return request.future

    @property
    def serving(self) -> bool:
        """Whether requests are taken."""
        return self._refusal is None

    def check_serving(self) -> None:
        """Raises `Unavailable` unless requests are taken."""
        if self._refusal is not None:
            raise Unavailable(self._refusal)

    @property
    def writing(self) -> bool:
        """Whether a step is on its way to the disk: a snapshot may show it before it is known."""
        return self._writing is not None

    async def published(self, revision: int) -> None:
        """Waits until a revision that a snapshot has shown is published."""
        while revision > self.revision:
            self.check_serving()
            assert self._writing is not None, "only a step on its way can be ahead"
            await asyncio.shield(self._writing)

    def poke(self) -> None:
        """Makes the writer look for leases to expire."""
        self._wake.set()

    def persist(self) -> None:
        """Lets the mesh clock become durable with the next step; nobody waits for it."""
        if self._persisting is None or self._persisting.done():
            request = PersistRequest()
            request.future.add_done_callback(_take_note)
            with suppress(Overloaded):  # it is tried again at the next tick
                self.lanes.add(request)
                self._persisting = request.future
                self._wake.set()

    async def run(self) -> None:
        """Works until `stop`, then on what still waits. Never to be cancelled inside a write."""
        try:
            while self._refusal is None:
                await self._wake.wait()
                self._wake.clear()
                await self.run_once()
                while self.lanes:
                    await self.run_once()
        except Exception as error:
            self.fail((), error)
            raise

    def stop(self) -> None:
        """Takes no more requests; those that wait are still answered. Idempotent."""
        self._refusal = self._refusal or "the store is stopping; try again"
        self._wake.set()

    async def run_once(self) -> int:
        """Makes one step of what waits; gives the number of requests that it settled."""
        requests = self._gather()
        if not requests:
            return 0
        try:
            step = await self._make_durable(requests)
            self._publish(requests, step)
        except (DiskFailedError, OSError) as error:
            self.fail(requests, error)
            return 0
        except Exception as error:  # a fault of our own: what became of the step is not known
            self.fail(requests, error)
            raise
        return len(requests)

    async def _make_durable(self, requests: list[Request[Any]]) -> Step:
        """Evaluates and writes a step; without space again, with less and less in it."""
        space = Space.AMPLE
        while True:
            step, batch = await self._evaluate(requests, space)
            if batch is None:
                return step
            try:
                await self._write(batch, use_reserve=not step.needs_space)
            except DiskFullError as error:
                self.counters.full_steps += 1
                self._note_full(error)
                self._time.mesh.changed = True
                space = Space.RESERVE if step.needs_space else Space.NONE
            else:
                if self.full and step.needs_space:
                    self.full = False
                    _log.warning("The store has room again.", action="store.has_room")
                return step

    async def _write(self, batch: WriteBatch, *, use_reserve: bool) -> None:
        self._writing = asyncio.get_running_loop().create_future()
        try:
            await self._disk.write(batch, use_reserve=use_reserve)
        finally:
            self._writing.set_result(None)
            self._writing = None
        self.counters.steps += 1
        self._started_history = True

    def _gather(self) -> list[Request[Any]]:
        """Takes the requests of a step: first the leases whose time is over."""
        now_s = asyncio.get_running_loop().time()
        requests: list[Request[Any]] = [
            ExpireRequest(name, token, leases=self._leases, time=self._time, counters=self.counters)
            for name, token in self._leases.due(self._time.awake_ns())
        ]
        for request in self.lanes.gather():
            if request.future.done():
                self.counters.dropped += 1
            elif request.deadline_s is not None and now_s >= request.deadline_s:
                self.counters.dropped += 1
                request.refuse(DeadlineExceeded(_NOT_BEGUN))
            else:
                requests.append(request)
        return requests

    async def _evaluate(
        self, requests: list[Request[Any]], space: Space
    ) -> tuple[Step, WriteBatch | None]:
        """Evaluates all requests against one snapshot; one that meets damage is taken out."""
        while True:
            with self._disk.view() as view:
                step = Step(
                    view,
                    revision=self.revision,
                    mesh_ns=self._time.mesh_ns(),
                    known=self._known,
                    space=space,
                    with_history=self._history,
                )
                damaged = await _evaluate_all(requests, step)
                if damaged is None:
                    return step, self._batch(step)
            requests.remove(damaged)

    def _batch(self, step: Step) -> WriteBatch | None:
        if not (step.entries or step.must_write):
            return None
        puts, deletes = step.writes()
        lines: list[bytes] = []
        if self._history:
            lines = [] if self._started_history else [self._start_line()]
            now_ns = self._time.boot_ns()
            lines += (commit_line(commit._replace(boot_ns=now_ns)) for commit in step.commits)
        record = encode(self._cluster, step.revision, self._time.mesh.record())
        self._time.mesh.changed = False
        return WriteBatch(puts, deletes, record, lines)

    def _start_line(self) -> bytes:
        return start_line(
            self.revision, incarnation=self._cluster.incarnation, boot_id=self._time.boot_id()
        )

    def _publish(self, requests: list[Request[Any]], step: Step) -> None:
        self.revision = step.revision
        self._known.note(step.last, step.size_bytes)
        self.hub.publish(step.entries, step.keys, step.size_bytes)
        for request in requests:
            self.counters.txns += request.txns
            self.counters.ops += request.ops
            request.settle()

    def fail(self, requests: Sequence[Request[Any]], error: Exception) -> None:
        """Stops for good: whether the step of these requests became durable is not known."""
        for request in requests:
            request.refuse(OutcomeUnknown())
        if self.failed.is_set():
            return
        _log.critical(
            "The store stops: the outcome of a commit is not known.",
            action="store.failed",
            exc_info=error,
        )
        self._refusal = "the store has stopped: the outcome of a commit is not known"
        for request in self.lanes.drain():
            request.refuse(Unavailable(self._refusal))
        self.hub.end()
        self.failed.set()

    def _note_full(self, error: DiskFullError) -> None:
        if not self.full:
            self.full = True
            _log.error(
                "The store is full: what grows is refused, what deletes or settles goes on. "
                "Make room on its disk, or let it grow (max_map_bytes).",
                action="store.full",
                reason=str(error),
            )

    def _drop(self, request: Request[Any]) -> None:
        """Takes out a request whose caller has gone or whose time is up, if it still waits."""
        if self.lanes.remove(request):
            self.counters.dropped += 1
            request.refuse(DeadlineExceeded(_NOT_BEGUN))


async def _evaluate_all(requests: list[Request[Any]], step: Step) -> Request[Any] | None:
    """Gives the request that met a damaged record, and answers it; None: all went well."""
    breath = BREATH_OPS
    for request in requests:
        try:
            while not request.evaluate(step):  # noqa: ASYNC110 - a long one: others' turn
                await asyncio.sleep(0)
        except DamagedError as error:
            request.refuse(error)
            return request
        breath -= request.ops
        if breath <= 0:
            breath = BREATH_OPS
            await asyncio.sleep(0)
    return None


def _take_note(future: asyncio.Future[None]) -> None:
    """Retrieves the outcome that nobody waits for: it is tried again at the next tick."""
    if not future.cancelled():
        future.exception()
