"""The push streams: what is committed down to the owners of queues, settled notices up.

Hints in both directions. A run that is not sent is found by its owner, who reads the line again
when a stream opens and every few seconds; a request for a run's end is repeated by the leader until
the run has ended; a notice that is lost is made up for by reading handles.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from sexton.errors import SextonError, Unavailable
from sexton.internal.v1 import queue_pb2 as pb
from sexton.internal.v1.queue_pb2_grpc import QueueServiceStub
from sexton_coordinator.directory import Holder
from sexton_coordinator.ends import MOST_EXPECTED, RunEnd
from sexton_coordinator.leader.counters import Counters
from sexton_coordinator.leader.machine import Created
from sexton_coordinator.mesh import Mesh
from sexton_core.ids import RunId
from sexton_records import keys
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.rpc.policy_channel import cancelling

_PACE_S: Final = 0.002
"""Least time between two messages: cost is messages per second."""
_MOST_PER_MESSAGE: Final = 500
_MESSAGE_BYTES: Final = 1024 * 1024
"""Runs of one message, by number and by size; a message has at most 4 MiB."""
_MOST_WAITING: Final = 20_000
"""Runs that wait to be sent; more are left to be found by reading."""
_GREETING_TIMEOUT_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0

Settled = Callable[[str, RunId], object]


class Links:
    """A stream to the owner of every queue shard, for one tenure."""

    def __init__(
        self,
        *,
        mesh: Mesh,
        lease: HeldLease,
        shard: int,
        counters: Counters,
        settled: Settled,
        opened: Callable[[], object],
    ) -> None:
        """Takes what hears of runs that have ended, and of streams that have opened."""
        self._links = [
            _Link(
                mesh=mesh,
                lease=lease,
                shard=shard,
                queue_shard=queue_shard,
                counters=counters,
                settled=settled,
                opened=opened,
            )
            for queue_shard in range(mesh.queue_shards)
        ]

    def push(self, run: Created, revision: int, *, awaited: bool = False) -> None:
        """Tells the owner of a run's queue of a run, for whose end somebody may wait here."""
        self._links[run.shard].push(run, revision, awaited=awaited)

    def ask(self, shard: int, end: pb.EndRequest) -> None:
        """Asks the owner of a queue shard for a run's end."""
        self._links[shard].ask(end)

    async def run(self) -> None:
        """Keeps the streams open, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for link in self._links:
                group.create_task(link.run())


class _Link:
    """The stream to one queue shard's owner, whoever that is."""

    def __init__(
        self,
        *,
        mesh: Mesh,
        lease: HeldLease,
        shard: int,
        queue_shard: int,
        counters: Counters,
        settled: Settled,
        opened: Callable[[], object],
    ) -> None:
        self._mesh = mesh
        self._lease = lease
        self._shard = shard
        self._queue_shard = queue_shard
        self._counters = counters
        self._settled = settled
        self._opened = opened
        self._runs: deque[tuple[Created, int, bool]] = deque()  # with its revision; is it awaited
        self._awaited: dict[bytes, None] = {}  # handles of whose ends the owner is to tell
        self._ends: dict[bytes, pb.EndRequest] = {}
        self._filled = asyncio.Event()
        self._open = False

    def push(self, run: Created, revision: int, *, awaited: bool) -> None:
        if not self._open or len(self._runs) >= _MOST_WAITING:
            self._counters.unpushed += 1
            return
        if awaited and len(self._awaited) < MOST_EXPECTED:
            self._awaited[run.handle] = None
            self._mesh.ends.expect(run.handle)
        self._runs.append((run, revision, run.handle in self._awaited))
        self._filled.set()

    def ask(self, end: pb.EndRequest) -> None:
        if self._open and len(self._ends) < _MOST_WAITING:
            self._ends[end.handle] = end
            self._filled.set()

    async def run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            owner = await self._owner()
            try:
                await self._serve(owner)
            except SextonError:
                pass
            finally:
                if self._open:
                    pause_s = _FIRST_PAUSE_S
                self._close()
            await asyncio.sleep(self._mesh.randomness.uniform(pause_s / 2, pause_s))
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _owner(self) -> Holder:
        directory = self._mesh.directory
        while (owner := directory.owner(self._queue_shard)) is None or not owner.address:
            await directory.changed()
        return owner

    async def _serve(self, owner: Holder) -> None:
        """Opens a stream to an owner and serves it until it ends, or somebody else owns."""
        stub = QueueServiceStub(self._mesh.channel(owner.address))
        call: Any = stub.Push()
        async with cancelling(call):
            try:
                async with asyncio.timeout(_GREETING_TIMEOUT_S):
                    hello = pb.PushHello(shard=self._shard, leader_token=self._lease.token)
                    await call.write(pb.PushRequest(hello=hello))
                    self._take(await call.read())
            except TimeoutError:
                raise Unavailable("the owner of the queues does not answer") from None
            self._open = True
            self._opened()
            tasks = [
                asyncio.create_task(self._send(call)),
                asyncio.create_task(self._receive(call)),
                asyncio.create_task(self._replaced(owner)),
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, call: Any) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._runs or self._ends:
                if not self._lease.still_held():
                    return
                await call.write(self._message())
                await asyncio.sleep(_PACE_S)

    def _message(self) -> pb.PushRequest:
        message = pb.PushRequest()
        runs, waiting = message.runs, self._runs
        number = size = 0
        while waiting and number < _MOST_PER_MESSAGE and size < _MESSAGE_BYTES:
            (_, handle, record), revision, awaited = waiting.popleft()
            number += 1
            size += len(record)
            run = runs.add()  # one that is made first is copied in
            run.handle = handle
            run.revision = revision
            run.record = record
            run.tell_record = awaited
        for handle in list(self._ends)[:_MOST_PER_MESSAGE]:
            message.ends.append(self._ends.pop(handle))
        self._counters.pushed += number
        self._counters.ends_asked += len(message.ends)
        return message

    async def _receive(self, call: Any) -> None:
        while True:
            self._take(await call.read())

    def _take(self, response: object) -> None:
        if not isinstance(response, pb.PushResponse):
            raise Unavailable("the owner of the queues ended the stream")
        self._counters.settled += len(response.settled)
        for run in response.settled:
            self._settled(run.job_uid, keys.run_id_of(run.handle))
            if run.handle in self._awaited:
                del self._awaited[run.handle]
                if run.record:
                    self._mesh.ends.tell(run.handle, RunEnd(run.record, run.revision))
                else:
                    self._mesh.ends.give_up([run.handle])

    async def _replaced(self, owner: Holder) -> None:
        """Returns once somebody else, or nobody, owns the shard."""
        directory = self._mesh.directory
        while directory.owner(self._queue_shard) == owner:
            await directory.changed()

    def _close(self) -> None:
        self._open = False
        self._counters.unpushed += len(self._runs)
        self._runs.clear()
        self._ends.clear()
        self._mesh.ends.give_up(self._awaited)
        self._awaited.clear()
