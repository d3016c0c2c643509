"""Runs through the API: trigger, read, list, cancel, wait for the end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from unit.coordinator.api.world import JOB, NS, S, World, every, shell, story

from sexton import errors
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import job_pb2, run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_records import keys
from sexton_records.times import instant_of, timestamp
from sexton_runtime.kv.types import Put, Txn

SCHEDULE = run_pb2.RUN_ORIGIN_SCHEDULE
OK, BAD = run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_STATE_FAILED


def test_a_trigger_makes_a_run_that_is_read_live_and_ended() -> None:
    async def scenario(world: World) -> None:
        job = await world.make(task=shell("echo 1"))
        run = await world.start_run("now")
        assert run.name.startswith(f"{JOB}/runs/m")
        assert run.job_uid == job.uid
        assert run.state == run_pb2.RUN_STATE_WAITING
        assert (await world.get()).live_runs == [run.name.rpartition("/")[2]]
        live = (await world.runs_api.GetRun(api.GetRunRequest(name=run.name))).run
        assert live.task.shell.command == "echo 1"
        ended = await world.ended(run)
        assert ended.state == run_pb2.RUN_STATE_SUCCEEDED
        assert (await world.get()).live_runs == [], "the state still names it, the handle is gone"

    story(scenario)


def test_a_trigger_that_is_repeated_is_one_run() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        first = await world.start_run("same")
        await asyncio.sleep(3)
        assert (await world.start_run("same")).name == first.name
        assert len(await world.below(b"active/") + await world.below(b"runs/")) == 1
        with pytest.raises(errors.InvalidArgument, match="request_id"):
            await world.start_run("same", overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL)

    story(scenario, lasts_s=1)


def test_the_gate_answers_a_trigger_that_does_not_start() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        first = await world.start_run("a")
        request = api.TriggerJobRequest(name=JOB, request_id="b")
        answer = await world.jobs_api.TriggerJob(request)
        assert answer.decision == "skipped"
        assert not answer.HasField("run")
        assert first.name.rpartition("/")[2] in answer.reason or answer.reason
        request = api.TriggerJobRequest(
            name=JOB, request_id="c", overlap=job_pb2.OVERLAP_POLICY_BUFFER_ONE
        )
        assert (await world.jobs_api.TriggerJob(request)).decision == "buffered"
        request = api.TriggerJobRequest(
            name=JOB, request_id="d", overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL
        )
        assert (await world.jobs_api.TriggerJob(request)).run.name

    story(scenario, lasts_s=100)


def test_a_trigger_waits_for_the_next_leader_within_its_deadline() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        leader = await world.leader()
        other = ({"coordinator-1", "coordinator-2"} - {leader}).pop()
        world.connect(other)
        world.crash(leader)
        request = api.TriggerJobRequest(name=JOB, request_id="r")
        answer = await world.jobs_api.TriggerJob(request, timeout=20)
        assert answer.run.name
        assert len(await world.below(b"active/") + await world.below(b"runs/")) == 1

    story(scenario, coordinators=("coordinator-1", "coordinator-2"))


def test_without_a_leader_a_trigger_says_so_before_its_deadline() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        world.crash("coordinator-1")
        await world.start_coordinator("coordinator-2")
        world.connect("coordinator-2")
        world.coordinators["coordinator-2"].mesh.directory._holders.clear()
        request = api.TriggerJobRequest(name=JOB, request_id="r")
        with pytest.raises(errors.Unavailable):
            await world.jobs_api.TriggerJob(request, timeout=0.2)

    story(scenario)


def test_a_leader_that_hangs_is_not_waited_for_beyond_the_deadline_of_its_own_api() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        tenure = world.coordinators["coordinator-1"].leadership.require(0)
        hanging = asyncio.Event()

        async def hang(_: object) -> None:
            await hanging.wait()

        tenure.trigger = hang  # type: ignore[assignment,method-assign]
        request = api.TriggerJobRequest(name=JOB, request_id="r")
        with pytest.raises(errors.Unavailable, match="does not answer"):
            await world.jobs_api.TriggerJob(request, timeout=5)
        del tenure.trigger  # type: ignore[attr-defined]
        assert (await world.jobs_api.TriggerJob(request)).run.name

    story(scenario)


class Spied:
    """What a replica reads from the store, and from which revisions on it follows it."""

    def __init__(self, world: World) -> None:
        self.store = world.coordinators["coordinator-1"].mesh.store
        self.get, self.watch = self.store.get, self.store.watch
        self.read: list[int] = []
        self.followed: list[int] = []
        self.lost = 0
        """Watches yet to be opened whose changes are forgotten."""
        self.store.get, self.store.watch = self.reading, self.following  # type: ignore[method-assign]

    async def reading(self, *of: Any, **options: Any) -> Any:
        snapshot = await self.get(*of, **options)
        self.read.append(snapshot.revision)
        return snapshot

    def following(self, prefix: bytes, start_revision: int = 0) -> Any:
        self.followed.append(start_revision)
        if self.lost:
            self.lost -= 1
            return self.compacted(start_revision)
        return self.watch(prefix, start_revision)

    async def compacted(self, revision: int) -> AsyncIterator[Any]:
        raise errors.Compacted(revision, revision + 1)
        yield


async def told_of(world: World, run: run_pb2.Run, *, ended_only: bool = False) -> list[int]:
    """Watches a run until its end, and gives the states that are told."""
    request = api.WatchRunsRequest(name=run.name, ended_only=ended_only)
    answers = [answer async for answer in world.runs_api.WatchRuns(request)]
    assert any(answer.synced for answer in answers)
    return [found.state for answer in answers for found in answer.runs]


WAITING = run_pb2.RUN_STATE_WAITING


def test_a_run_that_was_just_started_is_found_by_one_reading_and_followed_from_there() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        run = await world.start_run("r")
        await world.make(f"{NS}/jobs/other")
        spied = Spied(world)
        assert await told_of(world, run) == [WAITING, OK]
        assert len(spied.read) == 1
        assert spied.followed == [spied.read[0] + 1] * 2, "older changes may be forgotten"

    story(scenario, lasts_s=2)


def test_the_end_of_a_run_that_was_just_started_is_waited_for_without_a_reading() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        run = await world.start_run("r")
        (kv,) = await world.below(b"active/")
        spied = Spied(world)
        waits = [told_of(world, run, ended_only=True) for _ in range(2)]
        assert await asyncio.gather(*waits) == [[OK], [OK]]
        assert kv.create_revision + 1 in spied.followed
        assert (len(spied.read), len(spied.followed)) == (1, 2), "one reading for the second wait"
        assert await told_of(world, run, ended_only=True) == [OK]

    story(scenario, lasts_s=2)


def test_the_end_of_a_short_run_that_was_just_started_is_heard_of_without_the_store() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        spied = Spied(world)
        run = await world.start_run("r")
        assert await told_of(world, run, ended_only=True) == [OK]
        quick = await world.start_run("q")
        await asyncio.sleep(0.5)
        request = api.WatchRunsRequest(name=quick.name, ended_only=True)
        answers = [answer async for answer in world.runs_api.WatchRuns(request)]
        assert spied.followed == []

        found = await world.runs_api.GetRun(api.GetRunRequest(name=quick.name))
        assert [list(answer.runs) for answer in answers] == [[], [found.run]]

    story(scenario, lasts_s=0.3)


@pytest.mark.parametrize("what", ["mute", "dies"])
def test_the_end_of_a_run_is_found_where_the_owner_of_its_queue_does_not_tell(what: str) -> None:
    async def scenario(world: World) -> None:
        await world.make()
        run = await world.start_run("r")
        waiting = asyncio.create_task(told_of(world, run, ended_only=True))
        await asyncio.sleep(0.1)
        if what == "mute":
            world.queue.mute = True
        else:
            world.queue.process.crash()
            await world.queue.start()
        assert await waiting == [OK]

    story(scenario, lasts_s=0.3)


@pytest.mark.parametrize("lasts_s", [0.1, 3])
def test_a_run_whose_changes_are_forgotten_is_read_anew(lasts_s: float) -> None:
    async def scenario(world: World) -> None:
        world.queue.mute = True  # else nothing is read of its end
        await world.make()
        run = await world.start_run("r")
        spied = Spied(world)
        await asyncio.sleep(1)
        spied.lost = 1
        assert await told_of(world, run, ended_only=True) == [OK]
        assert spied.lost == 0
        other = await world.start_run("s")
        spied.lost = 2
        assert await told_of(world, other) == [WAITING, OK]

    story(scenario, lasts_s=lasts_s)


def test_a_run_is_cancelled_by_the_owner_of_its_queue() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        run = await world.start_run("r")
        await asyncio.sleep(0.1)
        world.queue.refuses = 2
        request = api.CancelRunRequest(name=run.name, reason="wrong data")
        answer = (await world.runs_api.CancelRun(request)).run
        assert answer.state == run_pb2.RUN_STATE_CANCELLED
        assert world.queue.ends == [("wrong data", run_pb2.CANCEL_MODE_CANCEL)]
        assert (await world.runs_api.CancelRun(request)).run == answer, "ended it stays ended"
        assert len(world.queue.ends) == 1

    story(scenario, lasts_s=100)


def test_a_run_is_terminated_by_the_owner_of_its_queue() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        run = await world.start_run("r")
        await asyncio.sleep(0.1)
        answer = (await world.runs_api.TerminateRun(api.TerminateRunRequest(name=run.name))).run
        assert answer.state == run_pb2.RUN_STATE_TERMINATED

    story(scenario, lasts_s=100)


def test_runs_of_a_deleted_job_are_still_found() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(1)
        await world.until(start - S // 2)
        await world.make(schedules=every(1), overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL)
        by_hand = await world.start_run("r")
        await world.until(start + 2 * S + S // 2)
        page = await world.runs_api.ListRuns(api.ListRunsRequest(parent=JOB))
        assert len(page.runs) == 4
        await world.jobs_api.DeleteJob(api.DeleteJobRequest(name=JOB))
        await world.make()
        for run in page.runs:
            found = (await world.runs_api.GetRun(api.GetRunRequest(name=run.name))).run
            assert found.job_uid == run.job_uid
        await world.ended(by_hand)
        after = await world.runs_api.ListRuns(api.ListRunsRequest(parent=JOB))
        assert {run.name for run in after.runs} == {run.name for run in page.runs}
        await asyncio.sleep(10)
        assert await world.below(b"deleted/") == []
        for run in page.runs:
            found = (await world.runs_api.GetRun(api.GetRunRequest(name=run.name))).run
            assert found.job_uid == run.job_uid
            assert found.HasField("end_time")

    story(scenario, lasts_s=5)


# Lists ------------------------------------------------------------------------------------------


async def write_runs(
    world: World, job: str, uid: str, runs: Mapping[str, tuple[run_pb2.RunState.ValueType, int]]
) -> None:
    """Writes ended runs as a queue's owner would: id -> (state, second of the end)."""
    ops = []
    for run_id, (state, second) in runs.items():
        template = records.RunTemplate(namespace="default", job=job, job_uid=uid)
        record = records.RunRecord(
            template=template,
            run_id=run_id,
            state=state,
            end_time_ns=second * S,
        )
        record.result_json = '"' + "x" * 100 + '"'
        entry = records.EndedRecord(namespace="default", job=job, state=state)
        run_key = keys.run_key("default", job, uid, run_id)
        ops.append(Put(run_key, record.SerializeToString()))
        ops.append(Put(keys.ended_key(0, second * S, uid, run_id), entry.SerializeToString()))
    for first in range(0, len(ops), 50):
        await world.store.commit([Txn(then=tuple(ops[first : first + 50]))])


