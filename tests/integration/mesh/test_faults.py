"""A mesh of real processes whose processes die: what its jobs wrote tells what happened.

One mesh serves all tests in turn, under a load that never stops; each test ends with the load
judged from its first second on.
"""

from __future__ import annotations

import base64
import json
import signal
import time
import uuid
from contextlib import suppress

import pytest
from integration.mesh.load import SteadyLoad
from integration.mesh.mesh_process import (
    PATIENCE_S,
    MeshProcess,
    Process,
    alive,
    family,
    wait_for,
)

from sexton import JobSpec, Overlap, RunState
from sexton.errors import Unavailable

pytestmark = pytest.mark.slow

OUTAGE_S = 4.0
"""For so long a process is killed again whenever it comes back."""


def test_the_leader_is_killed_and_no_nominal_time_is_lost_or_doubled(
    mesh: MeshProcess, load: SteadyLoad
):
    first = mesh.leader("coordinator")
    mesh.send(first, signal.SIGKILL)
    mesh.leader("coordinator", after=first)
    mesh.replaced(first)
    load.check()
    assert f"{first.name} ended (killed by SIGKILL)" in mesh.said()


def test_a_killed_workers_run_starts_elsewhere_and_what_it_had_started_is_dead(
    mesh: MeshProcess, load: SteadyLoad
):
    with mesh.client() as client:
        client.jobs.create("long", JobSpec(task=mesh.witness("long", 600.0, later=1.0)))
        run = client.jobs.trigger("long").run
        assert run is not None
        (first,) = mesh.wait_for_lines("long", 1)
        victim = worker_of(mesh, first.pid)
        theirs = family(first.pid)
        mesh.send(victim, signal.SIGKILL)
        _, second = mesh.wait_for_lines("long", 2)
        assert (second.run, second.attempt) == (first.run, 2)
        assert second.token > first.token
        assert not any(alive(pid) for pid in theirs)
        assert worker_of(mesh, second.pid).name != victim.name
        ended = client.runs.wait(run, timeout_s=PATIENCE_S)
    assert ended.state is RunState.SUCCEEDED
    assert [attempt.number for attempt in ended.attempts] == [1, 2]
    ends = [line for line in mesh.lines("long") if line.event == "end"]
    assert [(line.attempt, line.token) for line in ends] == [(2, second.token)]
    mesh.replaced(victim)
    load.check()


@pytest.mark.parametrize("role", ["store", "queue"])
def test_a_run_outlives_the_outage_of(mesh: MeshProcess, load: SteadyLoad, role: str):
    job = f"through-outage-of-{role}"
    with mesh.client() as client:
        client.jobs.create(job, JobSpec(task=mesh.witness(job, OUTAGE_S + 1)))
        run = client.jobs.trigger(job).run
        assert run is not None
        mesh.wait_for_lines(job, 1)
        hold_down(mesh, role)
        # It ended while nobody could take note, or a little later: its own file knows.
        mesh.wait_for_lines(job, 1, "end")
        ended = client.runs.wait(run, timeout_s=PATIENCE_S)
    assert ended.state is RunState.SUCCEEDED
    assert [(line.event, line.attempt) for line in mesh.lines(job)] == [("start", 1), ("end", 1)]
    load.check()


def test_every_service_is_told_to_stop_under_load_and_nothing_is_lost(
    mesh: MeshProcess, load: SteadyLoad
):
    services = [each for each in mesh.processes().values() if each.role != "worker"]
    stop_in_turn(mesh, "many", services)
    load.check()


def test_every_worker_is_told_to_stop_under_load_and_lets_its_runs_end(
    mesh: MeshProcess, load: SteadyLoad
):
    workers = [each for each in mesh.processes().values() if each.role == "worker"]
    stop_in_turn(mesh, "more", workers)
    load.check()


@pytest.mark.parametrize("role", ["coordinator", "queue"])
def test_a_lease_that_is_given_back_is_taken_by_another(mesh: MeshProcess, role: str):
    before = holders(mesh, role)
    old = mesh.leader(role)
    mesh.send(old, signal.SIGTERM)
    mesh.leader(role, after=old)
    # Its own next question would let nobody lead for the time of the lease.
    (successor, *_) = holders(mesh, role)[len(before) :]
    assert successor != before[-1]
    mesh.replaced(old)


def holders(mesh: MeshProcess, role: str) -> list[bytes]:
    """Gives who has held a role's lease, one after the other, from the store's own history."""
    key = base64.b64encode(f"leases/{role}/000".encode()).decode()
    found = []
    for path in sorted((mesh.data / "history").iterdir()):
        for line in path.read_text().splitlines():
            # The lease's record begins with the holder: a tag, a length, 32 characters.
            found += [
                base64.b64decode(change["after"]["value"])[2:34]
                for change in json.loads(line).get("changes", ())
                if change["key"] == key and change["before"] is None
            ]
    return found


def stop_in_turn(mesh: MeshProcess, job: str, processes: list[Process]) -> None:
    """Stops each with SIGTERM while runs are asked for; each must run once and succeed."""
    asked = []
    with mesh.client() as client:
        client.jobs.create(job, JobSpec(task=mesh.witness(job, 0.2), overlap=Overlap.ALLOW_ALL))
        for process in processes:
            asked += [trigger(client, job) for _ in range(4)]
            mesh.send(process, signal.SIGTERM)
            asked += [trigger(client, job) for _ in range(4)]
            mesh.replaced(process)
            if process.role in ("coordinator", "queue"):
                mesh.leader(process.role)
        for run in asked:
            ended = client.runs.get(client.runs.wait(f"{job}/{run}", timeout_s=PATIENCE_S))
            assert ended.state is RunState.SUCCEEDED, [each.state for each in ended.attempts]
    starts = [line for line in mesh.lines(job) if line.event == "start"]
    assert sorted(line.run for line in starts) == sorted(asked)


def worker_of(mesh: MeshProcess, pid: int) -> Process:
    """Gives the worker below which a process runs."""
    workers = [process for process in mesh.processes().values() if process.role == "worker"]
    return next(worker for worker in workers if pid in family(worker.pid))


def hold_down(mesh: MeshProcess, role: str) -> None:
    """Kills every process of a role whenever it is back, for the time of an outage."""
    deadline = time.monotonic() + OUTAGE_S
    while time.monotonic() < deadline:
        for process in mesh.processes().values():
            if process.role == role:
                with suppress(ProcessLookupError):
                    mesh.send(process, signal.SIGKILL)
        time.sleep(0.02)


def trigger(client, job: str) -> str:
    """Starts a run, through whatever is just happening, and gives its id."""
    request_id = uuid.uuid4().hex

    def asked() -> str | None:
        try:
            run = client.jobs.trigger(job, request_id=request_id).run
        except Unavailable:
            return None
        return run.id

    return wait_for(asked, "a run can be asked for")
