"""Starts that somebody asks for: through the gate, once per request, also over a takeover."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from simulation.coordinator.mesh import COORDINATORS, Mesh, S, every

from sexton.errors import (
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    NotLeader,
    OutcomeUnknown,
)
from sexton.internal.v1 import coordinator_pb2
from sexton.v1 import job_pb2, run_pb2
from sexton_records.keys import shard_of

pytestmark = pytest.mark.slow


def test_a_trigger_starts_a_run_at_once_and_a_repeat_gets_the_same_answer() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        job = await mesh.create()
        first = await mesh.trigger(job, "one")
        assert first.run.origin == run_pb2.RUN_ORIGIN_MANUAL
        mesh.crash(await mesh.leader())
        again = await mesh.trigger(job, "one")
        assert again == first
        (run,) = await mesh.runs(job)
        assert first.run.name == f"namespaces/default/jobs/{job.job}/runs/{run.run_id}"
        await asyncio.sleep(0.1)
        assert (await mesh.trigger(job, "two")).run.name != first.run.name

    Mesh(lasts_s=0.05).run(scenario)


def test_the_same_request_id_with_another_body_is_refused() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        job = await mesh.create()
        await mesh.trigger(job, "one")
        with pytest.raises(InvalidArgument, match="request_id"):
            await mesh.trigger(job, "one", overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL)

    Mesh().run(scenario)


def test_a_request_is_known_in_every_shard_that_its_job_may_be_created_in_again() -> None:
    """Found by seed 17 with two shards: the second start was made."""

    async def scenario(mesh: Mesh) -> None:
        first = "a" * 24
        second = next(
            uid for uid in ("b" * 24, "c" * 24, "d" * 24) if shard_of(uid, 2) != shard_of(first, 2)
        )
        job = await mesh.create(uid=first)
        other = await mesh.create(uid=second)
        await mesh.trigger(job, "one")
        with pytest.raises(InvalidArgument, match="request_id"):
            await mesh.trigger(other, "one")
        assert await mesh.runs(other) == []

    Mesh(shards=2).run(scenario)


def test_jobs_that_are_not_there_do_not_end_a_tenure_however_often_they_are_asked_for() -> None:
    """Found by seed 330 (mesh, 15 s): one was taken up again before its first look had ended."""

    async def scenario(mesh: Mesh) -> None:
        leader = await mesh.leader()
        jobs = await mesh.create_many(20)
        gone = replace(jobs[0], uid="z" * 24)

        async def ask(number: int) -> None:
            await asyncio.sleep(number * 0.0002)
            with pytest.raises(NotFound):
                await mesh.trigger(gone, f"gone-{number}")

        async def start(number: int) -> None:
            await asyncio.sleep(number * 0.0002)
            await mesh.trigger(jobs[number % 20], f"there-{number}")

        await asyncio.gather(*map(ask, range(40)), *map(start, range(40)))
        assert mesh.coordinators[leader].leadership.counters.tenures == 1

    Mesh(lasts_s=0.01).run(scenario)


def test_a_job_that_was_started_lately_is_started_again_without_reading_anything() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.create(schedules=[])
        await mesh.trigger(job, "one")
        await asyncio.sleep(1)
        store = mesh.coordinators[await mesh.leader()].mesh.store
        read = []
        get = store.get

        async def reading(keys: Any, **options: Any) -> Any:
            read.append(keys)
            return await get(keys, **options)

        store.get = reading  # type: ignore[method-assign]
        assert (await mesh.trigger(job, "two")).run.name
        assert read == []
        await mesh.delete(job)
        with pytest.raises(NotFound):
            await mesh.trigger(job, "three")

    Mesh(lasts_s=0.05).run(scenario)


def test_a_start_is_refused_only_for_what_stands_when_it_is_asked_for() -> None:
    async def scenario(mesh: Mesh) -> None:
        together = {"overlap": job_pb2.OVERLAP_POLICY_ALLOW_ALL}
        job = await mesh.create(schedules=[], exclusive=True)
        await mesh.trigger(job, "one")
        with pytest.raises(InvalidArgument, match="exclusive"):
            await mesh.trigger(job, "two", **together)
        machine = mesh.coordinators[await mesh.leader()].leadership.require(0)._machine
        machine.changed = lambda *_: None  # type: ignore[method-assign] # the watch lags behind
        await mesh.edit(job, schedules=[], exclusive=False)
        assert (await mesh.trigger(job, "three", **together)).run.name
        machine.changed = lambda *_: None  # type: ignore[method-assign]
        await mesh.edit(job, schedules=[], exclusive=True)
        assert (await mesh.trigger(job, "three", **together)).run.name, "it is the same request"

    Mesh(lasts_s=0.05).run(scenario)


@pytest.mark.parametrize(
    "wrong",
    [
        {"request_id": ""},
        {"request_id": "x" * 129},
        {"request_id": "new\nline"},
        {"overlap": 99},
        {"uid": "short"},
        {"namespace": "../etc"},
        {"job": ""},
    ],
)
def test_a_trigger_that_says_nothing_of_use_is_refused(wrong: dict[str, Any]) -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.create()
        stub = await mesh.leader_stub()
        request = {"namespace": "default", "job": job.job, "uid": job.uid, "request_id": "r"}
        before = (await mesh.store.status()).revision
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            await stub.Trigger(coordinator_pb2.TriggerRequest(**(request | wrong)))
        assert (await mesh.store.status()).revision == before

    Mesh().run(scenario)


def test_a_replica_that_does_not_lead_names_the_leader() -> None:
    async def scenario(mesh: Mesh) -> None:
        job = await mesh.create()
        leader = await mesh.leader()
        (other,) = set(COORDINATORS) - {leader}
        await asyncio.sleep(0.5)
        request = coordinator_pb2.TriggerRequest(
            namespace="default", job=job.job, uid=job.uid, request_id="r"
        )
        with pytest.raises(NotLeader) as refused:
            await mesh.leader_stub_of(other).Trigger(request)
        assert refused.value.leader == COORDINATORS[leader]

    Mesh().run(scenario)


def test_a_trigger_passes_the_gate() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        job = await mesh.create()
        await mesh.trigger(job, "one")
        skipped = await mesh.trigger(job, "two")
        assert (skipped.decision, skipped.reason) == ("skipped", "overlap")
        waits = await mesh.trigger(job, "three", overlap=job_pb2.OVERLAP_POLICY_BUFFER_ALL)
        assert (waits.decision, waits.reason) == ("buffered", "waits")
        beside = await mesh.trigger(job, "four", overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL)
        assert beside.HasField("run")
        assert await mesh.trigger(job, "two") == skipped
        await asyncio.sleep(10)
        runs = await mesh.runs(job)
        assert sorted(run.reason for run in runs) == ["manual", "manual", "waited"]

    Mesh(lasts_s=3).run(scenario)


def test_a_paused_job_can_be_triggered_and_one_that_is_gone_can_not() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        job = await mesh.create(schedules=every(1))
        await mesh.pause(job)
        assert (await mesh.trigger(job, "one")).HasField("run")
        await asyncio.sleep(5)
        assert [run.origin for run in await mesh.runs(job)] == [run_pb2.RUN_ORIGIN_MANUAL]
        await mesh.delete(job)
        with pytest.raises(NotFound):
            await mesh.trigger(job, "two")

    Mesh().run(scenario)


def test_starts_that_wait_with_the_same_second_as_a_nominal_time_are_told_apart() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        job = await mesh.create(schedules=every(1))
        await mesh.until(await mesh.boundary(1) + S // 10)
        for number in range(3):
            await mesh.trigger(job, f"r{number}", overlap=job_pb2.OVERLAP_POLICY_CANCEL_OTHER)
        await asyncio.sleep(20)
        manual = [d for d in await mesh.decisions(job) if d.origin.value == "manual"]
        assert len(manual) == 2
        assert await mesh.assert_tiled(job) >= 20

    Mesh(lasts_s=10, stops_s=5).run(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_triggers_through_a_takeover_start_each_once(seed: int) -> None:
    async def scenario(mesh: Mesh) -> None:
        leader = await mesh.leader()
        job = await mesh.create(overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL)

        async def ask(number: int) -> str:
            while True:
                try:
                    return (await mesh.trigger(job, f"r{number}")).run.name
                except (OutcomeUnknown, DeadlineExceeded):  # asked again, with the same id
                    await asyncio.sleep(0.1)

        asked = [asyncio.create_task(ask(number)) for number in range(20)]
        process = mesh.processes[leader]
        process.after(20 + 13 * seed, process.crash)
        names = await asyncio.gather(*asked)
        assert len(set(names)) == 20
        assert len(await mesh.runs(job)) == 20

    Mesh(seed).run(scenario)
