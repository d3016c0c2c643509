"""Overlap policies through the leader, with every notice of a run's end lost."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from google.protobuf.duration_pb2 import Duration
from simulation.coordinator.mesh import Mesh, S, every

from sexton.v1 import job_pb2, run_pb2
from sexton_core.words import Decision, Reason

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("notices", ["told", "lost"])
def test_a_start_is_skipped_while_a_run_is_live_and_not_after_it(notices: str) -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(10)
        job = await mesh.create(schedules=every(2))
        await mesh.until(start + 19 * S)
        runs = await mesh.nominal_times(job)
        assert {after - before for before, after in pairwise(runs)} == {4}
        for decision in await mesh.decisions(job):
            assert (decision.decision, decision.reason) == (Decision.SKIPPED, Reason.OVERLAP)
        await mesh.assert_tiled(job)

    Mesh(mute=notices == "lost", lasts_s=3).run(scenario)


@pytest.mark.parametrize("notices", ["told", "lost"])
def test_one_start_waits_and_the_next_is_dropped(notices: str) -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(60)
        job = await mesh.create(
            schedules=every(2),
            overlap=job_pb2.OVERLAP_POLICY_BUFFER_ONE,
            catch_up=job_pb2.CatchUp(window=Duration(seconds=120)),
        )
        await mesh.until(start + 7 * S)
        await mesh.pause(job)
        await asyncio.sleep(60)
        await mesh.resume(job)
        await mesh.until(start + 85 * S)
        waited = [record for record in await mesh.runs(job) if record.reason == "waited"]
        assert len(waited) >= 2
        assert {d.reason for d in await mesh.decisions(job)} >= {Reason.BUFFER_FULL, Reason.PAUSED}
        if notices == "told":  # at once, when the one before it has ended
            ends = {record.end_time_ns for record in await mesh.runs(job)}
            assert all(min(abs(w.create_time_ns - e) for e in ends) < S // 10 for w in waited[:1])
        await mesh.assert_tiled(job)

    Mesh(mute=notices == "lost", lasts_s=5).run(scenario)


@pytest.mark.parametrize("notices", ["told", "lost"])
def test_all_starts_wait_in_line(notices: str) -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(10)
        job = await mesh.create(
            schedules=every(2),
            overlap=job_pb2.OVERLAP_POLICY_BUFFER_ALL,
            max_buffered=5,
        )
        await mesh.until(start + 40 * S)
        runs = await mesh.runs(job)
        assert [r.nominal_ns for r in runs] == sorted(r.nominal_ns for r in runs)
        spans = [(r.create_time_ns, r.end_time_ns or start + 60 * S) for r in runs]
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
        assert {d.reason for d in await mesh.decisions(job)} == {Reason.BUFFER_FULL}
        assert len((await mesh.load(job)).state.buffered) in {4, 5}
        await mesh.assert_tiled(job)

    Mesh(mute=notices == "lost", lasts_s=4).run(scenario)


@pytest.mark.parametrize(
    ("overlap", "ended"),
    [
        (job_pb2.OVERLAP_POLICY_CANCEL_OTHER, run_pb2.RUN_STATE_CANCELLED),
        (job_pb2.OVERLAP_POLICY_TERMINATE_OTHER, run_pb2.RUN_STATE_TERMINATED),
    ],
)
@pytest.mark.parametrize("notices", ["told", "lost"])
def test_a_newer_start_has_the_older_run_ended(
    overlap: job_pb2.OverlapPolicy.ValueType, ended: run_pb2.RunState.ValueType, notices: str
) -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(10)
        job = await mesh.create(schedules=every(10), overlap=overlap)
        await mesh.until(start + 29 * S)
        runs = await mesh.runs(job)
        assert [(r.nominal_ns - start) // S for r in runs] == [0, 10, 20]
        assert [r.state for r in runs[:2]] == [ended, ended]
        assert all(r.reason == "waited" for r in runs[1:])
        await mesh.assert_tiled(job)

    Mesh(mute=notices == "lost", lasts_s=100).run(scenario)


def test_a_request_to_end_a_run_is_repeated_until_it_has_ended() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(30)
        job = await mesh.create(schedules=every(30), overlap=job_pb2.OVERLAP_POLICY_CANCEL_OTHER)
        await mesh.until(start + S)
        mesh.queue.stops_s = 20
        await mesh.until(start + 31 * S)
        mesh.crash(await mesh.leader())
        await mesh.until(start + 55 * S)
        assert await mesh.nominal_times(job) == [start // S, start // S + 30]
        first = (await mesh.runs(job))[0]
        asked = [mode for run_id, mode in mesh.queue.ends if run_id == first.run_id]
        assert len(asked) >= 4
        assert set(asked) == {run_pb2.CANCEL_MODE_CANCEL}

    Mesh(lasts_s=100).run(scenario)


def test_all_starts_are_allowed_up_to_the_bound() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(1)
        job = await mesh.create(
            schedules=every(1), overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL, max_live=3
        )
        await mesh.until(start + 29 * S + S // 2)
        assert {d.reason for d in await mesh.decisions(job)} == {Reason.MAX_LIVE}
        runs = await mesh.runs(job)
        for run in runs:
            live = [
                r for r in runs if r.create_time_ns <= run.create_time_ns < (r.end_time_ns or 2**62)
            ]
            assert len(live) <= 3
        await mesh.assert_tiled(job)

    Mesh(mute=True, lasts_s=10).run(scenario)


def test_a_start_that_waits_survives_its_leader_and_a_deaf_queue() -> None:
    async def scenario(mesh: Mesh) -> None:
        await mesh.leader()
        start = await mesh.boundary(30)
        job = await mesh.create(schedules=every(30), overlap=job_pb2.OVERLAP_POLICY_BUFFER_ALL)
        await mesh.until(start + 31 * S)
        mesh.crash(await mesh.leader())
        await mesh.until(start + 55 * S)
        assert [r.reason for r in await mesh.runs(job)] == ["on_time", "waited"]
        assert {seen.pushed for seen in mesh.queue.seen.values()} == {False}

    Mesh(mute=True, deaf=True, lasts_s=35).run(scenario)
