"""The whole mesh on the pretend clock, scripted: the world that also runs the simulation's seeds.

The services are the real ones. What the workers execute is time that passes, at whose end there is
an effect on something outside the mesh, noted with the token under which it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.duration_pb2 import Duration

from sexton.internal.v1 import records_pb2
from sexton.v1 import job_pb2 as pb
from sexton.v1 import scheduler_pb2 as api
from sexton_core.instants import SECOND, Instant
from sexton_demos.telling import MIDNIGHT
from sexton_records import keys
from sexton_sim.check import Verdict, check
from sexton_sim.check.mesh import check_mesh
from sexton_sim.history import History
from sexton_sim.mesh.executor import Behaviour
from sexton_sim.mesh.plan import NAMESPACE, MeshPlan
from sexton_sim.mesh.users import Api
from sexton_sim.mesh.world import MeshWorld
from sexton_sim.process import Process
from sexton_sim.simulation import Host

SCRIPTED = replace(MeshPlan().faults, mean_pause_s=0.0)
"""Nothing happens to anybody but what the script says."""


@dataclass(slots=True, kw_only=True)
class Attempt:
    """What a worker did, as the task itself has noted it."""

    job: str
    run_id: str
    number: int
    token: int
    worker: str
    began: Instant
    ended: Instant | None = None
    how: str = ""
    """How it ended: `succeeded` is after its effect."""
    admitted: bool = False
    """Whether something outside that remembers the highest token let its effect in."""


class Town(MeshWorld):
    """Two coordinators, two queues, three workers with three slots each, and one user."""

    def __init__(self, play: Callable[[Any], Coroutine[Any, Any, None]], **plan: Any) -> None:
        plan = {"workers": 3, "slots": 3, "session_ms": 30_000, **plan}
        super().__init__(0, MeshPlan(users=0, faults=SCRIPTED, **plan))
        self._play = play
        self._names: dict[str, str] = {}
        self._user = self.loop.process("user")
        self.user: Api

    @classmethod
    def show(cls, play: Callable[[Any], Coroutine[Any, Any, None]], **plan: Any) -> Town:
        """Plays a script to its end, and has the checker hold its history against the promise."""
        town = cls(play, **plan)
        verdict = town.run().verdict
        assert verdict.ok, str(verdict)
        return town

    @property
    def now(self) -> Instant:
        """The exact time, which nobody in the town can know."""
        return self.loop.system.clock.wall_ns()

    def host(self, name: str) -> Host:
        """Gives one of its processes."""
        return next(host for host in self.hosts if host.name == name)

    def process(self, name: str) -> Process:
        """Gives the living process of that name."""
        process = self.host(name).process
        assert process is not None, "it was started"
        return process

    async def until(self, instant: Instant) -> None:
        """Lets time pass."""
        await asyncio.sleep((instant - self.now) / SECOND)

    def kill(self, name: str) -> None:
        """Kill -9, and nobody starts it again."""
        self.recorder.fault("crash", name)
        self.process(name).crash()

    def stop_all(self) -> None:
        """Cuts the power of the whole town."""
        for host in self.hosts:
            self.kill(host.name)

    def start_all(self) -> None:
        """Starts everybody who does not run."""
        for host in self.hosts:
            host.start()

    def isolate(self, name: str) -> None:
        """Breaks every connection of a process that goes on living."""
        for other in self.hosts:
            if other.name != name:
                self.recorder.fault("cut", other.name, source=name)
                self.network.cut(name, other.name)
                self.network.cut(other.name, name)
                self.network.reset(name, other.name)

    def join_again(self) -> None:
        """Mends every link."""
        self.recorder.fault("healed")
        self.network.heal_all()

    async def create(self, name: str, *, lasts_s: float = 0.05, **spec: Any) -> str:
        """Creates a job whose runs last so long; gives its uid."""
        command = Behaviour(lasts_s=lasts_s).command()
        job = pb.Job(
            name=f"namespaces/{NAMESPACE}/jobs/{name}",
            spec=pb.JobSpec(task=pb.Task(shell=pb.ShellTask(command=command)), **spec),
        )
        request = api.CreateJobRequest(job=job, request_id=f"create-{name}")
        uid: str = (await self.user.call("CreateJob", request)).job.uid
        self._names[uid] = name
        return uid

    async def leader(self) -> str:
        """Tells which coordinator leads."""
        return await self._holder("coordinator", keys.coordinator_lease(0))

    async def owner(self) -> str:
        """Tells which queue owns the line."""
        return await self._holder("queue", keys.queue_lease(0))

    async def _holder(self, role: str, lease: str) -> str:
        async with self._store_client(self._user) as store:
            (found,) = await store.list_leases(lease)
        member = records_pb2.MemberRecord.FromString(found.value)
        return f"{role}-{member.address[-1]}"  # the world numbers the ports as the processes

    def written(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yields what was ever put below a prefix, from the store's own log."""
        for durable in self.recorder.history().commits:
            for change in durable.commit.changes:
                if change.key.startswith(prefix) and change.after is not None:
                    yield change.key, change.after.value

    def killed(self) -> list[str]:
        """Names the processes that were killed, in order."""
        faults = self.recorder.history().of("fault")
        return [note.target for note in faults if note.what == "crash"]

    def not_run(self, job: str) -> list[records_pb2.DecisionRecord]:
        """Gives the records of a job's times that were not run."""
        return [
            records_pb2.DecisionRecord.FromString(value)
            for key, value in self.written(keys.DECISIONS)
            if self._names[key.decode().split("/")[1]] == job
        ]

    def attempts(self) -> list[Attempt]:
        """Gives what the workers did, in the order in which they began."""
        found: dict[tuple[str, int], Attempt] = {}
        for note in self.recorder.history().of("exec"):
            handle, token = note.facts["handle"], note.facts["token"]
            if note.what == "started":
                key = keys.parse_handle_key(handle.encode("latin-1"))
                found[handle, token] = Attempt(
                    job=self._names[key.uid],
                    run_id=key.run_id,
                    number=note.facts["number"],
                    token=token,
                    worker=note.target,
                    began=MIDNIGHT + note.at_ns,
                )
            elif note.what == "effect":
                found[handle, token].admitted = note.facts["accepted"]
            else:
                found[handle, token].ended = MIDNIGHT + note.at_ns
                found[handle, token].how = note.facts["how"]
        return list(found.values())

    async def _main(self) -> str:
        self.start_all()
        self.user = self._api(self._user)
        await self._user.spawn(self._play(self))
        self.stopping = True
        return ""

    def _judge(self, history: History, failure: str) -> Verdict:
        del failure
        verdict = check(history)
        check_mesh(history, verdict)
        return verdict


def every(seconds: int) -> list[pb.Schedule]:
    """Gives the schedule of a job that is due so often."""
    return [pb.Schedule(every=pb.Every(period=Duration(seconds=seconds)))]


def at(time: str) -> list[pb.Schedule]:
    """Gives the schedule of a job that is due once, on the day of the story."""
    return [pb.Schedule(at=pb.At(times=[f"2026-12-01T{time}Z"]))]
