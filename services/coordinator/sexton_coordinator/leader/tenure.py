"""One tenure of a shard's lease: everything that a leader does, and nothing after its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, TypeVar

import structlog

from sexton.errors import Compacted, NotLeader, OutcomeUnknown, SextonError
from sexton.internal.v1 import coordinator_pb2, records_pb2
from sexton.v1 import backfill_pb2, scheduler_pb2
from sexton_coordinator.jobs_store import JobRef
from sexton_coordinator.leader.ahead import Ahead
from sexton_coordinator.leader.counters import Counters
from sexton_coordinator.leader.definitions import Definitions
from sexton_coordinator.leader.filling import Filling
from sexton_coordinator.leader.firing import Firing
from sexton_coordinator.leader.horizon import HORIZON_NS, MOST_TIMERS
from sexton_coordinator.leader.lookout import Lookout
from sexton_coordinator.leader.machine import Machine, StartFill, StopFill, Trigger
from sexton_coordinator.leader.pushing import Links
from sexton_coordinator.leader.reconciler import Reconciler
from sexton_coordinator.leader.retention import RetentionPass
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.requests import body_hash
from sexton_core.ids import backfill_id
from sexton_records import keys
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.kv.types import Delete, Txn
from sexton_runtime.kv.watcher import LASTING
from sexton_runtime.takeovers import Takeover

_DRAIN_S: Final = 0.6
"""How long a hand-over waits for answers. The successor must act within a second."""
_PAUSE_S: Final = 0.2
"""After a loading that failed."""
_READ_AHEAD_PAUSE_S: Final = 0.01
"""Between two readings ahead of time: what is due has the first right to the store."""
_LEAST_PAGE: Final = 100
"""Timers of one page at least, where all but a few are known already."""
_WHOLE_EVERY: Final = 10
"""Of so many loadings one begins with what is due first: a timer without a job is found by it."""
_LOAD_PAUSE_S: Final = 0.02
"""Least time between two loadings."""
_DELETES_PER_TXN: Final = 90

Result = TypeVar("Result")
Load: TypeAlias = Callable[[], Awaitable[Result]]

_log = structlog.get_logger(__name__)


class Tenure:
    """A leader's work under one lease. `run` it once; `hand_over` ends it in order."""

    def __init__(
        self, *, mesh: Mesh, lease: HeldLease, shard: int, counters: Counters, takeover: Takeover
    ) -> None:
        self.lease: Final = lease
        self.shard: Final = shard
        self.acting: Final = asyncio.Event()
        """Set once what is due is known, and looked at."""
        self._mesh = mesh
        self._counters = counters
        self._takeover = takeover
        self._machine = Machine()
        self._filling = Filling(mesh=mesh, lease=lease, shard=shard, machine=self._machine)
        self._links = Links(
            mesh=mesh,
            lease=lease,
            shard=shard,
            counters=counters,
            settled=self._machine.ended,
            opened=self._look_out,
        )
        self._firing = Firing(
            mesh=mesh,
            lease=lease,
            shard=shard,
            machine=self._machine,
            filling=self._filling,
            queues=self._links,
            counters=counters,
            fired=takeover.acted,
        )
        self._ahead = Ahead(
            mesh=mesh, machine=self._machine, firing=self._firing, counters=counters
        )
        self._lookout = Lookout(
            mesh=mesh,
            lease=lease,
            shard=shard,
            machine=self._machine,
            filling=self._filling,
            planner=self._firing.planner,
            queues=self._links,
            counters=counters,
        )
        self._definitions = Definitions(
            mesh=mesh, shard=shard, machine=self._machine, removed=self._lookout.want
        )
        self._reconciler = Reconciler(mesh=mesh, shard=shard, machine=self._machine)
        self._loadings = 0
        self._loaded = asyncio.Event()  # set when the horizon has been loaded
        self._running: asyncio.Task[None] | None = None

    @property
    def overdue(self) -> int:
        """Gives how many jobs were found due for long and not decided."""
        return self._reconciler.overdue

    async def run(self) -> None:
        """Leads until the lease is lost or handed over; raises what does not pass by itself."""
        self._running = asyncio.create_task(self._lead())
        lost = asyncio.create_task(self.lease.lost.wait())
        try:
            await asyncio.wait([self._running, lost], return_when=asyncio.FIRST_COMPLETED)
            if self._running.done():
                self._running.result()
        finally:
            for task in (self._running, lost):
                task.cancel()
            await asyncio.gather(self._running, lost, return_exceptions=True)
            self._dismiss()

    async def hand_over(self) -> None:
        """Takes nothing up any more, waits for what was sent, and gives the lease back."""
        try:
            async with asyncio.timeout(_DRAIN_S):
                await self._firing.drain()
        except TimeoutError:
            pass
        await self.lease.release()

    async def trigger(
        self, request: coordinator_pb2.TriggerRequest
    ) -> coordinator_pb2.TriggerResponse:
        """Starts a run through the gate.

        Raises:
            NotFound: there is no such job, or it is another incarnation.
            InvalidArgument: the request's id was another request's.
            NotLeader, OutcomeUnknown: the tenure ended before the answer came.

        """
        if not self.lease.still_held():
            raise NotLeader
        trigger = Trigger(
            ref=JobRef(request.uid, request.namespace, request.job),
            request=request,
            body=body_hash(request),
            proof_first=bool(request.dead_letter),
            answer=asyncio.get_running_loop().create_future(),
        )
        self._machine.ask(trigger)
        answer: scheduler_pb2.TriggerJobResponse = await trigger.answer
        return coordinator_pb2.TriggerResponse(answer=answer, revision=trigger.revision)

    async def start_backfill(
        self, request: coordinator_pb2.StartBackfillRequest, name: JobRef
    ) -> backfill_pb2.Backfill:
        """Records a backfill, to be worked off.

        Raises:
            NotFound: there is no such job, or it is another incarnation.
            InvalidArgument: the request's id was another request's, or the range can't be used.
            StaleRevision: the definition has another version by now.
            IllegalState: too many backfills of the job go on.
            NotLeader, OutcomeUnknown: the tenure ended before the answer came.

        """
        asked = StartFill(
            ref=name,
            backfill_id=backfill_id(name.uid, request.request.request_id),
            request=request.request,
            body=body_hash(request.request),
            version=request.version,
            total=request.total,
            answer=asyncio.get_running_loop().create_future(),
        )
        return await self._ask_about_backfill(asked)

    async def stop_backfill(self, name: JobRef, backfill: str) -> backfill_pb2.Backfill:
        """Has a backfill start nothing any more.

        Raises:
            NotFound: there is no such job or backfill.
            NotLeader, OutcomeUnknown: the tenure ended before the answer came.

        """
        asked = StopFill(
            ref=name,
            backfill_id=backfill,
            answer=asyncio.get_running_loop().create_future(),
        )
        return await self._ask_about_backfill(asked)

    async def _ask_about_backfill(self, asked: StartFill | StopFill) -> backfill_pb2.Backfill:
        if not self.lease.still_held():
            raise NotLeader
        self._machine.ask(asked)
        answer: backfill_pb2.Backfill = await asked.answer
        return answer

    async def purge_dead(self, dead_letters: Sequence[bytes]) -> None:
        """Takes dead letters off the list.

        Raises:
            NotLeader, OutcomeUnknown, Unavailable: some may still be on it.

        """
        if not self.lease.still_held():
            raise NotLeader
        # Nothing is compared: a dead letter's key is never used again.
        txns = [
            Txn(
                then=tuple(Delete(key) for key in dead_letters[first : first + _DELETES_PER_TXN]),
                use_reserve=True,
            )
            for first in range(0, len(dead_letters), _DELETES_PER_TXN)
        ]
        await self.lease.commit(txns)

    async def _lead(self) -> None:
        await self._retry_until_done(self._lookout.find_waiting)
        revision = await self._retry_until_done(self._load)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(revision))
            group.create_task(self._keep_loaded())
            group.create_task(self._firing.run())
            group.create_task(self._read_ahead())
            group.create_task(self._ahead.run())
            group.create_task(self._links.run())
            group.create_task(self._lookout.run())
            group.create_task(self._reconciler.run())
            group.create_task(
                RetentionPass(
                    mesh=self._mesh,
                    lease=self.lease,
                    shard=self.shard,
                    filling=self._filling,
                    counters=self._counters,
                    made=self._machine.made,
                ).run()
            )
            self._lookout.want()
            self.acting.set()
            self._takeover.acting()

    async def _load(self) -> int:
        """Loads the whole horizon; gives the revision from which changes are to be followed."""
        return await self._load_from(keys.timers_prefix(self.shard))

    async def _load_more(self) -> int:
        """Loads what has come within reach, and now and then what should be known, too."""
        self._loadings += 1
        until = self._machine.horizon.until
        if self._loadings % _WHOLE_EVERY == 0 or until >= self._mesh.now() + HORIZON_NS:
            return await self._load()
        return await self._load_from(keys.timers_until(self.shard, until))

    async def _load_from(self, start: bytes) -> int:
        self._counters.horizons += 1
        reach = self._mesh.now() + HORIZON_NS
        horizon = self._machine.horizon
        horizon.begin_loading(reach)
        end = keys.timers_until(self.shard, reach)
        token, revision, loaded, last = b"", 0, 0, None
        limits = self._mesh.store.limits
        while loaded < MOST_TIMERS:
            most = max(MOST_TIMERS - loaded, _LEAST_PAGE)
            page = await self._mesh.store.scan(
                start, end, limit=min(most, limits.max_page_items), page_token=token
            )
            revision = revision or page.revision
            for kv in page.kvs:
                timer = keys.parse_timer_key(kv.key)
                record = records_pb2.TimerRecord.FromString(kv.value)
                loaded += self._machine.timer(timer.uid, timer.due, record)
                last = timer.due
            token = page.next_token
            if not token:
                last = None
                break
        horizon.end_loading(reach, last)
        self._loaded.set()
        self._machine.woken.set()
        return revision

    async def _keep_loaded(self) -> None:
        while True:
            await self._firing.hungry.wait()
            self._firing.hungry.clear()
            await self._retry_until_done(self._load_more)
            await asyncio.sleep(_LOAD_PAUSE_S)

    async def _read_ahead(self) -> None:
        """Reads what is due soon, so that at its time it has only to be decided."""
        while True:
            if await self._firing.read_ahead():
                await asyncio.sleep(_READ_AHEAD_PAUSE_S)
            else:
                self._loaded.clear()
                await self._loaded.wait()

    async def _follow(self, revision: int) -> None:
        """Follows the definitions; where the place is lost, reads the horizon again."""
        while True:
            try:
                await self._definitions.follow(revision)
            except Compacted:
                self._counters.compacted += 1
                _log.warning(
                    "Changes of definitions were missed; what is due soon is read again.",
                    action="reload",
                    shard=self.shard,
                )
                self._machine.forget_all_read()
                revision = await self._retry_until_done(self._load)
                self._lookout.want()

    async def _retry_until_done(self, load: Load[Result]) -> Result:
        while True:
            try:
                return await load()
            except LASTING:
                raise
            except SextonError as error:
                _log.warning("The store could not be read.", action="load", error=str(error))
                await asyncio.sleep(_PAUSE_S)

    def _look_out(self) -> None:
        self._lookout.want()

    def _dismiss(self) -> None:
        """Answers whoever still waits for an answer."""
        leader = self._mesh.directory.leader(self.shard)
        for asked in self._machine.drain():
            if not asked.answer.done():
                address = leader.address if leader is not None else ""
                asked.answer.set_exception(
                    OutcomeUnknown("the leader changed before this was answered")
                    if asked.sent
                    else NotLeader(address)
                )
