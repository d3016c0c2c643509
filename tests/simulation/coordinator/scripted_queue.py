"""The owner of the queue shard as the leader sees it, and its workers, as a script.

A run ends `lasts_s` after it was seen and due, or `stops_s` after its end was asked for. It can be
deaf to pushes, and mute about what has ended. What it sees it keeps, so that tests can judge by
what really reached it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sexton.errors import SextonError, Unavailable
from sexton.internal.v1 import queue_pb2, queue_pb2_grpc
from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_records import keys
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.kv.lease_keeper import LeaseKeeper
from sexton_runtime.kv.types import Compare, Delete, Outcome, Put, Target, Txn
from sexton_runtime.randomness import SeededRandomness
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_sim.process import Process

if TYPE_CHECKING:
    from simulation.coordinator.mesh import Mesh

STORE = "127.0.0.1:7600"
QUEUE = "127.0.0.1:7700"


@dataclass(kw_only=True)
class SeenRun:
    """A run as the queue saw it first."""

    handle: bytes
    record: pb.RunRecord
    at: int
    pushed: bool


@dataclass(kw_only=True)
class ScriptedQueue(queue_pb2_grpc.QueueServiceServicer):
    """The owner of the queue shard, and its workers."""

    mesh: Mesh
    lasts_s: float = 0.5
    stops_s: float = 0.1
    mute: bool = False
    deaf: bool = False
    fails: str = ""
    """What runs say when they fail; empty: they succeed."""
    reads_every_s: float = 5.0
    seen: dict[bytes, SeenRun] = field(default_factory=dict)
    ends: list[tuple[str, int]] = field(default_factory=list)
    hellos: list[queue_pb2.PushHello] = field(default_factory=list)
    told: set[bytes] = field(default_factory=set)
    """Runs whose record is asked for with the notice of their end."""
    process: Process = field(init=False)
    _streams: list[asyncio.Queue[queue_pb2.PushResponse]] = field(default_factory=list)
    _store: StoreClient = field(init=False)
    _kept: list[Any] = field(default_factory=list)
    _handled: set[bytes] = field(default_factory=set)
    _working: set[asyncio.Task[None]] = field(default_factory=set)

    async def EndRuns(self, request: Any, context: Any) -> Any:
        raise Unavailable

    async def DescribeQueues(self, request: Any, context: Any) -> Any:
        raise Unavailable

    async def start(self) -> None:
        self.process = self.mesh.loop.process("queue")
        await self.process.spawn(self._start())

    async def _start(self) -> None:
        mesh = self.mesh
        randomness = SeededRandomness(f"queue-{self.process.incarnation}")
        channel = PolicyChannel(mesh.transport.channel(STORE))
        self._store = StoreClient(channel, clock=self.process.clock, randomness=randomness)
        await self._store.start()
        keeper = LeaseKeeper(self._store, clock=self.process.clock, randomness=randomness)
        keeper.start()
        server = mesh.transport.server()
        queue_pb2_grpc.add_QueueServiceServicer_to_server(self, server)
        mesh.transport.bind(server, QUEUE)
        await server.start()
        self._streams = []
        self._lease = await self._own(keeper)
        self._handled.clear()
        # What belonged to a dead process is never dropped: nothing of it may still run.
        self._kept.append((server, self._store, keeper, asyncio.create_task(self._read())))
        self._begin(self._hold(keeper))

    async def _own(self, keeper: LeaseKeeper) -> HeldLease:
        member = pb.MemberRecord(id="queue", address=QUEUE).SerializeToString()
        return await keeper.acquire("queue/000", ttl_s=2, value=member)

    async def _hold(self, keeper: LeaseKeeper) -> None:
        while True:
            await self._lease.lost.wait()
            self._lease = await self._own(keeper)

    async def Push(self, requests: Any, context: Any) -> Any:
        outbox: asyncio.Queue[queue_pb2.PushResponse] = asyncio.Queue()
        outbox.put_nowait(queue_pb2.PushResponse(owner_token=self._lease.token))
        reader = asyncio.create_task(self._receive(requests))
        self._streams.append(outbox)
        try:
            while True:
                yield await outbox.get()
        finally:
            self._streams.remove(outbox)
            reader.cancel()

    async def _receive(self, requests: Any) -> None:
        async for request in requests:
            if request.HasField("hello"):
                self.hellos.append(request.hello)
            if self.deaf:
                continue
            for run in request.runs:
                if run.tell_record:
                    self.told.add(run.handle)
                self._see(run.handle, run.record, pushed=True)
            for end in request.ends:
                self.ends.append((keys.parse_handle_key(end.handle).run_id, end.mode))
                if end.handle in self.seen:
                    self._begin(self._end(end.handle, self.stops_s, end.mode))

    async def _read(self) -> None:
        while True:
            try:
                for kv in await self.mesh.below(b"active/", self._store):
                    self._see(kv.key, kv.value, pushed=False)
            except SextonError:
                pass
            await asyncio.sleep(self.reads_every_s)

    def _see(self, handle: bytes, record: bytes, *, pushed: bool) -> None:
        now = self.mesh.mesh_now()
        if handle not in self.seen:
            self.seen[handle] = SeenRun(
                handle=handle,
                record=pb.RunRecord.FromString(record),
                at=now,
                pushed=pushed,
            )
        if handle not in self._handled:
            self._handled.add(handle)
            waits_ns = max(0, self.seen[handle].record.not_before_ns - now)
            self._begin(self._end(handle, waits_ns / 1e9 + self.lasts_s))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _end(self, handle: bytes, after_s: float, mode: int = 0) -> None:
        await asyncio.sleep(after_s)
        record = pb.RunRecord.FromString(
            self.seen[handle].record.SerializeToString(deterministic=True)
        )
        record.state = {
            0: run_pb2.RUN_STATE_SUCCEEDED,
            run_pb2.CANCEL_MODE_CANCEL: run_pb2.RUN_STATE_CANCELLED,
            run_pb2.CANCEL_MODE_TERMINATE: run_pb2.RUN_STATE_TERMINATED,
        }[mode]
        if self.fails and not mode:
            record.state = run_pb2.RUN_STATE_FAILED
            record.error.kind, record.error.message = "ValueError", self.fails
        record.end_time_ns = self.mesh.mesh_now()
        template = record.template
        uid = template.job_uid
        ended = pb.EndedRecord(
            namespace=template.namespace,
            job=template.job,
            state=record.state,
            nominal_ns=record.nominal_ns,
        )
        run_key = keys.run_key(template.namespace, template.job, uid, record.run_id)
        ended_key = keys.ended_key(0, record.end_time_ns, uid, record.run_id)
        writes = [
            Delete(handle),
            Put(run_key, record.SerializeToString()),
            Put(ended_key, ended.SerializeToString()),
        ]
        if record.state == run_pb2.RUN_STATE_FAILED:
            dead_key = keys.dead_key(0, record.end_time_ns, uid, record.run_id)
            writes.append(Put(dead_key, ended.SerializeToString()))
        txn = Txn(compares=(Compare(handle, Target.EXISTS, True),), then=tuple(writes))
        while True:
            try:
                (result,) = await self._lease.commit([txn])
                break
            except SextonError:
                await asyncio.sleep(0.2)
        if result.outcome is Outcome.COMMITTED and not self.mute:
            notice = queue_pb2.SettledRun(handle=handle, job_uid=uid, state=record.state)
            if handle in self.told:
                notice.record, notice.revision = record.SerializeToString(), result.revision
            for stream in self._streams:
                stream.put_nowait(queue_pb2.PushResponse(settled=[notice]))