async def listed(world: World, pages_of: int = 100, **fields: object) -> list[str]:
    found: list[str] = []
    token = ""
    for _ in range(500):
        request = api.ListRunsRequest(page_size=pages_of, page_token=token, **fields)  # type: ignore[arg-type]
        page = await world.runs_api.ListRuns(request)
        assert len(page.runs) <= pages_of
        found += [run.name.rpartition("/")[2] for run in page.runs]
        token = page.next_page_token
        if not token:
            return found
    raise AssertionError("pages without end")


def t(minute: int, uid: str) -> str:
    return f"t20250101T00{minute:02}00Z-{uid[:8]}"


def test_the_ended_runs_of_a_job_come_newest_first_whatever_asked_for_them() -> None:
    async def scenario(world: World) -> None:
        uid = (await world.make(schedules=[])).uid
        base = 1_735_689_600
        former = "222222222222222222222222"
        runs = {t(minute, uid): (OK, base + 60 * minute) for minute in range(10)}
        runs["m20250101T000430Z-aaaaaaaaaaaaaaaa"] = (BAD, base + 300)
        runs["m20250101T000500Z-aaaaaaaaaaaaaaaa"] = (BAD, base + 301)
        runs["bcccccccccccccccc-20240101T000000Z"] = (OK, base + 900)
        runs["bcccccccccccccccc-20240102T000000Z"] = (OK, base + 901)
        await write_runs(world, "report", uid, runs)
        await write_runs(world, "report", former, {t(3, former): (OK, base)})
        expected = [
            *(t(minute, uid) for minute in (9, 8, 7, 6, 5)),
            "m20250101T000500Z-aaaaaaaaaaaaaaaa",
            "m20250101T000430Z-aaaaaaaaaaaaaaaa",
            *(t(minute, uid) for minute in (4, 3, 2, 1, 0)),
            "bcccccccccccccccc-20240102T000000Z",
            "bcccccccccccccccc-20240101T000000Z",
            t(3, former),
        ]
        for size in (1, 2, 3, 7, 100):
            assert await listed(world, size, parent=JOB) == expected
        failed = await listed(world, 1, parent=JOB, states=[BAD])
        assert failed == expected[5:7]
        window = await listed(
            world,
            2,
            parent=JOB,
            after_time=timestamp((base + 120) * S),
            before_time=timestamp((base + 301) * S),
        )
        assert window == [t(5, uid), expected[6], t(4, uid), t(3, uid), t(2, uid)]

    story(scenario)


