"""Users change jobs while everything breaks: replicas, store, connections. What stands is whole."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest
from unit.coordinator.api.world import NS, World, every, shell, story

from sexton import errors
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import job_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton.v1.scheduler_pb2_grpc import JobServiceStub
from sexton_core.policy import Job, Rule
from sexton_core.policy.timeline import Timeline
from sexton_core.runs.table import LIVE
from sexton_core.words import Origin
from sexton_records import keys
from sexton_records.runs import STATE_OF
from sexton_sim.network import LinkProfile

ADDRESSES = {"coordinator-1": "127.0.0.1:7400", "coordinator-2": "127.0.0.1:7402"}
ROUGH = LinkProfile(stall_p=0.01, reset_p=0.01, duplicate_p=0.05)
NAMES = [f"{NS}/jobs/j{number}" for number in range(4)]
STORM_S = 25
LEFT_OPEN = (
    errors.Unavailable,
    errors.DeadlineExceeded,
    errors.ResourceExhausted,
    errors.Cancelled,
)
"""What a user has to expect while everything breaks."""

EXPECTED = (errors.NotFound, errors.AlreadyExists, errors.Conflict, *LEFT_OPEN)


class User:
    """Does at random what users do, and remembers what was acknowledged."""

    def __init__(self, world: World, number: int, seed: int) -> None:
        self.world = world
        self.random = random.Random(f"{seed}-{number}")
        self.stubs = [JobServiceStub(world.open_channel(a)) for a in ADDRESSES.values()]
        self.name = f"user-{number}"
        self.triggered: dict[str, str] = {}
        self.acknowledged = 0

    async def act(self) -> None:
        """One call."""
        stub: Any = self.random.choice(self.stubs)
        name = self.random.choice(NAMES)
        spec = job_pb2.JobSpec(
            task=shell(f"echo {self.random.randrange(5)}"),
            schedules=every(self.random.choice((1, 2, 7))),
            overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL,
        )
        job = job_pb2.Job(name=name, spec=spec)
        what = self.random.choice(
            ("create", "update", "apply", "pause", "resume", "delete", "trigger", "trigger")
        )
        request_id = f"{self.name}-{self.random.randrange(10**6)}"
        if what == "create":
            await self.twice(stub.CreateJob, api.CreateJobRequest(job=job, request_id=request_id))
        elif what == "update":
            await stub.UpdateJob(api.UpdateJobRequest(job=job))
        elif what == "apply":
            jobs = [job_pb2.Job(name=each, spec=spec) for each in NAMES]
            await stub.ApplyJobs(api.ApplyJobsRequest(jobs=jobs))
        elif what == "pause":
            await stub.PauseJob(api.PauseJobRequest(name=name))
        elif what == "resume":
            mode = self.random.choice(api.ResumeMode.values())
            await stub.ResumeJob(api.ResumeJobRequest(name=name, mode=mode))
        elif what == "delete":
            if self.random.random() < 0.3:
                await stub.DeleteJob(api.DeleteJobRequest(name=name))
        else:
            request = api.TriggerJobRequest(name=name, request_id=request_id)
            answer = await self.twice(stub.TriggerJob, request)
            if answer.run.name:
                self.triggered[request_id] = answer.run.name
        self.acknowledged += 1

    async def twice(self, call: Any, request: Any) -> Any:
        """Calls, and calls again where the outcome is not known, as a client does."""
        try:
            return await call(request, timeout=5)
        except LEFT_OPEN:
            return await call(request, timeout=5)

    async def live(self) -> None:
        while True:
            with suppress(*EXPECTED):
                await self.act()
            await asyncio.sleep(self.random.uniform(0, 0.4))


async def break_things(world: World, seed: int) -> None:
    choice = random.Random(seed)
    while True:
        await asyncio.sleep(choice.uniform(2, 5))
        victim = choice.choice(["store", *ADDRESSES])
        world.crash(victim)
        await asyncio.sleep(choice.uniform(0.1, 3))
        await (world.start_store() if victim == "store" else world.start_coordinator(victim))


async def assert_whole(world: World) -> None:
    """Holds the records against each other: a job, its state, its timer, its versions."""
    jobs = {
        keys.parse_job_key(kv.key)[1]: records.JobRecord.FromString(kv.value)
        for kv in await world.below(keys.JOBS)
    }
    states = {kv.key.rpartition(b"/")[2].decode(): kv for kv in await world.below(keys.STATE)}
    assert {record.uid for record in jobs.values()} == set(states)
    timers = [keys.parse_timer_key(kv.key) for kv in await world.below(keys.TIMERS)]
    for job, record in jobs.items():
        state = records.StateRecord.FromString(states[record.uid].value)
        assert state.HasField("paused_at_ns") is record.paused
        due = [timer.due for timer in timers if timer.uid == record.uid]
        assert due == ([state.timer_ns] if state.HasField("timer_ns") else [])
        former = [
            records.VersionRecord.FromString(kv.value)
            for kv in await world.below(keys.versions_prefix(record.uid))
        ]
        assert [version.version for version in former] == list(range(1, record.version))
        reach = [version.after_time_ns for version in former] + [record.effective_time_ns]
        assert [version.until_time_ns for version in former] == reach[1:]
        assert job in {name.rpartition("/")[2] for name in NAMES}
    assert {timer.uid for timer in timers} <= set(states)


async def assert_tiled(world: World, namespace: str, job: str) -> None:
    """Holds each nominal time of all versions, up to the cursor, to one decision."""
    while True:  # until everything was read without a change in between
        loaded = await world.jobs.by_name(namespace, job)
        assert loaded is not None
        name = loaded.name
        runs, decisions = await world.runs(name), await world.decisions(name)
        former = [
            records.VersionRecord.FromString(kv.value)
            for kv in await world.below(keys.versions_prefix(name.uid))
        ]
        again = await world.load(name)
        if again.state_revision == loaded.state_revision:
            break
    versions = [
        *((version.version, version.spec, version.after_time_ns) for version in former),
        (loaded.record.version, loaded.record.spec, loaded.record.effective_time_ns),
    ]
    definitions = tuple(
        world.jobs.decode(name, spec, number, after).definition for number, spec, after in versions
    )
    everything = Job(
        namespace=namespace,
        name=job,
        uid=name.uid,
        created_at=loaded.job.created_at,
        definitions=definitions,
    )
    timeline = Timeline(everything, tuple(Rule(after, number) for number, _, after in versions))
    fired = [record.nominal_ns for record in runs if record.run_id[0] == "t"]
    fired += [entry.nominal for entry in loaded.state.buffered if entry.origin is Origin.SCHEDULE]
    ranges = [r for r in decisions if r.origin is Origin.SCHEDULE]
    nominal = timeline.next_after(everything.created_at)
    decided = 0
    while nominal is not None and nominal <= loaded.state.cursor:
        ways = fired.count(nominal) + sum(r.first <= nominal <= r.last for r in ranges)
        assert ways == 1, f"{nominal} has {ways} decisions"
        decided += fired.count(nominal)
        nominal = timeline.next_after(nominal)
    assert decided == len(fired), "a run that no version asks for"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_whatever_breaks_jobs_stand_whole_and_requests_count_once(seed: int) -> None:
    async def scenario(world: World) -> None:
        users = [User(world, number, seed) for number in range(3)]
        world.network.set_profile(ROUGH)
        tasks = [asyncio.create_task(user.live()) for user in users]
        breaking = asyncio.create_task(break_things(world, seed))
        await asyncio.sleep(STORM_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        breaking.cancel()
        await asyncio.gather(breaking, return_exceptions=True)
        world.network.set_profile(LinkProfile())
        for name in ("store", *ADDRESSES):
            if not world.processes[name].alive:
                await (world.start_store() if name == "store" else world.start_coordinator(name))
        await world.leader()
        await asyncio.sleep(10)
        assert sum(user.acknowledged for user in users) > 20
        await assert_whole(world)
        for kv in await world.below(keys.JOBS):
            await assert_tiled(world, *keys.parse_job_key(kv.key))
        runs = await world.below(keys.ACTIVE) + await world.below(keys.RUNS)
        made = [kv.key.rpartition(b"/")[2].decode() for kv in runs]
        for user in users:
            for name in user.triggered.values():
                assert made.count(name.rpartition("/")[2]) == 1
        for kv in runs:
            record = records.RunRecord.FromString(kv.value)
            assert (STATE_OF[record.state] in LIVE) is kv.key.startswith(keys.ACTIVE)

    story(scenario, seed, coordinators=tuple(ADDRESSES), lasts_s=0.3)
