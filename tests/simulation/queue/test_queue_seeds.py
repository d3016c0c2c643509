"""Faults at random, from a seed: each run ends once, and everything that ran is accounted for.

A failing seed is the bug report: `Storm(seed)` does the same again.
"""

import asyncio
import os
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise

import pytest
from simulation.queue.mesh import NAMES, Execution, Job, Mesh
from simulation.queue.worker import Worker, fail, succeed

from sexton.errors import SextonError
from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import job_pb2, worker_pb2
from sexton_core.words import RunState
from sexton_records import runs

SEEDS = range(min(20, int(os.environ.get("SEXTON_SEEDS", "3"))))
STORM_S = 60.0
CALM_S = 200.0


class Storm(Mesh):
    """A mesh to which things happen."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.fired: list[tuple[bytes, Job]] = []
        self.workers: dict[str, Worker] = {}
        self.cancelled: set[bytes] = set()

    async def storm(self, _mesh: Mesh) -> None:
        jobs = [
            await self.job(),
            await self.job(exclusive=True),
            await self.job(delivery=job_pb2.DELIVERY_AT_MOST_ONCE),
            await self.job(priority=3, retry=job_pb2.Retry(max_attempts=50)),
        ]
        for number in range(3):
            self.start_worker(f"worker-{number}")
        deeds = [
            self.fire_some,
            self.fire_some,
            self.fire_some,
            self.cancel_one,
            self.crash_queue,
            self.crash_store,
            self.kill_worker,
            self.break_stream,
            self.cut_link,
            self.suspend,
            self.stop_queue,
        ]
        while self.now < STORM_S * 1e9:
            await asyncio.sleep(self.random.expovariate(2.0))
            with suppress(SextonError, TimeoutError):
                async with asyncio.timeout(5):
                    await self.random.choice(deeds)(jobs)
        self.network.heal_all()
        await self.calm()
        await self.judge()

    def start_worker(self, name: str) -> None:
        random = self.random

        def outcome(assignment: worker_pb2.Assignment) -> worker_pb2.Completion:
            return fail(assignment) if random.random() < 0.2 else succeed(assignment)

        lasts_s = random.choice((0.05, 1.0, 8.0))
        self.workers[name] = Worker(self, name, slots=5, lasts_s=lasts_s, outcome=outcome)

    async def fire_some(self, jobs: list[Job]) -> None:
        job = self.random.choice(jobs)
        count = self.random.randint(1, 10)
        push = self.random.random() < 0.7
        made = [self.make_run(job) for _ in range(count)]
        for key, value in made:  # committed or not: what is there at the end must have ended
            with suppress(SextonError):
                await self.put(key, value)
                self.fired.append((key, job))
        if push:
            await self.push([(key, value, 1) for key, value in made])

    async def cancel_one(self, _jobs: list[Job]) -> None:
        if self.fired:
            handle, _ = self.random.choice(self.fired)
            await self.end(handle, terminate=self.random.random() < 0.5)
            self.cancelled.add(handle)

    async def crash_queue(self, _jobs: list[Job]) -> None:
        name = self.random.choice(NAMES)
        self.crash(name)
        self.later(self.random.uniform(0, 5), lambda: self.start_queue(name))

    async def stop_queue(self, _jobs: list[Job]) -> None:
        name = self.random.choice(NAMES)
        if self.processes[name].alive:
            await self.processes[name].spawn(self.queues[name].lifecycle.stop())
            await self.crash_queue(_jobs)

    async def crash_store(self, _jobs: list[Job]) -> None:
        if self.random.random() < 0.3 and self.processes["store"].alive:
            self.crash("store")
            self.later(self.random.uniform(0, 4), self.start_store)

    async def kill_worker(self, _jobs: list[Job]) -> None:
        name = self.random.choice(sorted(self.workers))
        self.workers[name].kill()

        async def again() -> None:
            self.start_worker(name)

        self.later(self.random.uniform(0.1, 3), again)

    async def break_stream(self, _jobs: list[Job]) -> None:
        self.random.choice(list(self.workers.values())).break_stream()

    async def cut_link(self, _jobs: list[Job]) -> None:
        names = ["store", *NAMES, *self.workers]
        one, other = self.random.sample(names, 2)
        self.network.cut(one, other)

        async def heal() -> None:
            self.network.heal(one, other)

        self.later(self.random.uniform(0.2, 12), heal)

    async def suspend(self, _jobs: list[Job]) -> None:
        processes = [*self.processes.values(), *(one.process for one in self.workers.values())]
        process = self.random.choice(processes)
        if process.alive:
            process.suspend()

            async def resume() -> None:
                process.resume()

            self.later(self.random.uniform(0.2, 6), resume)

    def later(self, delay_s: float, deed: object) -> None:
        async def act() -> None:
            await asyncio.sleep(delay_s)
            with suppress(Exception):  # it may run already
                await deed()  # type: ignore[operator]

        self.loop.system.spawn(act())

    async def calm(self) -> None:
        """Waits until everything has ended."""
        async with asyncio.timeout(CALM_S):
            while True:
                with suppress(SextonError):
                    if not await self.keys_below(b"active/"):
                        return
                await asyncio.sleep(1)

    # Judging

    async def judge(self) -> None:
        by_run: dict[bytes, list[Execution]] = defaultdict(list)
        for one in self.executions:
            by_run[one.handle].append(one)
        assert len({one.token for one in self.executions}) == len(self.executions)
        for handle, job in self.fired:
            record = await self.record(handle, job)
            self.judge_run(record, by_run[handle])

    def judge_run(self, record: pb.RunRecord, executions: list[Execution]) -> None:
        state = runs.STATE_OF[record.state]
        template = record.template
        tokens = [attempt.token for attempt in record.attempts]
        assert tokens == sorted(set(tokens)), "tokens rise"
        assert [attempt.number for attempt in record.attempts] == list(range(1, len(tokens) + 1)), (
            "no attempt is missing"
        )
        assert {one.token for one in executions} <= set(tokens), "what ran was assigned"
        if state is RunState.SUCCEEDED:
            assert record.completed
            (accepted,) = [one for one in executions if one.token == record.token]
            assert accepted.ended is not None
        if record.HasField("cancel"):
            last = max((a.assign_time_ns for a in record.attempts), default=0)
            assert last <= record.cancel.request_time_ns + 10**9, "cancelled, and assigned"
        if template.at_most_once:
            assert len(executions) <= 1
        if template.exclusive:
            ordered = sorted(executions, key=lambda one: one.began)
            for before, after in pairwise(ordered):
                assert before.ended is not None, "two executions overlap"
                assert before.ended <= after.began, "two executions overlap"


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_every_run_ends_once_whatever_happens(seed: int) -> None:
    storm = Storm(seed)
    storm.run(storm.storm, limit_s=STORM_S + CALM_S + 60)
    assert len(storm.executions) > 20
