"""A simulated mesh around the real coordinators: a real store, a scripted queue, a user's hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration
from simulation.coordinator.scripted_queue import STORE, ScriptedQueue

from sexton.errors import OutcomeUnknown, Unavailable
from sexton.internal.v1 import coordinator_pb2, coordinator_pb2_grpc
from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import job_pb2, run_pb2, scheduler_pb2
from sexton_coordinator.api.changes import handles_of
from sexton_coordinator.app import Coordinator
from sexton_coordinator.jobs_store import JobReader, LoadedJob
from sexton_coordinator.writes import JobName, decision_ops, state_ops
from sexton_core.policy import (
    DecisionRange,
    Definition,
    Job,
    ahead_until,
    create,
    delete,
    edit,
    pause,
    resume,
)
from sexton_core.policy.timeline import Timeline
from sexton_core.words import Origin, ResumeMode
from sexton_records import keys
from sexton_records.state import decode_decision, handle_name
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.types import Compare, Delete, Outcome, Put, Target, Txn, absent, prefix_end
from sexton_runtime.randomness import SeededRandomness
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_sim.loop import SimLoop
from sexton_sim.network import Network
from sexton_sim.process import Process
from sexton_sim.transport import SimTransport
from sexton_store.app import Store
from sexton_store.contract import EngineConfig
from sexton_store.memory_disk import MemoryDisk

COORDINATORS = {"coordinator-1": "127.0.0.1:7400", "coordinator-2": "127.0.0.1:7402"}
S = 1_000_000_000


def every(seconds: int) -> list[job_pb2.Schedule]:
    return [job_pb2.Schedule(every=job_pb2.Every(period=Duration(seconds=seconds)))]


class Mesh:
    """One simulation; `run(scenario)` starts everything and runs the scenario as the user."""

    def __init__(
        self,
        seed: int = 0,
        *,
        shards: int = 1,
        coordinators: Sequence[str] = tuple(COORDINATORS),
        with_queue: bool = True,
        watch_window: int = 100_000,
        **queue: Any,
    ) -> None:
        self.seed = seed
        self.loop = SimLoop()
        self.network = Network(seed)
        self.transport = SimTransport(self.network)
        self.coordinators: dict[str, Coordinator] = {}
        self.processes: dict[str, Process] = {}
        self.queue = ScriptedQueue(mesh=self, **queue)
        self.store: StoreClient
        self.jobs: JobReader
        self.user = self.loop.process("user")
        self.disk = MemoryDisk()
        self._shards = shards
        self._names = coordinators
        self._with_queue = with_queue
        self._watch_window = watch_window
        self._made = 0

    def run(self, scenario: Callable[[Mesh], Awaitable[None]], *, limit_s: float = 900) -> None:
        async def play() -> None:
            channel = PolicyChannel(self.transport.channel(STORE))
            async with StoreClient(
                channel, clock=self.user.clock, randomness=SeededRandomness(f"user-{self.seed}")
            ) as self.store:
                self.jobs = JobReader(self.store, self._shards)
                await scenario(self)

        async def main() -> None:
            await self.start_store()
            if self._with_queue:
                await self.queue.start()
            for name in self._names:
                await self.start_coordinator(name)
            async with asyncio.timeout(limit_s):
                await self.user.spawn(play())

        self.loop.run(main())
        assert self.loop.unhandled == []

    # Processes

    async def start_store(self) -> None:
        process = self.processes["store"] = self.loop.process("store")
        self.disk = self.disk.crash()

        async def start() -> None:
            store = Store(
                disk=self.disk,
                transport=self.transport,
                clock=process.clock,
                randomness=SeededRandomness(f"store-{self.seed}-{process.incarnation}"),
                listen=STORE,
                config=EngineConfig(
                    coordinator_shards=self._shards, watch_window_events=self._watch_window
                ),
            )
            await store.lifecycle.start()

        await process.spawn(start())

    async def start_coordinator(self, name: str) -> Coordinator:
        process = self.processes[name] = self.loop.process(name)

        async def start() -> Coordinator:
            coordinator = Coordinator(
                transport=self.transport,
                clock=process.clock,
                randomness=SeededRandomness(f"{name}-{self.seed}-{process.incarnation}"),
                store=STORE,
                listen=COORDINATORS[name],
            )
            await coordinator.lifecycle.start()
            return coordinator

        coordinator = self.coordinators[name] = await process.spawn(start())
        return coordinator

    def crash(self, name: str) -> None:
        self.processes[name].crash()

    async def stop(self, name: str) -> None:
        """Stops a coordinator in order."""
        await self.processes[name].spawn(self.coordinators[name].lifecycle.stop())
        self.crash(name)

    async def leader(self, shard: int = 0) -> str:
        """Waits for a leader that acts; gives its name."""
        while True:
            for name, coordinator in self.coordinators.items():
                tenure = coordinator.leadership.tenure(shard)
                if self.processes[name].alive and tenure is not None and tenure.acting.is_set():
                    return name
            await asyncio.sleep(0.01)

    async def successor(self, former: str) -> str:
        """Waits until another leads; gives its name."""
        while (name := await self.leader()) == former:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)
        return name

    def counted(self, counter: str) -> int:
        """Sums a counter over all coordinators that ever lived under their names."""
        return sum(getattr(c.leadership.counters, counter) for c in self.coordinators.values())

    # Time

    def mesh_now(self) -> int:
        return self.store.mesh_time.now_ns()

    async def until(self, instant: int) -> None:
        await self.store.mesh_time.wait_until(instant)

    async def boundary(self, seconds: int, *, ahead_s: int = 3) -> int:
        """Gives the next multiple of `seconds` that is at least `ahead_s` away."""
        now = self.mesh_now() + ahead_s * S
        return now + (-now) % (seconds * S)

    # The user's hand

    async def create(self, *, uid: str = "", **spec: Any) -> JobName:
        """Creates a job; its name with its uid."""
        (name,) = await self.create_many(1, uid=uid, **spec)
        return name

    async def create_many(self, count: int, *, uid: str = "", **fields: Any) -> list[JobName]:
        task = job_pb2.Task(shell=job_pb2.ShellTask(command="true"))
        spec = job_pb2.JobSpec(**({"task": task} | fields))
        names, txns = [], []
        for _ in range(count):
            self._made += 1
            digits = "".join("abcdefghij"[int(d)] for d in f"{self._made:05}")
            new_uid = uid or f"{digits}xyzabcdefghijklmnop"
            name = self.jobs.name_of("default", f"job-{self._made}", new_uid)
            now = self.mesh_now()
            version = self.jobs.decode(name, spec, 1, now)
            record = pb.JobRecord(
                uid=name.uid, version=1, spec=spec, create_time_ns=now, effective_time_ns=now
            )
            job = _job(name, record, version.definition)
            change = create(job, now)
            ops = state_ops(name, change.state, change.next_due, None)
            txns.append(
                Txn(
                    compares=(absent(name.job_key), absent(name.state_key)),
                    then=(Put(name.job_key, record.SerializeToString()), *ops),
                )
            )
            names.append(name)
        for first in range(0, count, 500):
            for result in await self.store.commit(txns[first : first + 500]):
                assert result.outcome is Outcome.COMMITTED
        return names

    async def edit(self, name: JobName, **fields: Any) -> None:
        def change(loaded: LoadedJob) -> tuple[Any, ...]:
            spec = job_pb2.JobSpec()
            spec.CopyFrom(loaded.record.spec)
            for field_name in fields:
                spec.ClearField(field_name)  # type: ignore[arg-type]
            spec.MergeFrom(job_pb2.JobSpec(**fields))
            now = self.mesh_now()
            number = loaded.record.version + 1
            version = self.jobs.decode(name, spec, number, now)
            _, changed = edit(loaded.job, loaded.state, version.definition, now)
            effective = max(now, loaded.state.cursor)
            record = pb.JobRecord()
            record.CopyFrom(loaded.record)
            record.spec.CopyFrom(spec)
            record.version, record.effective_time_ns = number, effective
            former = pb.VersionRecord(
                version=number - 1,
                spec=loaded.record.spec,
                after_time_ns=loaded.record.effective_time_ns,
                until_time_ns=effective,
            )
            key = keys.version_key(name.uid, number - 1)
            return changed, record, [Put(key, former.SerializeToString())]

        await self._change(name, change)

    async def pause(self, name: JobName) -> None:
        await self._change(
            name, lambda it: (pause(it.job, it.state, self.mesh_now()), it.record, [])
        )

    async def resume(self, name: JobName, mode: ResumeMode = ResumeMode.NEXT) -> None:
        await self._change(
            name, lambda it: (resume(it.job, it.state, self.mesh_now(), mode), it.record, [])
        )

    async def _change(self, name: JobName, change: Callable[[LoadedJob], tuple[Any, ...]]) -> None:
        while True:
            loaded = await self.load_between_starts(name)
            changed, record, more = change(loaded)
            ops = state_ops(name, changed.state, changed.next_due, loaded.timer)
            txn = Txn(
                compares=self._unchanged(loaded),
                then=(
                    Put(name.job_key, record.SerializeToString()),
                    *ops,
                    *decision_ops(name.uid, changed.ranges),
                    *more,
                ),
                not_after_ns=changed.not_after,
            )
            if (await self.store.commit([txn]))[0].outcome is Outcome.COMMITTED:
                return

    async def delete(self, name: JobName) -> None:
        while True:
            loaded = await self.load_between_starts(name)
            now = self.mesh_now()
            record = pb.DeletedRecord(
                namespace=name.namespace,
                job=name.job,
                live=[handle_name(handle) for handle in delete(loaded.state, now).handles],
                delete_time_ns=now,
            )
            ops = [Delete(name.job_key), Delete(name.state_key)]
            if loaded.timer is not None:
                ops.append(Delete(keys.timer_key(name.shard, loaded.timer, name.uid)))
            deleted = Put(keys.deleted_key(name.shard, name.uid), record.SerializeToString())
            txn = Txn(compares=self._unchanged(loaded), then=(*ops, deleted))
            if (await self.store.commit([txn]))[0].outcome is Outcome.COMMITTED:
                return

    def _unchanged(self, loaded: LoadedJob) -> tuple[Compare, ...]:
        name = loaded.name
        return (
            Compare(name.job_key, Target.MOD_REVISION, loaded.job_revision),
            Compare(name.state_key, Target.MOD_REVISION, loaded.state_revision),
        )

    def leader_stub_of(self, name: str) -> Any:
        channel = PolicyChannel(self.transport.channel(COORDINATORS[name]))
        return coordinator_pb2_grpc.LeaderServiceStub(channel)

    async def leader_stub(self) -> Any:
        return self.leader_stub_of(await self.leader())

    async def trigger(
        self, name: JobName, request_id: str = "r", **fields: Any
    ) -> scheduler_pb2.TriggerJobResponse:
        """Asks whoever leads, until somebody does."""
        request = coordinator_pb2.TriggerRequest(
            namespace=name.namespace, job=name.job, uid=name.uid, request_id=request_id, **fields
        )
        while True:
            for address in COORDINATORS.values():
                channel = PolicyChannel(self.transport.channel(address))
                stub = coordinator_pb2_grpc.LeaderServiceStub(channel)
                try:
                    response = await stub.Trigger(request, timeout=30)
                except OutcomeUnknown:
                    raise
                except Unavailable:
                    continue
                finally:
                    await channel.close()
                return response.answer
            await asyncio.sleep(0.1)

    # What the store says

    async def below(self, prefix: bytes, store: StoreClient | None = None) -> list[Any]:
        store = store or self.store
        found: list[Any] = []
        token = b""
        while True:
            page = await store.scan(prefix, prefix_end(prefix), page_token=token)
            found += page.kvs
            token = page.next_token
            if not token:
                return found

    async def load(self, name: JobName) -> LoadedJob:
        loaded = await self.jobs.by_name(name.namespace, name.job)
        assert loaded is not None
        return loaded

    async def load_between_starts(self, name: JobName) -> LoadedJob:
        """Reads a job to be changed, as the API does."""
        while True:
            loaded = await self.load(name)
            until = ahead_until(handles_of(loaded), self.mesh_now())
            if until is None:
                return loaded
            await self.until(until)

    async def runs(self, name: JobName) -> list[pb.RunRecord]:
        """Gives every run of a job, live and ended, in order of nominal time."""
        kvs = await self.below(b"active/") + await self.below(b"runs/")
        records = {kv.key.rpartition(b"/")[2]: pb.RunRecord.FromString(kv.value) for kv in kvs}
        own = [record for record in records.values() if record.template.job_uid == name.uid]
        return sorted(own, key=lambda record: (record.nominal_ns, record.run_id))

    async def nominal_times(self, name: JobName, since: int = 0) -> list[int]:
        """Gives the nominal times of the scheduled runs from `since` on, in seconds after it."""
        return [
            (record.nominal_ns - since) // S
            for record in await self.runs(name)
            if record.origin == run_pb2.RUN_ORIGIN_SCHEDULE and record.nominal_ns >= since
        ]

    async def decisions(self, name: JobName) -> list[DecisionRange]:
        kvs = await self.below(keys.decisions_prefix(name.uid))
        return [decode_decision(pb.DecisionRecord.FromString(kv.value)) for kv in kvs]

    async def assert_tiled(self, name: JobName) -> int:
        """Holds every nominal time up to the cursor to exactly one decision (S8); counts them."""
        while True:  # until everything was read without a change in between
            loaded = await self.load(name)
            runs, decisions = await self.runs(name), await self.decisions(name)
            timers = await self.below(keys.timers_prefix(name.shard))
            if (await self.load(name)).state_revision == loaded.state_revision:
                break
        state = loaded.state
        timeline = Timeline(loaded.job, (state.rules[0]._replace(after=0),))
        fired = [record.nominal_ns for record in runs if record.run_id[0] == "t"]
        assert len(fired) == len(set(fired)), "a nominal time has two runs"
        assert all(nominal <= state.cursor for nominal in fired), "a run beyond the cursor"
        buffered = [s.nominal for s in state.buffered if s.origin is Origin.SCHEDULE]
        ranges = [r for r in decisions if r.origin is Origin.SCHEDULE]
        nominal = timeline.next_after(loaded.job.created_at)
        counted = 0
        while nominal is not None and nominal <= state.cursor:
            ways = fired.count(nominal) + buffered.count(nominal)
            ways += sum(r.first <= nominal <= r.last for r in ranges)
            assert ways == 1, f"{nominal} has {ways} decisions"
            counted += 1
            nominal = timeline.next_after(nominal)
        own = [kv.key for kv in timers if keys.parse_timer_key(kv.key).uid == name.uid]
        due = loaded.timer
        assert own == ([] if due is None else [keys.timer_key(name.shard, due, name.uid)])
        return counted


def _job(name: JobName, record: pb.JobRecord, definition: Definition) -> Job:
    return Job(
        namespace=name.namespace,
        name=name.job,
        uid=name.uid,
        created_at=record.create_time_ns,
        definitions=(definition,),
    )
