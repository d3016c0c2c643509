"""Jobs that stand in their source no more go with it, only those; and what a change would do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from unit.coordinator.api.world import NS, S, World, every, shell, story

from sexton.errors import InvalidArgument, NotFound, TooLarge
from sexton.v1 import job_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import comparing, pruning
from sexton_coordinator.api.checks import Name
from sexton_records.times import instant_of, timestamp
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.types import Page, Snapshot

NONE = api.AppliedJob.CHANGE_NONE
CREATED = api.AppliedJob.CHANGE_CREATED
UPDATED = api.AppliedJob.CHANGE_UPDATED
PRUNED = api.AppliedJob.CHANGE_PRUNED


def job(name: str, seconds: int = 3_600, namespace: str = NS, **fields: Any) -> job_pb2.Job:
    spec = job_pb2.JobSpec(task=shell(), schedules=every(seconds), **fields)
    return job_pb2.Job(name=f"{namespace}/jobs/{name}", spec=spec)


async def apply(world: World, *jobs: job_pb2.Job, **fields: Any) -> api.ApplyJobsResponse:
    request = api.ApplyJobsRequest(jobs=jobs, **({"source": "a.yaml"} | fields))
    answer: api.ApplyJobsResponse = await world.jobs_api.ApplyJobs(request)
    return answer


def changes(answer: api.ApplyJobsResponse) -> dict[str, int]:
    return {applied.job.name.rpartition("/")[2]: applied.change for applied in answer.jobs}


async def names(world: World) -> list[str]:
    listed = await world.jobs_api.ListJobs(api.ListJobsRequest())
    return [found.name.rpartition("/")[2] for found in listed.jobs]


def test_only_what_its_source_has_left_goes() -> None:
    async def scenario(world: World) -> None:
        await apply(world, job("a"), job("b"), job("c"), job("by-hand"), job("moved"))
        await apply(world, job("of-b"), job("moved"), source="b.yaml")
        await apply(world, job("elsewhere", namespace="namespaces/other"))
        await world.make(f"{NS}/jobs/made")
        spec = job_pb2.JobSpec(task=shell("other"), schedules=every(60))
        changed = job_pb2.Job(name=f"{NS}/jobs/by-hand", spec=spec)
        await world.jobs_api.UpdateJob(api.UpdateJobRequest(job=changed))
        before = await world.revision()
        dry = await apply(world, job("a"), prune=True, validate_only=True)
        assert changes(dry) == {"a": NONE, "b": PRUNED, "c": PRUNED}
        assert await world.revision() == before
        answer = await apply(world, job("a"), prune=True)
        assert changes(answer) == {"a": NONE, "b": PRUNED, "c": PRUNED}
        assert [applied.job.name for applied in answer.jobs[1:]] == [
            f"{NS}/jobs/b",
            f"{NS}/jobs/c",
        ]
        assert await names(world) == ["a", "by-hand", "made", "moved", "of-b", "elsewhere"]
        again = await apply(world, job("a"), prune=True)
        assert changes(again) == {"a": NONE}

    story(scenario)


class ReadStore:
    """A store that notes which definitions it has shown."""

    def __init__(self, store: StoreClient) -> None:
        self._store = store
        self.shown: list[str] = []

    async def scan(self, *args: Any, **kwargs: Any) -> Page:
        return self._note(await self._store.scan(*args, **kwargs, limit=4))

    async def get(self, *args: Any, **kwargs: Any) -> Snapshot:
        return self._note(await self._store.get(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _note(self, read: Any) -> Any:
        self.shown += [kv.key.decode().rpartition("/")[2] for kv in read.kvs if kv.value]
        return read


def test_of_the_jobs_that_stay_only_the_keys_are_read() -> None:
    async def scenario(world: World) -> None:
        await apply(world, *(job(f"j{number:02}") for number in range(20)))
        store = ReadStore(world.store)
        pruner = pruning.Pruner(SimpleNamespace(store=store), None)  # type: ignore[arg-type]
        kept = [f"j{number:02}" for number in range(20) if number not in (3, 8, 17)]
        request = api.ApplyJobsRequest(source="a.yaml", prune_namespaces=["default"])
        wanted = pruning.wanted_of(request, [Name("default", name) for name in kept], 2**62)
        found = await pruner.find(wanted)
        assert [kv.key.decode()[-3:] for kv in found] == ["j03", "j08", "j17"]
        assert store.shown == ["j03", "j08", "j17"]
        few = wanted._replace(keep={b"jobs/default/j00", b"jobs/default/j19"})
        store.shown.clear()
        assert len(await pruner.find(few)) == 18
        assert sorted(store.shown) == [f"j{number:02}" for number in range(1, 20)]

    story(scenario)


def test_a_file_that_is_sent_in_parts_keeps_what_stands_in_the_others() -> None:
    async def scenario(world: World) -> None:
        old = [job(f"j{number}") for number in range(6)]
        await apply(world, *old)
        new = [job(f"j{number}", 7_200) for number in range(5)]
        first = await apply(world, *new[:2])
        second = await apply(world, *new[2:4])
        assert first.HasField("read_time")
        assert instant_of(second.read_time) >= instant_of(first.read_time)
        last = await apply(
            world,
            new[4],
            prune=True,
            prune_keep=[one.name for one in new[:4]],
            prune_read_time=first.read_time,
        )
        assert changes(last) == {"j4": UPDATED, "j5": PRUNED}
        assert len(await names(world)) == 5

    story(scenario)


def test_a_job_that_changed_since_the_first_read_is_left_alone() -> None:
    async def scenario(world: World) -> None:
        await apply(world, job("a"), job("b"), job("c"))
        first = await apply(world, job("a"))
        await world.until(world.mesh_now() + S)
        await world.jobs_api.PauseJob(api.PauseJobRequest(name=f"{NS}/jobs/b"))
        answer = await apply(world, job("a"), prune=True, prune_read_time=first.read_time)
        assert changes(answer) == {"a": NONE, "c": PRUNED}
        assert await names(world) == ["a", "b"]

    story(scenario)


def test_an_empty_file_prunes_where_it_is_told_to() -> None:
    async def scenario(world: World) -> None:
        await apply(world, *(job(f"j{number:03}") for number in range(230)))
        await apply(world, job("x", namespace="namespaces/other"))
        with pytest.raises(InvalidArgument) as raised:
            await apply(world, prune=True)
        assert raised.value.field == "prune_namespaces"
        answer = await apply(world, prune=True, prune_namespaces=["default"])
        assert list(changes(answer).values()) == [PRUNED] * 230
        assert await names(world) == ["x"]
        deleted = await world.below(b"state/")
        assert len(deleted) == 1

    story(scenario)


def test_pruning_meets_runs_and_other_changes() -> None:
    async def scenario(world: World) -> None:
        await apply(world, *(job(f"j{number}", 1) for number in range(5)))
        await world.until(world.mesh_now() + 3 * S)
        answer = await apply(world, prune=True, prune_namespaces=["default"])
        assert set(changes(answer).values()) == {PRUNED}
        await world.until(world.mesh_now() + 10 * S)
        assert await world.below(b"active/") == []
        assert await world.below(b"timers/") == []
        assert await world.below(b"deleted/") == []
        with pytest.raises(NotFound):
            await world.get(f"{NS}/jobs/j0")

    story(scenario)


def test_what_makes_no_sense_is_refused_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        await apply(world, job("a"), job("b"), job("c"))
        before = await world.revision()
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"source": ""}, "source"),
            ({"prune_namespaces": ["Default"]}, "prune_namespaces"),
            ({"prune_keep": ["a"]}, "prune_keep"),
            ({"prune_read_time": Timestamp(seconds=-1)}, "prune_read_time"),
        ]
        for fields, named in wrong:
            with pytest.raises(InvalidArgument) as raised:
                await apply(world, job("new"), prune=True, **fields)
            assert raised.value.field == named
        monkeypatch.setattr(pruning, "MAX_PRUNED", 2)
        with pytest.raises(TooLarge):
            await apply(world, job("new"), prune=True)
        assert await world.revision() == before

    story(scenario)


# What a change would do


def test_a_dry_run_tells_the_runs_that_are_gained_and_lost() -> None:
    async def scenario(world: World) -> None:
        now = world.mesh_now()
        day = 86_400 * S
        await apply(world, job("same", 3_600), job("faster", 3_600), job("gone", 86_400))
        before = await world.revision()
        answer = await apply(
            world,
            job("same", 3_600, priority=5),
            job("faster", 1_800),
            job("new", 86_400),
            validate_only=True,
            prune=True,
        )
        assert await world.revision() == before
        same, faster, new, gone = answer.jobs
        assert (same.change, same.gained, same.lost) == (UPDATED, 0, 0)
        assert (faster.gained, faster.lost) == (720, 0)
        first = instant_of(faster.gained_times[0])
        assert now < first <= now + 3_600 * S
        assert first % (3_600 * S) == 1_800 * S
        assert len(faster.gained_times) == 3
        assert (new.change, new.gained, new.lost) == (CREATED, 30, 0)
        assert (gone.change, gone.gained, gone.lost) == (PRUNED, 0, 30)
        assert instant_of(gone.lost_times[1]) - instant_of(gone.lost_times[0]) == day
        written = await apply(world, job("faster", 1_800))
        assert (written.jobs[0].gained, list(written.jobs[0].gained_times)) == (0, [])

    story(scenario)


def test_many_are_lower_bounds_and_equal_schedules_are_compared_once() -> None:
    async def scenario(world: World) -> None:
        jobs = [job(f"j{number}", 60) for number in range(300)]
        answer = await apply(world, *jobs, job("often", 1), validate_only=True)
        assert {applied.gained for applied in answer.jobs[:-1]} == {10_000}
        assert answer.jobs[-1].gained == 10_000

    story(scenario)


def test_when_there_is_too_much_to_compare_little_is_counted_of_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        monkeypatch.setattr(comparing, "_WORK_S", -1.0)
        answer = await apply(world, job("a", 60), validate_only=True)
        assert 0 < answer.jobs[0].gained <= 250
        assert timestamp(0) != answer.jobs[0].gained_times[0]

    story(scenario)


def test_a_change_of_zone_gains_and_loses() -> None:
    async def scenario(world: World) -> None:
        cron = job_pb2.Schedule(cron="0 3 * * *", time_zone="UTC")
        one = job_pb2.Job(name=f"{NS}/jobs/a")
        one.spec.CopyFrom(job_pb2.JobSpec(task=shell(), schedules=[cron]))
        await apply(world, one)
        one.spec.schedules[0].time_zone = "Europe/Berlin"
        answer = await apply(world, one, validate_only=True)
        assert (answer.jobs[0].gained, answer.jobs[0].lost) == (30, 30)
        one.spec.schedules[0].jitter.CopyFrom(Duration(seconds=5))
        answer = await apply(world, one, validate_only=True)
        assert (answer.jobs[0].gained, answer.jobs[0].lost) == (30, 30)

    story(scenario)
