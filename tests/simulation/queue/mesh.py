"""A simulated mesh around the real queue: a real store, two replicas, a leader's hand, workers.

The scripted workers speak the whole protocol as a good worker must. What they execute is a time
that passes; every execution is noted with its token, so that tests can judge by what really ran.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sexton.errors import SextonError
from sexton.internal.v1 import queue_pb2, queue_pb2_grpc
from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import job_pb2, run_pb2
from sexton_core.ids import scheduled_run_id
from sexton_core.instants import SECOND
from sexton_core.policy.state import Handle, NewRun
from sexton_core.schedules import JobIdentity, ScheduleCache
from sexton_core.words import Origin, Reason, RunState
from sexton_queue.app import Queue
from sexton_queue.config import QueueConfig
from sexton_records import keys, runs, spec
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.types import Delete, Outcome, Put, Txn, prefix_end
from sexton_runtime.randomness import SeededRandomness
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_sim.loop import SimLoop
from sexton_sim.network import Network
from sexton_sim.process import Process
from sexton_sim.transport import SimTransport
from sexton_store.app import Store
from sexton_store.memory_disk import MemoryDisk

STORE = "127.0.0.1:7600"
QUEUES = ("127.0.0.1:7701", "127.0.0.1:7702")
NAMES = ("queue-1", "queue-2")


@dataclass(kw_only=True)
class Execution:
    """One attempt that a worker really began."""

    handle: bytes
    number: int
    token: int
    worker: str
    began: int
    ended: int | None = None


@dataclass(kw_only=True)
class Job:
    """A job as its leader has it."""

    uid: str
    name: str
    template: pb.RunTemplate
    fired: int = 0


class Mesh:
    """One simulation; `run(scenario)` starts everything and runs the scenario as the leader."""

    def __init__(self, seed: int = 0, *, replicas: int = 2, **config: Any) -> None:
        self.seed = seed
        self.loop = SimLoop()
        self.network = Network(seed)
        self.transport = SimTransport(self.network)
        self.random = random.Random(f"mesh-{seed}")
        self.executions: list[Execution] = []
        self.queues: dict[str, Queue] = {}
        self.processes: dict[str, Process] = {}
        self.config = config
        self.replicas = replicas
        self.store: StoreClient
        self.leader = self.loop.process("leader")
        self._disk = MemoryDisk()
        self._jobs = 0

    def run(self, scenario: Callable[[Mesh], Awaitable[None]], *, limit_s: float = 600) -> None:
        async def lead() -> None:
            channel = PolicyChannel(self.transport.channel(STORE))
            async with StoreClient(
                channel, clock=self.leader.clock, randomness=SeededRandomness(f"l{self.seed}")
            ) as self.store:
                await scenario(self)

        async def main() -> None:
            await self.start_store()
            for name in NAMES[: self.replicas]:
                await self.start_queue(name)
            async with asyncio.timeout(limit_s):
                await self.leader.spawn(lead())

        self.loop.run(main())
        assert self.loop.unhandled == []

    @property
    def now(self) -> int:
        return self.loop.now_ns

    # Processes

    async def start_store(self) -> None:
        process = self.processes["store"] = self.loop.process("store")
        self._disk = self._disk.crash()
        disk = self._disk

        async def start() -> None:
            store = Store(
                disk=disk,
                transport=self.transport,
                clock=process.clock,
                randomness=SeededRandomness(f"store-{self.seed}-{process.incarnation}"),
                listen=STORE,
            )
            await store.lifecycle.start()

        await process.spawn(start())

    async def start_queue(self, name: str) -> Queue:
        process = self.processes[name] = self.loop.process(name)

        async def start() -> Queue:
            queue = Queue(
                QueueConfig(store=STORE, listen=QUEUES[NAMES.index(name)], **self.config),
                transport=self.transport,
                clock=process.clock,
                randomness=SeededRandomness(f"{name}-{self.seed}-{process.incarnation}"),
            )
            await queue.lifecycle.start()
            return queue

        queue = self.queues[name] = await process.spawn(start())
        return queue

    def crash(self, name: str) -> None:
        self.processes[name].crash()

    async def owner(self) -> str:
        """Waits for an owner that acts; gives its name."""
        while True:
            for name, queue in self.queues.items():
                tenure = queue.owner.tenure
                if self.processes[name].alive and tenure is not None and tenure.acting():
                    return name
            await asyncio.sleep(0.02)

    async def machine(self) -> Any:
        tenure = self.queues[await self.owner()].owner.tenure
        assert tenure is not None
        return tenure.machine

    # The leader's hand

    async def job(self, **fields: Any) -> Job:
        """Creates a job: the `state/` that every assignment compares."""
        self._jobs += 1
        tens, ones = divmod(self._jobs, 10)
        uid = f"{'abcdefghij'[tens]}{'abcdefghij'[ones]}cdefghijklmnopqrstuvwx"
        name = f"job-{self._jobs}"
        task = job_pb2.Task(shell=job_pb2.ShellTask(command="true"))
        message = job_pb2.JobSpec(**{"task": task} | fields)
        identity = JobIdentity(namespace="default", name=name, uid=uid)
        definition = spec.decode_definition(message, 1, identity, ScheduleCache())
        template = spec.run_template("default", name, uid, message, definition)
        state = pb.StateRecord(namespace="default", job=name)
        await self.put(keys.state_key(0, uid), state.SerializeToString())
        return Job(uid=uid, name=name, template=template)

    async def delete_job(self, job: Job) -> None:
        await self._commit(Txn(then=(Delete(keys.state_key(0, job.uid)),)))

    async def fire(self, job: Job, *, delay: int = 0, push: bool = True) -> bytes:
        """Commits a run of a job into the line, as the leader does, and tells the owner."""
        (handle,) = await self.fire_many(job, 1, delay=delay, push=push)
        return handle

    async def fire_many(
        self, job: Job, count: int, *, delay: int = 0, push: bool = True
    ) -> list[bytes]:
        pushed = []
        for first in range(0, count, 100):
            txns = []
            batch = []
            for _ in range(min(100, count - first)):
                key, value = self.make_run(job, delay=delay)
                batch.append((key, value))
                txns.append(Txn(then=(Put(key, value),)))
            results = await self.store.commit(txns)
            pushed += [(*pair, done.revision) for pair, done in zip(batch, results, strict=True)]
        if push:
            await self.push(pushed)
        return [key for key, _, _ in pushed]

    def make_run(self, job: Job, *, delay: int = 0) -> tuple[bytes, bytes]:
        job.fired += 1
        now = self.store.mesh_time.now_ns()
        due = now - now % SECOND + job.fired * SECOND
        template = job.template
        run_id = scheduled_run_id(job.uid, due)
        handle = Handle(run_id, template.queue, template.priority, now + delay)
        new = NewRun(handle, Origin.SCHEDULE, due, now, 1, Reason.ON_TIME)
        shared = pb.RunRecord(template=template).SerializeToString()
        value = shared + runs.new_record(new, now, "").SerializeToString()
        return keys.handle_key(0, job.uid, handle), value

    async def push(self, pushed: Sequence[tuple[bytes, bytes, int]]) -> None:
        """Tells the owner; a hint, so that it may as well fail."""
        request = queue_pb2.PushRequest(
            runs=[queue_pb2.PushedRun(handle=k, revision=r, record=v) for k, v, r in pushed]
        )
        hello = queue_pb2.PushRequest(hello=queue_pb2.PushHello(shard=0, leader_token=1))
        call = self.stub(await self.owner()).Push()
        try:
            await call.write(hello)
            await call.read()
            await call.write(request)
            await asyncio.sleep(0.05)
        except SextonError:
            pass
        finally:
            call.cancel()

    def stub(self, name: str) -> Any:
        address = QUEUES[NAMES.index(name)]
        return queue_pb2_grpc.QueueServiceStub(PolicyChannel(self.transport.channel(address)))

    async def end(
        self, handle: bytes, *, terminate: bool = False, name: str = "", reason: str = "asked"
    ) -> int:
        """Asks the owner for a run's end; gives the state that it answers."""
        mode = run_pb2.CANCEL_MODE_TERMINATE if terminate else run_pb2.CANCEL_MODE_CANCEL
        request = queue_pb2.EndRunsRequest(
            ends=[queue_pb2.EndRequest(handle=handle, mode=mode, reason=reason)]
        )
        answer = await self.stub(name or await self.owner()).EndRuns(request)
        return int(answer.results[0].state)

    async def put(self, key: bytes, value: bytes) -> int:
        return await self._commit(Txn(then=(Put(key, value),)))

    async def _commit(self, txn: Txn) -> int:
        (result,) = await self.store.commit([txn])
        assert result.outcome is Outcome.COMMITTED
        return result.revision

    # What the store says

    async def record(self, handle: bytes, job: Job) -> pb.RunRecord:
        """Reads a run, in flight or ended."""
        run_id = keys.parse_handle_key(handle).run_id
        ended = keys.run_key("default", job.name, job.uid, run_id)
        snapshot = await self.store.get([handle, ended])
        found = [kv for kv in snapshot.kvs if kv.create_revision]
        assert len(found) == 1, "a run is in flight or has ended"
        return pb.RunRecord.FromString(found[0].value)

    async def state(self, handle: bytes, job: Job) -> RunState:
        return runs.STATE_OF[(await self.record(handle, job)).state]

    async def until(self, handle: bytes, job: Job, *states: RunState) -> pb.RunRecord:
        """Waits until a run is in one of the states."""
        while True:
            record = await self.record(handle, job)
            if runs.STATE_OF[record.state] in states:
                return record
            await asyncio.sleep(0.05)

    async def keys_below(self, prefix: bytes) -> list[bytes]:
        found: list[bytes] = []
        token = b""
        while True:
            page = await self.store.scan(
                prefix, prefix_end(prefix), keys_only=True, page_token=token
            )
            found += [kv.key for kv in page.kvs]
            token = page.next_token
            if not token:
                return found

    async def until_settled(self) -> None:
        """Waits until no run is in flight."""
        while await self.keys_below(b"active/"):  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.25)

    async def begun(self, count: int = 1) -> None:
        """Waits until so many attempts have begun."""
        await self.wait_for(lambda: len(self.executions) >= count)

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Waits until something is so."""
        while not condition():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)

    def tokens(self, handle: bytes) -> list[int]:
        """Gives the tokens of a run's executions in the order in which they began."""
        return [one.token for one in self.executions if one.handle == handle]
