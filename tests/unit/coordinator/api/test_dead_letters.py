"""Runs that failed for good: listed, run again exactly once each, taken off the list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from unit.coordinator.api.world import JOB, NS, S, World, every, story

from sexton.errors import IllegalState, InvalidArgument, NotFound, Unavailable
from sexton.v1 import dead_letter_pb2 as pb
from sexton.v1 import job_pb2, run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_records.times import timestamp

TOGETHER = job_pb2.OVERLAP_POLICY_ALLOW_ALL
LOSES = "no room for order 4711 at 10.0.0.7"


async def dead(world: World, **given: Any) -> list[pb.DeadLetter]:
    """Reads all pages."""
    found: list[pb.DeadLetter] = []
    request = pb.ListDeadLettersRequest(page_size=3, filter=pb.DeadLetterFilter(**given))
    while True:
        page = await world.dead_api.ListDeadLetters(request)
        found += page.dead_letters
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return found


async def requeue(world: World, *runs: str, **fields: Any) -> pb.RequeueDeadLettersResponse:
    given = {"filter": pb.DeadLetterFilter(runs=runs), "all": not runs} | fields
    request = pb.RequeueDeadLettersRequest(**given)
    answer: pb.RequeueDeadLettersResponse = await world.dead_api.RequeueDeadLetters(request)
    return answer


async def make_dead(world: World, count: int, name: str = JOB, **fields: Any) -> list[str]:
    """Makes a job and lets so many runs of it fail; gives their names, oldest first."""
    await world.make(name, **({"overlap": TOGETHER, "schedules": []} | fields))
    runs = []
    for number in range(count):
        run = await world.start_run(f"{name[-6:]}-{number}", name, overlap=TOGETHER)
        await world.ended(run)
        runs.append(run.name)
    return runs


def test_dead_letters_are_listed_newest_first_with_what_makes_them_alike() -> None:
    async def scenario(world: World) -> None:
        first = await make_dead(world, 4)
        world.queue.fails = "no room for order 4712 at 10.0.0.8"
        other = await make_dead(world, 1, f"{NS}/jobs/other")
        listed = await dead(world)
        assert [letter.run.name for letter in listed] == [*other, *first[::-1]]
        assert {letter.run.state for letter in listed} == {run_pb2.RUN_STATE_FAILED}
        assert listed[0].run.error.message.startswith("no room for order 4712")
        assert not listed[0].run.HasField("task")
        assert len({letter.fingerprint for letter in listed}) == 2, "by job"
        alike = await dead(world, fingerprint=listed[1].fingerprint)
        assert [letter.run.name for letter in alike] == first[::-1]
        assert [letter.run.name for letter in await dead(world, parent=JOB)] == first[::-1]
        assert len(await dead(world, parent=NS)) == 5
        assert await dead(world, parent="namespaces/elsewhere") == []
        since = listed[1].run.end_time
        assert len(await dead(world, after_time=since)) == 2
        assert len(await dead(world, before_time=since)) == 3
        named = await dead(world, runs=[first[0], first[2], f"{JOB}/runs/{first[0][-34:]}"])
        assert [letter.run.name for letter in named] == [first[2], first[0]]

    story(scenario, fails=LOSES)


def test_a_dead_letter_is_run_again_as_a_new_run_and_leaves_the_list() -> None:
    async def scenario(world: World) -> None:
        (run,) = await make_dead(world, 1)
        before = (await world.runs_api.GetRun(api.GetRunRequest(name=run))).run
        world.queue.fails = ""
        counted = await requeue(world, run, validate_only=True)
        assert [(one.run, one.new_run) for one in counted.requeued] == [(run, "")]
        assert len(await dead(world)) == 1
        answer = await requeue(world, run)
        (one,) = answer.requeued
        assert (one.run, one.reason, answer.more) == (run, "", False)
        assert await dead(world) == []
        new = (await world.runs_api.GetRun(api.GetRunRequest(name=one.new_run))).run
        assert new.retry_of == run
        assert new.nominal_time == before.nominal_time
        assert new.origin == run_pb2.RUN_ORIGIN_MANUAL
        assert (await world.ended(new)).state == run_pb2.RUN_STATE_SUCCEEDED
        again = await requeue(world, run)
        assert [(x.run, x.new_run) for x in again.requeued] == [(run, one.new_run)]
        kept = (await world.runs_api.GetRun(api.GetRunRequest(name=run))).run
        assert kept.state == run_pb2.RUN_STATE_FAILED, "history is not rewritten"

    story(scenario, fails=LOSES)


def test_all_of_a_job_that_runs_one_at_a_time_wait_in_line() -> None:
    async def scenario(world: World) -> None:
        runs = await make_dead(world, 5, overlap=job_pb2.OVERLAP_POLICY_SKIP)
        world.queue.fails = ""
        answer = await requeue(world)
        assert [one.run for one in answer.requeued] == runs
        assert all(one.new_run for one in answer.requeued)
        assert await dead(world) == []
        for one in answer.requeued:
            while True:
                try:
                    found = (await world.runs_api.GetRun(api.GetRunRequest(name=one.new_run))).run
                    break
                except NotFound:
                    await asyncio.sleep(0.2)
            assert (await world.ended(found)).retry_of == one.run

    story(scenario, fails=LOSES)


def test_what_finds_no_room_stays_on_the_list() -> None:
    async def scenario(world: World) -> None:
        skip = job_pb2.OVERLAP_POLICY_SKIP
        runs = await make_dead(world, 4, overlap=skip, max_buffered=2)
        world.queue.fails = ""
        answer = await requeue(world)
        assert [one.reason for one in answer.requeued] == ["", "", "", "dropped: buffer_full"]
        assert [letter.run.name for letter in await dead(world)] == [runs[3]]

    story(scenario, fails=LOSES, lasts_s=1.0)


def test_limits_say_that_there_is_more_and_the_oldest_go_first() -> None:
    async def scenario(world: World) -> None:
        runs = await make_dead(world, 5)
        answer = await requeue(world, limit=2)
        assert [one.run for one in answer.requeued] == runs[:2]
        assert answer.more
        await world.until(world.mesh_now() + S)
        answer = await requeue(world, limit=3, filter=pb.DeadLetterFilter(parent=JOB), all=False)
        assert [one.run for one in answer.requeued] == runs[2:5]
        assert answer.more, "the first two have failed again"

    story(scenario, fails=LOSES)


def test_dead_letters_of_a_deleted_job_stay_and_say_why() -> None:
    async def scenario(world: World) -> None:
        (run,) = await make_dead(world, 1)
        assert [letter.job_deleted for letter in await dead(world)] == [False]
        await world.jobs_api.DeleteJob(api.DeleteJobRequest(name=JOB))
        for again in (True, False):
            assert [letter.job_deleted for letter in await dead(world)] == [True]
            for validate_only in (True, False):
                answer = await requeue(world, validate_only=validate_only)
                assert [one.run for one in answer.requeued] == [run]
                assert answer.requeued[0].reason == "its job was deleted"
            await world.make(JOB if again else f"{NS}/jobs/other", schedules=[])
        purged = await world.dead_api.PurgeDeadLetters(pb.PurgeDeadLettersRequest(all=True))
        assert (purged.purged, purged.more) == (1, False)
        assert await dead(world) == []

    story(scenario, fails=LOSES)


def test_purging_takes_off_the_list_and_leaves_the_history() -> None:
    async def scenario(world: World) -> None:
        runs = await make_dead(world, 5)
        request = pb.PurgeDeadLettersRequest(filter=pb.DeadLetterFilter(runs=runs[:2]))
        request.validate_only = True
        assert (await world.dead_api.PurgeDeadLetters(request)).purged == 2
        assert len(await dead(world)) == 5
        request.validate_only = False
        assert (await world.dead_api.PurgeDeadLetters(request)).purged == 2
        assert (await world.dead_api.PurgeDeadLetters(request)).purged == 0
        request = pb.PurgeDeadLettersRequest(all=True, limit=2)
        answer = await world.dead_api.PurgeDeadLetters(request)
        assert (answer.purged, answer.more) == (2, True)
        assert [letter.run.name for letter in await dead(world)] == [runs[4]]
        for run in runs:
            await world.runs_api.GetRun(api.GetRunRequest(name=run))
        gone = await requeue(world, runs[0])
        assert gone.requeued[0].new_run == ""
        assert "dead letter" in gone.requeued[0].reason

    story(scenario, fails=LOSES)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_each_is_requeued_once_through_takeovers_and_repeated_calls(seed: int) -> None:
    async def scenario(world: World) -> None:
        runs = await make_dead(world, 5, overlap=job_pb2.OVERLAP_POLICY_SKIP)
        world.queue.fails = ""

        async def crash() -> None:
            await asyncio.sleep(0.004 + 0.016 * seed)
            world.crash(await world.leader())

        crashing = asyncio.create_task(crash())
        done: dict[str, str] = {}
        while len(done) < len(runs):
            alive = next(name for name in world.coordinators if world.processes[name].alive)
            world.connect(alive)
            try:
                answer = await requeue(world, *runs)
            except Unavailable:
                continue
            for one in answer.requeued:
                assert done.setdefault(one.run, one.new_run) == one.new_run != ""
        await crashing
        await world.until(world.mesh_now() + 20 * S)
        names = [
            run.name
            for run in (await world.runs_api.ListRuns(api.ListRunsRequest(parent=JOB))).runs
            if run.retry_of
        ]
        assert sorted(names) == sorted(done.values())
        assert await dead(world) == []

    story(scenario, seed, fails=LOSES, coordinators=("coordinator-1", "coordinator-2"))


def test_what_cannot_be_asked_is_refused() -> None:
    async def scenario(world: World) -> None:
        await make_dead(world, 1)
        before = await world.revision()
        bad: list[tuple[dict[str, Any], str]] = [
            ({"runs": [JOB]}, "filter.runs"),
            ({"runs": [f"{JOB}/runs/x"] * 1_001}, "filter.runs"),
            ({"parent": "jobs/report"}, "filter.parent"),
            ({"fingerprint": "x" * 201}, "filter.fingerprint"),
            (
                {"after_time": timestamp(5 * S), "before_time": timestamp(5 * S)},
                "filter.before_time",
            ),
        ]
        calls: list[Callable[..., Any]] = [
            lambda **f: world.dead_api.ListDeadLetters(pb.ListDeadLettersRequest(**f)),
            lambda **f: world.dead_api.RequeueDeadLetters(pb.RequeueDeadLettersRequest(**f)),
            lambda **f: world.dead_api.PurgeDeadLetters(pb.PurgeDeadLettersRequest(**f)),
        ]
        for fields, named in bad:
            for call in calls:
                with pytest.raises(InvalidArgument) as raised:
                    await call(filter=pb.DeadLetterFilter(**fields))
                assert raised.value.field == named
        for call in calls[1:]:
            with pytest.raises(InvalidArgument, match="something that says which, or `all`"):
                await call()
            for limit in (-1, 10_001):
                with pytest.raises(InvalidArgument) as raised:
                    await call(all=True, limit=limit)
                assert raised.value.field == "limit"
        for fields in ({"page_size": -1}, {"page_size": 1_001}, {"page_token": "x"}):
            with pytest.raises(InvalidArgument):
                await calls[0](**fields)
        assert await world.revision() == before

    story(scenario, fails=LOSES)


# Retries by hand


async def retry(world: World, run: str, request_id: str, **fields: Any) -> api.RetryRunResponse:
    request = api.RetryRunRequest(name=run, request_id=request_id, **fields)
    answer: api.RetryRunResponse = await world.runs_api.RetryRun(request)
    return answer


def test_an_ended_run_is_run_again_with_the_present_definition() -> None:
    async def scenario(world: World) -> None:
        start = await world.boundary(10)
        await world.make(schedules=every(10))
        await world.until(start + 2 * S)
        listed = await world.runs_api.ListRuns(api.ListRunsRequest(parent=JOB))
        first = await world.ended(listed.runs[0])
        spec = job_pb2.JobSpec(task=job_pb2.Task(shell=job_pb2.ShellTask(command="new")))
        await world.jobs_api.UpdateJob(api.UpdateJobRequest(job=job_pb2.Job(name=JOB, spec=spec)))
        answer = await retry(world, first.name, "again")
        assert answer.run.retry_of == first.name
        assert answer.run_name == answer.run.name
        assert answer.run.nominal_time == first.nominal_time
        assert answer.run.job_version == 2
        assert answer.run.task.shell.command == "new"
        same = await retry(world, first.name, "again")
        assert same.run.name == answer.run.name
        second = await world.ended(answer.run)
        third = await retry(world, second.name, "again of that")
        assert third.run.retry_of == second.name
        with pytest.raises(InvalidArgument, match="no other request had"):
            await retry(world, second.name, "again")
        trigger = await world.start_run("again", overlap=TOGETHER)
        assert trigger.retry_of == ""
        assert trigger.name != answer.run.name

    story(scenario)


def test_a_retry_passes_the_gate_and_keeps_what_it_repeats_while_it_waits() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=[])
        first = await world.ended(await world.start_run("one"))
        live = await world.start_run("two")
        answer = await retry(world, first.name, "a")
        assert (answer.decision, answer.reason, answer.run_name) == ("skipped", "overlap", "")
        waits = job_pb2.OVERLAP_POLICY_BUFFER_ONE
        answer = await retry(world, first.name, "b", overlap=waits)
        assert (answer.decision, answer.HasField("run")) == ("buffered", False)
        await world.ended(live)
        await world.until(world.mesh_now() + S)
        run = (await world.runs_api.GetRun(api.GetRunRequest(name=answer.run_name))).run
        assert run.retry_of == first.name

    story(scenario, lasts_s=2.0)


def test_a_run_that_is_live_or_of_a_former_job_is_not_retried() -> None:
    async def scenario(world: World) -> None:
        await world.make(schedules=[])
        run = await world.start_run("one")
        before = await world.revision()
        with pytest.raises(IllegalState) as raised:
            await retry(world, run.name, "a")
        assert raised.value.state == "waiting"
        assert "succeeded" in raised.value.allowed
        assert await world.revision() == before
        await world.ended(run)
        await world.jobs_api.DeleteJob(api.DeleteJobRequest(name=JOB))
        with pytest.raises(NotFound):
            await retry(world, run.name, "b")
        await world.make(schedules=[])
        with pytest.raises(IllegalState, match="deleted"):
            await retry(world, run.name, "c")
        with pytest.raises(InvalidArgument) as refused:
            await retry(world, run.name, "")
        assert refused.value.field == "request_id"

    story(scenario)
