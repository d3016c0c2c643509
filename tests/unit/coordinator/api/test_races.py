"""Changes that meet: each other, fires, crashes. One wins, nothing is half done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from unit.coordinator.api.world import JOB, MINUTES, NS, S, World, every, shell, story

from sexton import errors
from sexton.v1 import job_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton.v1.scheduler_pb2_grpc import JobServiceStub
from sexton_coordinator.api.changes import fitting
from sexton_core.policy.state import DecisionRange
from sexton_core.words import Decision, Reason
from sexton_records.times import timestamp

BOTH = ("coordinator-1", "coordinator-2")
ALLOW_ALL = job_pb2.OVERLAP_POLICY_ALLOW_ALL


def stubs(world: World) -> list[Any]:
    """Gives the job API of both replicas."""
    return [
        JobServiceStub(world.open_channel(address))
        for address in ("127.0.0.1:7400", "127.0.0.1:7402")
    ]


@pytest.mark.parametrize("seed", range(2))
def test_of_two_edits_of_one_version_one_wins(seed: int) -> None:
    async def scenario(world: World) -> None:
        made = await world.make()
        one, two = stubs(world)
        jobs = [job_pb2.Job(name=JOB, etag=made.etag, spec=made.spec) for _ in range(2)]
        jobs[0].spec.priority, jobs[1].spec.priority = 1, 2
        results = await asyncio.gather(
            one.UpdateJob(api.UpdateJobRequest(job=jobs[0])),
            two.UpdateJob(api.UpdateJobRequest(job=jobs[1])),
            return_exceptions=True,
        )
        won = [r for r in results if isinstance(r, api.UpdateJobResponse)]
        lost = [r for r in results if isinstance(r, errors.StaleRevision)]
        assert (len(won), len(lost)) == (1, 1)
        stored = await world.get()
        assert won[0].job == stored
        assert lost[0].facts["current"] == stored.etag
        assert stored.version == 2

    story(scenario, seed, coordinators=BOTH)


@pytest.mark.parametrize("seed", range(2))
def test_edits_without_an_etag_all_happen_one_after_the_other(seed: int) -> None:
    async def scenario(world: World) -> None:
        await world.make()
        both = stubs(world)

        async def edit(number: int) -> int:
            spec = job_pb2.JobSpec(task=shell(f"echo {number}"), schedules=MINUTES)
            request = api.UpdateJobRequest(job=job_pb2.Job(name=JOB, spec=spec))
            return int((await both[number % 2].UpdateJob(request)).job.version)

        versions = await asyncio.gather(*map(edit, range(6)))
        assert sorted(versions) == [2, 3, 4, 5, 6, 7]
        assert len(await world.below(b"versions/")) == 6
        assert len(await world.below(b"timers/")) == 1

    story(scenario, seed, coordinators=BOTH)


@pytest.mark.parametrize("seed", range(2))
def test_one_name_is_created_once_by_whoever_comes_first(seed: int) -> None:
    async def scenario(world: World) -> None:
        spec = job_pb2.JobSpec(task=shell(), schedules=MINUTES)
        request = api.CreateJobRequest(job=job_pb2.Job(name=JOB, spec=spec))
        results = await asyncio.gather(
            *(stub.CreateJob(request) for stub in stubs(world) for _ in range(3)),
            return_exceptions=True,
        )
        made = [r for r in results if isinstance(r, api.CreateJobResponse)]
        assert len(made) == 1
        assert sum(isinstance(r, errors.AlreadyExists) for r in results) == 5
        request.job.name = f"{NS}/jobs/other"
        request.request_id = "once"
        answers = await asyncio.gather(
            *(stub.CreateJob(request) for stub in stubs(world) for _ in range(3))
        )
        assert all(answer == answers[0] for answer in answers)
        assert len(await world.below(b"jobs/")) == 2
        assert len(await world.below(b"timers/")) == 2
        assert len(await world.below(b"requests/")) == 1

    story(scenario, seed, coordinators=BOTH)


def test_a_start_finds_the_job_that_has_the_name_now_wherever_it_was_made() -> None:
    async def scenario(world: World) -> None:
        first = await world.make(schedules=[])
        other, replica = stubs(world)
        started = await replica.TriggerJob(api.TriggerJobRequest(name=JOB, request_id="a"))
        assert started.run.job_uid == first.uid
        await other.DeleteJob(api.DeleteJobRequest(name=JOB))
        with pytest.raises(errors.NotFound):
            await replica.TriggerJob(api.TriggerJobRequest(name=JOB, request_id="b"))
        await replica.CreateJob(
            api.CreateJobRequest(job=job_pb2.Job(name=JOB, spec=job_pb2.JobSpec(task=shell())))
        )
        await replica.TriggerJob(api.TriggerJobRequest(name=JOB, request_id="c"))
        await other.DeleteJob(api.DeleteJobRequest(name=JOB))
        third = await world.make(schedules=[])
        with pytest.raises(errors.InvalidArgument, match="request_id"):
            await replica.TriggerJob(api.TriggerJobRequest(name=JOB, request_id="a"))
        started = await replica.TriggerJob(api.TriggerJobRequest(name=JOB, request_id="d"))
        assert started.run.job_uid == third.uid

    story(scenario, coordinators=BOTH)


@pytest.mark.parametrize("seed", range(2))
def test_edits_and_pauses_that_meet_fires_tile_the_times(seed: int) -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(1)
        job = await world.make(schedules=every(1), overlap=ALLOW_ALL)
        name = world.jobs.name_of("default", "report", job.uid)
        both = stubs(world)
        for number in range(8):
            await world.until(start + number * S + (seed - 1) * S // 1000)
            stub = both[number % 2]
            if number % 4 == 3:
                await stub.PauseJob(api.PauseJobRequest(name=JOB))
                await stub.ResumeJob(api.ResumeJobRequest(name=JOB, mode=api.RESUME_MODE_CATCH_UP))
            else:
                spec = job_pb2.JobSpec(
                    task=shell(f"echo {number}"), schedules=every(1), overlap=ALLOW_ALL
                )
                await stub.UpdateJob(api.UpdateJobRequest(job=job_pb2.Job(name=JOB, spec=spec)))
        await world.until(start + 9 * S + S // 2)
        assert await world.nominal_times(name, start) == list(range(10))
        assert await world.assert_tiled(name) >= 10
        assert (await world.get()).version == 7

    story(scenario, seed, coordinators=BOTH, lasts_s=0.3)


@pytest.mark.parametrize("seed", range(2))
def test_after_an_acknowledged_pause_or_delete_nothing_starts(seed: int) -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(1)
        names = [f"{NS}/jobs/j{number}" for number in range(8)]
        for name in names:
            await world.make(name, schedules=every(1), overlap=ALLOW_ALL)
        await world.until(start + 2 * S + (seed - 1) * S // 1000)
        done = {}
        for number, name in enumerate(names):
            if number % 2:
                await world.jobs_api.DeleteJob(api.DeleteJobRequest(name=name))
            else:
                await world.jobs_api.PauseJob(api.PauseJobRequest(name=name))
            done[name] = await world.revision()
        await world.until(start + 8 * S)
        kvs = await world.below(b"active/") + await world.below(b"runs/")
        page = await world.runs_api.ListRuns(api.ListRunsRequest(page_size=1000))
        assert len(page.runs) == len(kvs) > 0
        late = [
            run.name
            for run in page.runs
            if run.create_time.seconds * S + run.create_time.nanos > start + 3 * S
        ]
        assert late == []
        for name in names[1::2]:
            assert not [kv for kv in await world.below(b"state/") if name.encode() in kv.value]
        assert await world.below(b"deleted/") == []

    story(scenario, seed, lasts_s=0.2)


@pytest.mark.parametrize("seed", range(2))
def test_one_request_id_has_one_effect_whatever_it_asks_for(seed: int) -> None:
    async def scenario(world: World) -> None:
        spec = job_pb2.JobSpec(task=shell(), schedules=MINUTES)
        requests = [
            api.CreateJobRequest(
                job=job_pb2.Job(name=f"{NS}/jobs/j{number}", spec=spec), request_id="once"
            )
            for number in range(4)
        ]
        results = await asyncio.gather(
            *(stub.CreateJob(each) for stub in stubs(world) for each in requests),
            return_exceptions=True,
        )
        made = {r.job.name for r in results if isinstance(r, api.CreateJobResponse)}
        assert len(made) == 1
        assert sum(isinstance(r, errors.InvalidArgument) for r in results) == 6
        assert len(await world.below(b"jobs/")) == 1

    story(scenario, seed, coordinators=BOTH)


@pytest.mark.parametrize("seed", range(2))
def test_a_delete_that_meets_a_fire_forgets_no_run(seed: int) -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(1)
        names = [f"{NS}/jobs/j{number}" for number in range(12)]
        for name in names:
            await world.make(name, schedules=every(1), overlap=ALLOW_ALL)
        deletes = []
        for number, name in enumerate(names):
            await world.until(start + 2 * S + (number - 4) * S // 1_000)
            request = api.DeleteJobRequest(name=name)
            deletes.append(asyncio.ensure_future(world.jobs_api.DeleteJob(request)))
        await asyncio.gather(*deletes)
        await world.until(start + 15 * S)
        assert await world.below(b"active/") == [], "each was asked to end"
        assert await world.below(b"deleted/") == []
        assert len(await world.below(b"runs/")) >= 24

    story(scenario, seed, lasts_s=1_000)


def test_an_edit_by_a_replica_whose_clock_is_behind_does_not_rule_what_is_decided() -> None:
    async def scenario(world: World) -> None:
        leader = await world.leader()
        other = ({*BOTH} - {leader}).pop()
        mesh = world.coordinators[other].mesh
        mesh.now = lambda: world.mesh_now() - 6 * S // 10  # type: ignore[method-assign]
        world.connect(other)
        start = await world.boundary(1)
        await world.until(start - S // 2)
        await world.make(schedules=every(1))
        await world.until(start + 6 * S + S // 2)
        spec = job_pb2.JobSpec(task=shell("new"), schedules=every(1))
        await world.jobs_api.UpdateJob(api.UpdateJobRequest(job=job_pb2.Job(name=JOB, spec=spec)))
        await world.until(start + 9 * S + S // 2)
        for at, version in ((8, 1), (9, 2)):
            request = api.ExplainJobRequest(name=JOB, time=timestamp(start + at * S))
            answer = await world.jobs_api.ExplainJob(request)
            assert answer.run.job_version == version
            assert answer.gates[1].detail.startswith(f"version {version}: ")

    story(scenario, coordinators=BOTH, lasts_s=0.1)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("what", ["create", "update", "pause", "delete"])
def test_a_change_whose_answer_was_lost_happens_once(what: str, *, durable: bool) -> None:
    async def scenario(world: World) -> None:
        made = await world.make()
        await asyncio.sleep(1)

        async def crash(_batch: object) -> None:
            world.crash("store")
            await asyncio.sleep(0)

        if durable:
            world.disk.before_return = crash
        else:
            world.disk.before_durable = crash
        spec = job_pb2.JobSpec(task=shell("new"), schedules=MINUTES)
        job = job_pb2.Job(name=JOB, spec=spec, etag=made.etag)
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "create": lambda: world.make(f"{NS}/jobs/new"),
            "update": lambda: world.jobs_api.UpdateJob(api.UpdateJobRequest(job=job)),
            "pause": lambda: world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB)),
            "delete": lambda: world.jobs_api.DeleteJob(
                api.DeleteJobRequest(name=JOB, etag=made.etag)
            ),
        }
        call = asyncio.ensure_future(calls[what]())
        await asyncio.sleep(0.3)
        assert not call.done()
        await world.start_store()
        await call
        if what == "create":
            assert (await world.get(f"{NS}/jobs/new")).version == 1
        elif what == "delete":
            with pytest.raises(errors.NotFound):
                await world.get()
        else:
            stored = await world.get()
            assert (stored.version, stored.paused) == (
                (2, False) if what == "update" else (1, True)
            )
        jobs, timers = await world.below(b"jobs/"), await world.below(b"timers/")
        assert len(jobs) == {"create": 2, "update": 1, "pause": 1, "delete": 0}[what]
        assert len(timers) == {"create": 2, "update": 1, "pause": 0, "delete": 0}[what]

    story(scenario)


def test_a_call_that_is_cancelled_leaves_all_or_nothing() -> None:
    async def scenario(world: World) -> None:
        for number in range(60):
            call = asyncio.ensure_future(world.make(f"{NS}/jobs/j{number}"))
            await asyncio.sleep(number / 5_000)
            call.cancel()
        await asyncio.sleep(2)
        jobs = len(await world.below(b"jobs/"))
        assert 0 < jobs < 60
        assert len(await world.below(b"state/")) == jobs
        assert len(await world.below(b"timers/")) == jobs

    story(scenario)


def test_more_ranges_than_fit_one_commit_become_one() -> None:
    def record(first: int, decision: Decision) -> DecisionRange:
        return DecisionRange(decision, Reason.PAUSED, first, first + 1, 2, True, first, 0)

    few = [record(n, Decision.SKIPPED) for n in range(0, 20, 2)]
    assert fitting(few) == few
    kinds = (Decision.SKIPPED, Decision.EXCLUDED)
    many = [record(2 * n, kinds[n % 2]) for n in range(101)]
    (whole,) = fitting(many)
    assert (whole.first, whole.last, whole.times) == (0, 201, 102)
    assert whole.decision is Decision.SKIPPED


@pytest.mark.slow
def test_a_job_that_was_edited_a_hundred_times_while_paused_is_resumed() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(1)
        job = await world.make(schedules=every(1))
        name = world.jobs.name_of("default", "report", job.uid)
        await world.until(start + 3 * S)
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=JOB))
        refused = 0
        for number in range(103):
            spec = job_pb2.JobSpec(task=shell(f"echo {number}"), schedules=every(1))
            job_ = job_pb2.Job(name=JOB, spec=spec)
            await world.until(start + (4 + number) * S)
            try:
                await world.jobs_api.UpdateJob(api.UpdateJobRequest(job=job_))
            except errors.IllegalState:
                refused += 1
        assert refused > 0
        await world.jobs_api.ResumeJob(api.ResumeJobRequest(name=JOB))
        await world.until(world.mesh_now() + 3 * S)
        await world.assert_tiled(name)

    story(scenario, lasts_s=0.1)
