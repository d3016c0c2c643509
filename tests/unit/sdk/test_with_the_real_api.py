"""The SDK against the coordinators' own API, on the simulated network."""

import asyncio
import random
from dataclasses import replace
from datetime import timedelta

import pytest
from unit.cli.test_job_files_on_the_wire import EVERYTHING
from unit.coordinator.api.world import World, story

from sexton import (
    AsyncClient,
    BackfillState,
    Change,
    Decision,
    Every,
    JobSpec,
    Overlap,
    ResumeMode,
    Retry,
    RunState,
    ShellTask,
    errors,
)
from sexton_cli.jobfile import file_of, load, messages_of
from sexton_cli.yaml_text import yaml_text

BOTH = "127.0.0.1:7400,127.0.0.1:7402"
TWO = ("coordinator-1", "coordinator-2")
ADDRESSES = dict(zip(TWO, BOTH.split(","), strict=True))
SPEC = JobSpec(task=ShellTask("true"))


def client_of(world: World, address: str = "127.0.0.1:7400", **options) -> AsyncClient:
    options |= {"open_channel": world.transport.channel, "randomness": random.Random(7)}
    return AsyncClient(address, **options)


def test_a_job_file_is_applied_and_what_is_read_back_is_the_same_file() -> None:
    async def scenario(world: World) -> None:
        specs = messages_of(load(EVERYTHING))
        async with client_of(world, namespace="team") as client:
            first = await client.jobs.apply(specs, source="jobs.yaml")
            again = await client.jobs.apply(specs, source="jobs.yaml")
            read = {job.name: job async for job in client.jobs.list(full=True)}
            text = yaml_text(file_of("team", {name: job.spec for name, job in read.items()}))
            written = await client.jobs.apply(messages_of(load(text)), source="jobs.yaml")
        assert [each.change for each in first] == [Change.CREATED] * 4
        assert [each.change for each in again] == [Change.NONE] * 4
        assert [(each.change, each.changed) for each in written] == [(Change.NONE, ())] * 4
        assert {each.job.version for each in written} == {1}
        assert read["everything"].warnings
        assert read["everything"].source == "jobs.yaml"

    story(scenario)


def test_a_run_is_followed_from_its_trigger_to_its_end() -> None:
    async def scenario(world: World) -> None:
        async with client_of(world) as client:
            job = await client.jobs.create("a", SPEC)
            run = (await client.jobs.trigger(job)).run
            states = [change.state async for change in client.runs.watch(run, timeout_s=10)]
            waited = await client.runs.wait(run, timeout_s=10)
            listed = [each.id async for each in client.runs.list(job)]
        assert states == [RunState.WAITING, RunState.SUCCEEDED]
        assert (waited.state, listed) == (RunState.SUCCEEDED, [run.id])

    story(scenario)


def test_runs_are_cancelled_and_a_wait_sees_it() -> None:
    async def scenario(world: World) -> None:
        async with client_of(world) as client:
            await client.jobs.create("a", SPEC)
            run = (await client.jobs.trigger("a")).run
            await client.runs.cancel(run, reason="test")
            assert (await client.runs.wait(run, timeout_s=10)).state is RunState.CANCELLED
            with pytest.raises(errors.NotFound):
                await client.runs.wait("a/t20990101T000000Z-abcdefgh", timeout_s=1)

    story(scenario, lasts_s=30.0)


def test_lists_go_from_page_to_page(monkeypatch) -> None:
    monkeypatch.setattr("sexton._jobs_api._PAGE", 3)
    monkeypatch.setattr("sexton._runs_api._PAGE", 2)

    async def scenario(world: World) -> None:
        async with client_of(world) as client:
            await client.jobs.apply({f"job-{number}": SPEC for number in range(8)})
            names = [job.name async for job in client.jobs.list(prefix="job-")]
            runs = []
            for _ in range(5):
                runs.append((await client.jobs.trigger("job-1")).run)
                await client.runs.wait(runs[-1], timeout_s=10)
                await asyncio.sleep(1.0)  # virtual: the next one is of another second
            listed = [run.id async for run in client.runs.list("job-1")]
        assert names == [f"job-{number}" for number in range(8)]
        assert listed == [run.id for run in reversed(runs)]

    story(scenario)


