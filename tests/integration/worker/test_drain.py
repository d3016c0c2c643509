"""Stopping a worker, and its stream: drained, ended at once, broken, handed over."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from integration.worker.owner import Owner, serving
from integration.worker.test_death import start_tree
from integration.worker.worker_process import dead, working, written

from sexton.v1 import run_pb2
from sexton.v1 import worker_pb2 as pb

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains(tmp_path: Path, number: signal.Signals) -> None:
    owner = Owner(heartbeat_ms=100)
    async with serving(owner) as address, working(tmp_path, address) as worker:
        await owner.connected()
        go = tmp_path / "go"
        running = owner.shell(f"until test -e {go}; do sleep 0.05; done; echo done")
        await owner.begun(running)
        worker.signal(number)
        await owner.until(lambda: owner.draining)
        late = owner.shell("echo late")
        await owner.until(lambda: late in owner.returned)
        assert late not in owner.started
        await owner.beats(3)
        assert not owner.closed
        go.touch()
        done = await owner.completion(running)
        assert (done.state, done.output_tail) == (run_pb2.ATTEMPT_STATE_SUCCEEDED, "done\n")
        await owner.until(lambda: owner.closed)
        assert await worker.end() == 0


async def test_a_second_signal_ends_at_once_and_everything_dies(tmp_path: Path) -> None:
    owner = Owner(heartbeat_ms=100)
    async with serving(owner) as address, working(tmp_path, address) as worker:
        await owner.connected()
        _, tree = await start_tree(owner, tmp_path)
        worker.signal(signal.SIGTERM)
        await owner.until(lambda: "stops" in worker.said())
        worker.signal(signal.SIGTERM)
        assert await worker.end() == 128 + signal.SIGTERM
        await dead(*tree)
        assert not owner.closed


async def test_what_outlasts_the_drain_is_killed_and_left_to_others(tmp_path: Path) -> None:
    owner = Owner(heartbeat_ms=100)
    arguments = ("--drain-timeout-s", "0.2")
    async with (
        serving(owner) as address,
        working(tmp_path, address, arguments=arguments) as worker,
    ):
        await owner.connected()
        _, tree = await start_tree(owner, tmp_path)
        polite = owner.python("wait-thread")
        await owner.begun(polite)
        worker.signal(signal.SIGTERM)
        await owner.until(lambda: owner.closed)
        assert await worker.end() == 0
        await dead(*tree)
        (done,) = owner.completions
        assert (done.attempt.token, done.state) == (polite, run_pb2.ATTEMPT_STATE_SUCCEEDED)


async def test_a_stubborn_task_does_not_keep_a_stopped_worker(tmp_path: Path) -> None:
    owner = Owner(heartbeat_ms=100)
    arguments = ("--drain-timeout-s", "0", "--cancel-grace-s", "0")
    async with (
        serving(owner) as address,
        working(tmp_path, address, arguments=arguments) as worker,
    ):
        await owner.connected()
        await owner.begun(owner.python("wait-stubborn", '{"seconds": 300}'))
        worker.signal(signal.SIGTERM)
        assert await worker.end() == 0
        assert not owner.completions
        assert not owner.closed


async def test_nobody_waits_for_what_tasks_left_in_threads(tmp_path: Path) -> None:
    owner = Owner(heartbeat_ms=100)
    async with serving(owner) as address, working(tmp_path, address) as worker:
        await owner.connected()
        await owner.completion(owner.python("leave-thread"))
        worker.signal(signal.SIGTERM)
        assert await worker.end() == 0
        assert owner.closed


async def test_a_broken_stream_costs_nothing(tmp_path: Path) -> None:
    owner = Owner(heartbeat_ms=100)
    async with serving(owner) as address, working(tmp_path, address):
        await owner.connected()
        go = tmp_path / "go"
        running = owner.shell(f"until test -e {go}; do sleep 0.05; done; echo done")
        await owner.begun(running)
        owner.acknowledges = False
        finished = owner.shell("echo finished")
        await owner.completion(finished)
        owner.acknowledges = True
        owner.cut()
        await owner.connected(2)
        hello = owner.hellos[1]
        assert (hello.session, hello.owner_token) == ("s-1", 1)
        assert {ref.token for ref in hello.held} == {running, finished}
        await owner.until(lambda: [c.attempt.token for c in owner.completions].count(finished) == 2)
        go.touch()
        assert (await owner.completion(running)).output_tail == "done\n"
        owner.send(pb.PullResponse(reconnect=True))
        await owner.connected(3)
        assert not owner.hellos[2].held


async def test_what_was_revoked_is_killed_and_a_late_end_is_taken_for_refused(
    tmp_path: Path,
) -> None:
    owner = Owner(heartbeat_ms=100)
    async with serving(owner) as address, working(tmp_path, address, arguments=("--slots", "2")):
        await owner.connected()
        token, tree = await start_tree(owner, tmp_path)
        assert owner.credits == 2
        owner.revokes = [pb.AttemptRef(handle=f"handle-{token}".encode(), token=token)]
        owner.cut()
        await dead(*tree)
        await owner.until(lambda: owner.credits == 2)
        assert not owner.completions
        owner.accepts = False
        refused = owner.shell("true")
        await owner.completion(refused)
        owner.cut()
        await owner.connected(3)
        assert not owner.hellos[2].held


async def test_another_session_means_that_all_is_dead(tmp_path: Path) -> None:
    owner = Owner(heartbeat_ms=100)
    async with serving(owner) as address, working(tmp_path, address):
        await owner.connected()
        _, tree = await start_tree(owner, tmp_path)
        owner.session = "s-2"
        owner.cut()
        await owner.until(lambda: len(owner.hellos) == 2 and owner.credits == 100)
        await dead(*tree)
        assert not owner.completions


async def test_the_owner_is_found_among_several_and_by_what_others_say(tmp_path: Path) -> None:
    old, new = Owner(heartbeat_ms=100), Owner(heartbeat_ms=100)
    async with serving(old) as first, serving(new) as second:
        new.leader = ""
        async with working(tmp_path, "127.0.0.1:1", first) as worker:
            await old.connected()
            path = tmp_path / "ready"
            token = old.shell(f"echo $$ > {path}; sleep 300")
            await written(path)
            old.leader, new.leader, new.token = second, None, 2
            old.cut()
            await new.connected()
            (ref,) = new.hellos[-1].held
            assert ref.token == token
            old.leader, old.token, new.leader = None, 1, first
            new.cut()
            await old.until(lambda: len(old.hellos) >= 4)
            assert old.hellos[-1].owner_token == 2
            assert "an older owner answered" in worker.said()
            assert old.credits == 0


async def test_the_owner_can_ask_for_it(tmp_path: Path) -> None:
    owner = Owner(heartbeat_ms=100)
    async with serving(owner) as address, working(tmp_path, address) as worker:
        await owner.connected()
        running = owner.shell("sleep 0.3; echo done")
        await owner.begun(running)
        owner.send(pb.PullResponse(drain=True))
        await owner.until(lambda: owner.draining)
        owner.send(pb.PullResponse(drain=True))
        done = await owner.completion(running)
        assert (done.state, done.output_tail) == (run_pb2.ATTEMPT_STATE_SUCCEEDED, "done\n")
        await owner.until(lambda: owner.closed)
        assert await worker.end() == 0