def test_the_runs_of_a_namespace_come_in_the_order_in_which_they_ended() -> None:
    async def scenario(world: World) -> None:
        one = (await world.make(f"{NS}/jobs/one", schedules=[])).uid
        two = (await world.make(f"{NS}/jobs/two", schedules=[])).uid
        base = 1_735_689_600
        await write_runs(world, "one", one, {t(m, one): (OK, base + m) for m in range(0, 10, 2)})
        await write_runs(world, "two", two, {t(m, two): (BAD, base + m) for m in range(1, 10, 2)})
        expected = [t(minute, two if minute % 2 else one) for minute in range(9, -1, -1)]
        for size in (1, 3, 100):
            assert await listed(world, size, parent=NS) == expected
            assert await listed(world, size) == expected
        assert await listed(world, 2, parent="namespaces/other") == []
        assert await listed(world, 2, parent=NS, states=[BAD]) == expected[::2]
        live = await world.start_run("r", f"{NS}/jobs/one")
        live_id = live.name.rpartition("/")[2]
        assert await listed(world, 1, parent=NS) == [live_id, *expected]
        assert await listed(world, 1, parent=f"{NS}/jobs/one") == [live_id, *expected[1::2]]
        assert await listed(world, 1, parent=NS, states=[run_pb2.RUN_STATE_WAITING]) == [live_id]
        assert await listed(world, 2, parent=NS, before_time=timestamp((base + 3) * S)) == [
            t(2, one), t(1, two), t(0, one),
        ]  # fmt: skip

    story(scenario, lasts_s=100)


