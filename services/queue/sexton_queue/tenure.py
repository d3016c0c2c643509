"""One tenure of the shard's lease: loads, decides, commits, reads; ends with the lease.

Cost is messages per second: an idle tenure commits at once, and once more, then at most one commit
every few milliseconds carries what has gathered, with two of them under way. Nothing is done for a
run alone: no task, no timer, no log line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from sexton.errors import NoSpace, NotLeader, SextonError
from sexton_core.instants import Instant
from sexton_queue.changes import Change, Kind
from sexton_queue.entries import Now
from sexton_queue.machine import MAX_CHANGES, Machine
from sexton_queue.reading import Reading
from sexton_queue.records import pause_txn, unpause_txn
from sexton_queue.streams import Outbox, WorkerStream
from sexton_runtime.clock import Clock
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.kv.types import Outcome, TxnResult
from sexton_runtime.kv.watcher import LASTING
from sexton_runtime.randomness import Randomness
from sexton_runtime.takeovers import Takeover

PACE_S: Final = 0.003
"""Least time between two commits, and between two messages on a stream."""
CALM_S: Final = 0.02
"""Without a commit for so long there is no stream of them that could be gathered."""
MAX_OUTSTANDING: Final = 2
"""Commits under way: one is being made durable, one waits behind it."""
COMMIT_TIMEOUT_S: Final = 10.0

_LONGEST_SLEEP_S: Final = 1.0
"""The clocks are looked at this often: asyncio's stands still during a suspension."""
_FAREWELL_S: Final = 0.5
"""How long a hand-over waits until workers have been told to reconnect."""
_SHORTEST_SLEEP_S: Final = 0.001
"""A timer that has come and can't be served yet must not keep the loop busy."""
_QUIET_S: Final = 1.0
"""How long a hand-over waits for what is under way."""
_NS: Final = 1_000_000_000

_log = structlog.get_logger(__name__)


