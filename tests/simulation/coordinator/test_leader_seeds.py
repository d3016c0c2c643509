"""Leaders under faults drawn from a seed: what every nominal time, start and deletion comes to."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter

import pytest
from simulation.coordinator.mesh import COORDINATORS, Mesh, S, every

from sexton.errors import SextonError
from sexton.v1 import job_pb2
from sexton_coordinator.writes import JobName
from sexton_core.words import ResumeMode
from sexton_records import keys

pytestmark = pytest.mark.slow

SEEDS = min(20, int(os.environ.get("SEXTON_SEEDS", "2")))
FAULTY_S = 40
OVERLAPS = (
    job_pb2.OVERLAP_POLICY_SKIP,
    job_pb2.OVERLAP_POLICY_BUFFER_ONE,
    job_pb2.OVERLAP_POLICY_BUFFER_ALL,
    job_pb2.OVERLAP_POLICY_CANCEL_OTHER,
    job_pb2.OVERLAP_POLICY_TERMINATE_OTHER,
    job_pb2.OVERLAP_POLICY_ALLOW_ALL,
)
CATCH_UPS = (
    job_pb2.CatchUp.POLICY_NONE,
    job_pb2.CatchUp.POLICY_LATEST,
    job_pb2.CatchUp.POLICY_EARLIEST,
    job_pb2.CatchUp.POLICY_ALL,
)


class Story:
    """What happens in one seed."""

    def __init__(self, mesh: Mesh, seed: int) -> None:
        self.mesh = mesh
        self.random = random.Random(f"leader-story-{seed}")
        self.jobs: list[JobName] = []
        self.deleted: list[JobName] = []
        self.triggered: Counter[str] = Counter()

    async def play(self) -> None:
        mesh, rng = self.mesh, self.random
        await mesh.leader()
        for overlap in OVERLAPS:
            for _ in range(2):
                self.jobs.append(
                    await mesh.create(
                        schedules=every(rng.choice([1, 2, 3])),
                        overlap=overlap,
                        max_buffered=5,
                        max_live=4,
                        catch_up=job_pb2.CatchUp(policy=rng.choice(CATCH_UPS)),
                    )
                )
        async with asyncio.timeout(600):
            end = mesh.mesh_now() + FAULTY_S * S
            users = [asyncio.create_task(self.user(end)) for _ in range(3)]
            while mesh.mesh_now() < end:
                await asyncio.sleep(rng.expovariate(1 / 1.5))
                await self.fault()
            await self.heal()
            await asyncio.gather(*users)
        await asyncio.sleep(15)
        await self.judge()

    async def user(self, end: int) -> None:
        """Changes jobs; where the outcome is not known, the change may have happened."""
        mesh, rng = self.mesh, self.random
        while mesh.mesh_now() < end:
            await asyncio.sleep(rng.expovariate(1 / 0.5))
            if not self.jobs:
                return
            job = rng.choice(self.jobs)
            try:
                async with asyncio.timeout(20):
                    await self.change(job)
            except (SextonError, TimeoutError, AssertionError):
                continue  # unreachable, or deleted by another user

    async def change(self, job: JobName) -> None:
        mesh, rng = self.mesh, self.random
        draw = rng.random()
        if draw < 0.3:
            await mesh.edit(job, description=str(draw))
        elif draw < 0.45:
            await mesh.pause(job)
        elif draw < 0.7:
            await mesh.resume(job, rng.choice(list(ResumeMode)))
        elif draw < 0.97 or len(self.deleted) > 3:
            await mesh.trigger(job, f"r{rng.randrange(50)}", overlap=rng.choice(OVERLAPS))
        elif job in self.jobs:
            self.jobs.remove(job)
            self.deleted.append(job)
            await mesh.delete(job)

    async def fault(self) -> None:
        mesh, rng = self.mesh, self.random
        name = rng.choice([*COORDINATORS, *COORDINATORS, "store", "queue"])
        process = mesh.queue.process if name == "queue" else mesh.processes[name]
        draw = rng.random()
        if draw < 0.35:
            process.after(rng.randrange(1, 200), process.crash)
            await asyncio.sleep(rng.uniform(0.1, 3))
            await self.restart(name)
        elif draw < 0.6:
            process.suspend()
            await asyncio.sleep(rng.uniform(0.1, 5))
            process.resume()
        elif draw < 0.9:
            other = rng.choice([n for n in (*COORDINATORS, "store", "queue") if n != name])
            mesh.network.cut(name, other)
            await asyncio.sleep(rng.uniform(0.1, 5))
            mesh.network.heal_all()
        else:
            mesh.queue.mute = rng.random() < 0.5
            mesh.queue.deaf = rng.random() < 0.5

    async def restart(self, name: str) -> None:
        mesh = self.mesh
        if name == "queue":
            mesh.queue.process.crash()
            await mesh.queue.start()
            return
        mesh.crash(name)
        if name == "store":
            await mesh.start_store()
        else:
            await mesh.start_coordinator(name)

    async def heal(self) -> None:
        mesh = self.mesh
        mesh.network.heal_all()
        mesh.queue.mute = mesh.queue.deaf = False
        for name in ("store", *COORDINATORS):
            if not mesh.processes[name].alive:
                await self.restart(name)
        if not mesh.queue.process.alive:
            await self.restart("queue")

    async def judge(self) -> None:
        mesh = self.mesh
        for job in self.deleted:
            loaded = await mesh.jobs.by_name(job.namespace, job.job)
            if loaded is not None:  # the deletion was not acknowledged, and did not happen
                self.jobs.append(job)
        for job in self.jobs:
            await mesh.resume(job)
        await asyncio.sleep(8)
        uids = {job.uid for job in self.jobs}
        for job in self.jobs:
            assert await mesh.assert_tiled(job) >= FAULTY_S // 3
            cursor = (await mesh.load(job)).state.cursor
            assert mesh.mesh_now() - cursor < 5 * S
        assert await mesh.below(b"deleted/") == []
        assert {kv.key.split(b"/")[2].decode() for kv in await mesh.below(b"buffered/")} <= uids
        live = await mesh.below(b"active/")
        assert {keys.parse_handle_key(kv.key).uid for kv in live} <= uids
        for coordinator in mesh.coordinators.values():
            counters = coordinator.leadership.counters
            assert (counters.unreadable, counters.oversized, counters.rearmed) == (0, 0, 0)
            assert not coordinator.leadership.failed.is_set()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_doubled_whatever_happens(seed: int) -> None:
    async def scenario(mesh: Mesh) -> None:
        await Story(mesh, seed).play()

    Mesh(seed, lasts_s=1.5, stops_s=0.5).run(scenario)