def test_changes_meet_what_is_there() -> None:
    async def scenario(world: World) -> None:
        async with client_of(world) as client:
            job = await client.jobs.create("a", SPEC, request_id="once")
            assert (await client.jobs.create("a", SPEC, request_id="once")).uid == job.uid
            with pytest.raises(errors.AlreadyExists):
                await client.jobs.create("a", SPEC)
            changed = await client.jobs.update(
                job, JobSpec(task=ShellTask("x"), priority=5), fields=["priority"]
            )
            assert (changed.spec.priority, changed.spec.task) == (5, ShellTask("true"))
            with pytest.raises(errors.Conflict):
                await client.jobs.update(job, SPEC)
            assert (await client.jobs.pause("a", reason="test")).pause_reason == "test"
            assert not (await client.jobs.resume("a", mode=ResumeMode.NOW)).paused
            await client.jobs.delete(changed)
            await client.jobs.delete(changed)
            with pytest.raises(errors.NotFound):
                await client.jobs.delete("a")

    story(scenario)


def test_an_explanation_and_the_members_can_be_read() -> None:
    async def scenario(world: World) -> None:
        async with client_of(world) as client:
            spec = JobSpec(task=ShellTask("true"), schedules=(Every(timedelta(minutes=1)),))
            job = await client.jobs.create("a", spec)
            found = await client.jobs.explain(job, job.next_time)
            mesh = await client.members()
        assert (found.nominal_time, found.decision, found.forecast) == (
            job.next_time,
            "fired",
            True,
        )
        assert mesh.members[1].leading

    story(scenario)


def test_calls_survive_the_death_of_the_leader_and_one_trigger_is_one_run() -> None:
    async def scenario(world: World) -> None:
        leader = await world.leader()
        addresses = sorted(ADDRESSES.values(), key=lambda each: each != ADDRESSES[leader])
        async with client_of(world, addresses) as client:
            await client.jobs.create("a", SPEC)
            world.crash(leader)
            run = (await client.jobs.trigger("a")).run
            assert (await client.runs.wait(run, timeout_s=10)).state is RunState.SUCCEEDED
            assert [each.id async for each in client.runs.list("a")] == [run.id]

    story(scenario, coordinators=TWO)


def test_a_watch_goes_on_at_another_replica() -> None:
    async def scenario(world: World) -> None:
        leader = await world.leader()
        addresses = sorted(ADDRESSES.values(), key=lambda each: each != ADDRESSES[leader])
        async with client_of(world, addresses) as client:
            await client.jobs.create("a", SPEC)
            run = (await client.jobs.trigger("a")).run
            states = []
            async for change in client.runs.watch(run, timeout_s=60):
                states.append(change.state)
                if len(states) == 1:
                    world.crash(leader)
        assert states == [RunState.WAITING, RunState.SUCCEEDED]

    story(scenario, coordinators=TWO, lasts_s=3.0)


MINUTES = JobSpec(task=ShellTask("true"), schedules=(Every(timedelta(minutes=1)),))


@pytest.mark.slow
def test_the_past_and_the_future_of_a_job_can_be_read() -> None:
    async def scenario(world: World) -> None:
        async with client_of(world) as client:
            job = await client.jobs.create("a", MINUTES)
            await asyncio.sleep(150.0)
            later = replace(MINUTES, schedules=(Every(timedelta(minutes=5)),))
            await client.jobs.update("a", later)
            entries = [each async for each in client.jobs.decisions("a")]
            end = job.next_time + timedelta(minutes=9)
            ahead = [each async for each in client.jobs.decisions("a", end=end, descending=True)]
            versions = [each async for each in client.jobs.versions("a")]
            known = await client.jobs.preview("a", count=2)
            would = await client.jobs.preview(MINUTES, after=job.next_time, count=2)
            load = await client.jobs.load(interval=timedelta(hours=1))
        assert [each.decision for each in entries] == [Decision.FIRED] * 2
        assert [each.run.state for each in entries] == [RunState.SUCCEEDED] * 2
        assert ahead[0].decision is Decision.FORECAST
        assert [each.version for each in versions] == [2, 1]
        assert versions[1].spec.schedules == MINUTES.schedules
        assert versions[1].until_time == versions[0].after_time
        first, second = (each.nominal_time for each in known.times)
        assert second - first == timedelta(minutes=5)
        assert [each.nominal_time - job.next_time for each in would.times] == [
            timedelta(minutes=1),
            timedelta(minutes=2),
        ]
        assert (load.jobs, load.total, load.truncated) == (1, 288, False)

    story(scenario)