class Tenure:
    """The owner of a shard, from the grant of the lease to its loss."""

    def __init__(
        self,
        machine: Machine,
        lease: HeldLease,
        store: StoreClient,
        *,
        shard: int,
        coordinator_shards: int,
        clock: Clock,
        randomness: Randomness,
        takeover: Takeover,
    ) -> None:
        self.machine = machine
        self.lease = lease
        self.loaded = asyncio.Event()
        """Set once everything is known that must be before the first assignment."""
        self.ended = asyncio.Event()
        self.streams: dict[Outbox, None] = {}
        self._store = store
        self._shard = shard
        self._clock = clock
        self._wake = asyncio.Event()
        self._outstanding = 0
        self._committed_s = 0.0  # when the last commit was begun, on the loop's clock
        self._settled = asyncio.Event()
        self._reading = Reading(
            machine,
            store,
            shard=shard,
            coordinator_shards=coordinator_shards,
            randomness=randomness,
            now=self.now,
        )
        self._closed = False
        self._unsure: set[str] = set()
        """Queues of which it is not known what the last commit of a pause or resume came to."""
        self._takeover: Takeover | None = takeover
        """Until the first assignment."""

    @property
    def token(self) -> int:
        """The owner's fencing token."""
        return self.lease.token

    def acting(self) -> bool:
        """Tells whether the owner may act. Ask after every wait."""
        return self.loaded.is_set() and not self._closed and self.lease.still_held()

    def require(self) -> None:
        """Raises `NotLeader` where the owner may not act."""
        if not self.acting():
            raise NotLeader

    def now(self) -> Now:
        """Reads both clocks."""
        return Now(self._store.mesh_time.now_ns(), self._clock.boot_ns())

    def past(self) -> Instant:
        """Reads a mesh time that has surely come."""
        return self._store.mesh_time.past_ns()

    def wake(self) -> None:
        """Has the machine asked what is to be done."""
        self._wake.set()

    def look_again(self) -> None:
        """Has all runs in line looked for soon: hints may have been lost."""
        self._reading.look_again()

    async def run(self) -> None:
        """Owns the shard until the lease is lost; raises what trying again does not cure."""
        serving = asyncio.create_task(self._serve())
        lost = asyncio.create_task(self.lease.lost.wait())
        try:
            await asyncio.wait((serving, lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._closed = True
            self.ended.set()
            lost.cancel()
            serving.cancel()
        try:
            await serving
        except asyncio.CancelledError:
            if not serving.cancelled():
                raise

    async def hand_over(self) -> None:
        """Stops deciding, lets what is under way be settled, and gives the lease back.

        Then workers are told to reconnect: their runs and sessions go on with the next owner.
        """
        self.machine.frozen = True
        try:
            async with asyncio.timeout(_QUIET_S):
                while self._outstanding:
                    await self._something_settled()
        except TimeoutError:
            pass
        for stream in list(self.streams):
            if isinstance(stream, WorkerStream):
                stream.reconnect = True
        await self.lease.release()
        for stream in list(self.streams):
            stream.wake()
        try:
            async with asyncio.timeout(_FAREWELL_S):
                while any(isinstance(stream, WorkerStream) for stream in self.streams):
                    await self._something_settled()
        except TimeoutError:
            pass

    async def _something_settled(self) -> None:
        self._settled.clear()
        await self._settled.wait()

    async def set_pause(self, queue: str, reason: str | None) -> None:
        """Stops a queue's assignments for a reason, or lets them go on (None); durable.

        Raises:
            NotLeader, OutcomeUnknown, Unavailable: it may not be so; ask again.
            NoSpace: the store is full.

        """
        if self.machine.frozen:
            raise NotLeader
        line = self.machine.table.line
        if queue not in self._unsure and line.paused.get(queue) == reason:
            return
        self._unsure.add(queue)  # also where nobody waits for this call's commit any more
        if reason is None:
            txn = unpause_txn(self._shard, queue)
        else:
            txn = pause_txn(self._shard, queue, reason, self.now().mesh)
        (result,) = await self.lease.commit([txn], timeout_s=COMMIT_TIMEOUT_S)
        if result.outcome is Outcome.NO_SPACE:
            raise NoSpace
        self._unsure.discard(queue)
        line.paused = {name: why for name, why in line.paused.items() if name != queue}
        if reason is not None:
            line.paused[queue] = reason
        self.wake()

    def drop(self, stream: Outbox) -> None:
        """Forgets a stream that has ended."""
        del self.streams[stream]
        self._settled.set()

    def end_streams(self, error: SextonError) -> None:
        """Ends all streams; those that are told to reconnect end after that."""
        for stream in list(self.streams):
            if not (isinstance(stream, WorkerStream) and stream.reconnect):
                stream.end(error)

    # Inside

    async def _serve(self) -> None:
        await self._reading.load()
        self.loaded.set()
        if self._takeover is not None:
            self._takeover.acting()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reading.sweep(self.wake))
            while True:
                await self._sleep()
                if not self.lease.still_held():
                    await self.lease.lost.wait()
                found: Sequence[Change] = ()
                if self._outstanding < MAX_OUTSTANDING:
                    self.machine.roster.hands_out_early = self._store.mesh_time.steady
                    found = self.machine.decide(self.now())
                self._tell_of_ends()
                self._reading.begin(group, self.wake)
                if found:
                    self._outstanding += 1
                    group.create_task(self._commit(found))
                    if len(found) >= MAX_CHANGES:
                        self._wake.set()
                    await self._pause()

    async def _pause(self) -> None:
        """Keeps commits apart, but for the second one after a while without any.

        A single run is assigned, and soon afterwards has ended: nothing comes along with that.
        """
        now_s = asyncio.get_running_loop().time()
        quiet = now_s - self._committed_s >= CALM_S
        self._committed_s = now_s
        if not quiet:
            await asyncio.sleep(PACE_S)

    def _tell_of_ends(self) -> None:
        """Logs which sessions have ended: a line per worker, whatever it held."""
        ended = self.machine.roster.ended
        while ended:
            end = ended.popleft()
            _log.info(
                "A worker's session has ended.",
                action="end_session",
                shard=self._shard,
                session=end.session,
                worker=end.worker,
                runs=end.runs,
                because=end.cause,
            )

    async def _sleep(self) -> None:
        """Returns when something has happened or is due."""
        now = self.now()
        mesh, boot = self.machine.next_wake()
        pause_s = min((mesh - now.mesh) / _NS, (boot - now.boot) / _NS, _LONGEST_SLEEP_S)
        if self._outstanding >= MAX_OUTSTANDING:
            pause_s = _LONGEST_SLEEP_S  # a commit that is settled wakes it up
        try:
            async with asyncio.timeout(max(pause_s, _SHORTEST_SLEEP_S)):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _commit(self, found: Sequence[Change]) -> None:
        results: Sequence[TxnResult] | None = None
        try:
            results = await self.lease.commit(
                [change.txn for change in found], timeout_s=COMMIT_TIMEOUT_S
            )
        except LASTING:
            raise
        except SextonError:
            results = None
        self._outstanding -= 1
        self._settled.set()
        if self.lease.still_held():
            self.machine.settle(found, results, self.now())
            if self._takeover is not None and results and any(c.kind is Kind.ASSIGN for c in found):
                self._takeover.acted("first assignment")
                self._takeover = None
            self.wake()