def test_live_runs_are_listed_newest_first_and_lists_leave_out_what_is_large() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(1)
        await world.until(start - S // 2)
        job = await world.make(schedules=every(1), overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL)
        ended = {t(0, job.uid): (OK, world.mesh_now() // S)}
        await write_runs(world, "report", job.uid, ended)
        await world.until(start + 4 * S + S // 10)
        page = await world.runs_api.ListRuns(api.ListRunsRequest(parent=JOB))
        nominal = [(instant_of(run.nominal_time) - start) // S for run in page.runs[:-1]]
        assert nominal == [4, 3, 2, 1, 0]
        assert [len(run.result_json) for run in page.runs] == [0] * 6
        assert not any(run.HasField("task") for run in page.runs)
        assert await listed(world, 2, parent=JOB) == [
            run.name.rpartition("/")[2] for run in page.runs
        ]
        page = await world.runs_api.ListRuns(api.ListRunsRequest(parent=JOB, view=api.VIEW_FULL))
        assert page.runs[0].task.shell.command == "true"
        assert len(page.runs[-1].result_json) == 102

    story(scenario, lasts_s=100)


def test_a_page_does_bounded_work_where_few_runs_fit() -> None:
    async def scenario(world: World) -> None:
        job = await world.make(schedules=[])
        runs = {
            f"t2025010{day}T{hour:02}{minute:02}00Z-{job.uid[:8]}": (OK, 1_735_689_600)
            for day, hour, minute in itertools.product((1, 2), range(24), range(60))
        }
        runs[t(0, job.uid)] = (BAD, 1_735_689_600)
        await write_runs(world, "report", job.uid, runs)
        request = api.ListRunsRequest(parent=JOB, states=[BAD])
        page = await world.runs_api.ListRuns(request)
        assert list(page.runs) == []
        assert page.next_page_token
        assert await listed(world, parent=JOB, states=[BAD]) == [t(0, job.uid)]

    story(scenario)


# Watching ---------------------------------------------------------------------------------------