@pytest.mark.slow
def test_a_range_of_the_past_is_run_again() -> None:
    async def scenario(world: World) -> None:
        async with client_of(world) as client:
            job = await client.jobs.create("a", replace(MINUTES, overlap=Overlap.ALLOW_ALL))
            first = job.next_time
            await asyncio.sleep(190.0)
            last = first + timedelta(minutes=2)
            plan = await client.jobs.plan_backfill("a", first, last)
            done = await client.jobs.plan_backfill("a", first, last, skip_succeeded=True)
            made = await client.jobs.backfill("a", first, last, request_id="once")
            again = await client.jobs.backfill("a", first, last, request_id="once")
            ended = await client.backfills.wait(made, timeout_s=60)
            listed = [each.full_name async for each in client.backfills.list("a")]
            with pytest.raises(errors.NotFound):
                await client.backfills.get(f"a/{made.id[::-1]}")
        assert plan.times == (first, first + timedelta(minutes=1), last)
        assert done.times == ()
        assert again.full_name == made.full_name == ended.full_name
        assert (ended.state, ended.started, ended.total) == (BackfillState.DONE, 3, 3)
        assert listed == [made.full_name]

    story(scenario)


def test_what_failed_is_run_again_by_hand_or_from_the_dead_letters() -> None:
    async def scenario(world: World) -> None:
        async with client_of(world) as client:
            once = replace(SPEC, retry=Retry(max_attempts=1))
            await client.jobs.create("a", once)
            run = (await client.jobs.trigger("a")).run
            await client.runs.wait(run, timeout_s=10)
            letters = [each async for each in client.dead.list(job="a")]
            world.queue.fails = ""
            again = (await client.runs.retry(run)).run
            assert (await client.runs.wait(again, timeout_s=10)).state is RunState.SUCCEEDED
            would = await client.dead.requeue(job="a", dry_run=True)
            (done,) = await client.dead.requeue(fingerprint=letters[0].fingerprint)
            assert (await client.runs.wait(done.new_run, timeout_s=10)).retry_of == run.full_name
            left = [each async for each in client.dead.list()]
            purged = await client.dead.purge(all_namespaces=True)
        assert [letter.run.error.message for letter in letters] == ["no space left"]
        assert again.retry_of == run.full_name
        assert [each.run for each in would] == [run.full_name]
        assert (left, purged) == ([], 0)

    story(scenario, fails="no space left")


def test_queues_workers_and_the_store_can_be_looked_at() -> None:
    async def scenario(world: World) -> None:
        async with client_of(world) as client:
            queues = await client.mesh.queues()
            workers = await client.mesh.workers()
            store = await client.mesh.store()
        assert [(queue.name, queue.slots) for queue in queues] == [("default", 4)]
        assert [(worker.name, worker.connected) for worker in workers] == [("anna", True)]
        assert store.revision > 0
        assert not store.full
        assert any(lease.name == "coordinator/000" for lease in store.leases)

    story(scenario)


def test_what_a_source_holds_no_more_is_pruned_and_nothing_else(monkeypatch) -> None:
    monkeypatch.setattr("sexton._jobs_api._PART", 2)

    async def scenario(world: World) -> None:
        async with client_of(world) as client:
            specs = {f"job-{number}": SPEC for number in range(5)}
            await client.jobs.apply(specs, source="office.yaml")
            await client.jobs.apply({"elsewhere": SPEC}, source="other.yaml")
            await client.jobs.create("by-hand", SPEC)
            fewer = {f"job-{number}": SPEC for number in range(4)}
            would = await client.jobs.apply(fewer, source="office.yaml", prune=True, dry_run=True)
            told: list[tuple[int, int]] = []
            done = await client.jobs.apply(
                fewer, source="office.yaml", prune=True, on_progress=lambda *how: told.append(how)
            )
            names = [job.name async for job in client.jobs.list()]
            with pytest.raises(errors.InvalidArgument, match="source"):
                await client.jobs.apply(fewer, prune=True)
        assert [(each.job.name, each.change) for each in would[4:]] == [("job-4", Change.PRUNED)]
        assert [each.change for each in done] == [*[Change.NONE] * 4, Change.PRUNED]
        assert told == [(2, 4), (4, 4)]
        assert names == ["by-hand", "elsewhere", "job-0", "job-1", "job-2", "job-3"]

    story(scenario)


def test_a_dry_run_tells_which_times_are_gained_and_lost() -> None:
    async def scenario(world: World) -> None:
        async with client_of(world) as client:
            daily = replace(SPEC, schedules=(Every(timedelta(days=1)),))
            job = await client.jobs.create("a", daily)
            twice = replace(SPEC, schedules=(Every(timedelta(hours=12)),))
            (more,) = await client.jobs.apply({"a": twice}, dry_run=True)
            (none,) = await client.jobs.apply({"a": SPEC}, dry_run=True)
            assert (await client.jobs.get("a")).version == 1
        assert (more.change, more.gained, more.lost) == (Change.UPDATED, 30, 0)
        assert more.gained_times[0] == job.next_time - timedelta(hours=12)
        assert (none.gained, none.lost, none.lost_times[0]) == (0, 30, job.next_time)

    story(scenario)
