"""What a worker starts dies with it, or with its session."""
# ruff: noqa: ASYNC110, ASYNC240 - tiny local files

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from integration.worker.owner import Owner, serving
from integration.worker.worker_process import alive, dead, working, written

from sexton.v1 import run_pb2

pytestmark = pytest.mark.slow

TREE = """
sleep 300 & child=$!
setsid sleep 300 & apart=$!
( setsid sleep 300 & echo $! > orphan ) &
wait $!
echo $$ $child $apart $(cat orphan) > {path}.new
mv {path}.new {path}
wait
"""
"""A shell with a child, one in a session of its own, and one whose parent has ended."""


async def start_tree(owner: Owner, folder: Path, **more: int) -> tuple[int, list[int]]:
    path = folder / f"tree-{os.urandom(4).hex()}"
    token = owner.shell(TREE.format(path=path), **more)
    pids = [int(pid) for pid in (await written(path)).split()]
    assert len(pids) == 4
    assert all(alive(pid) for pid in pids)
    return token, pids


async def test_a_killed_worker_leaves_nothing_behind(tmp_path: Path) -> None:
    owner = Owner()
    async with serving(owner) as address, working(tmp_path, address) as worker:
        await owner.connected()
        _, tree = await start_tree(owner, tmp_path)
        owner.python("start-processes", f'{{"folder": "{tmp_path}"}}')
        here = [int(pid) for pid in (await written(tmp_path / "pids")).split()]
        owner.python("wait-alone", f'{{"path": "{tmp_path}/alone"}}')
        alone = int(await written(tmp_path / "alone"))
        assert [alive(pid) for pid in (*here, alone)] == [True, True, True], worker.said()
        assert len(list(tmp_path.glob("sexton-worker-*/*"))) == 2
        worker.signal(signal.SIGKILL)
        await dead(*tree, *here, alone)
        async with asyncio.timeout(10):
            while list(tmp_path.glob("sexton-worker-*")):
                await asyncio.sleep(0.01)


async def test_a_stopped_worker_loses_what_it_started_with_its_session(tmp_path: Path) -> None:
    owner = Owner(session_ms=1_500, heartbeat_ms=100)
    async with serving(owner) as address, working(tmp_path, address) as worker:
        await owner.connected()
        token, tree = await start_tree(owner, tmp_path)
        worker.signal(signal.SIGSTOP)
        await dead(*tree)
        owner.session = "s-2"
        worker.signal(signal.SIGCONT)
        await owner.connected(2)
        assert owner.hellos[1].session == ""
        assert not owner.hellos[1].held
        assert token not in [completion.attempt.token for completion in owner.completions]
        done = await owner.completion(owner.shell("true"))
        assert done.state == run_pb2.ATTEMPT_STATE_SUCCEEDED


async def test_a_stopped_worker_with_tasks_inside_dies_with_its_session(tmp_path: Path) -> None:
    owner = Owner(session_ms=1_500, heartbeat_ms=100)
    async with serving(owner) as address, working(tmp_path, address) as worker:
        await owner.connected()
        await owner.begun(owner.python("wait-stubborn", '{"seconds": 300}'))
        worker.signal(signal.SIGSTOP)
        assert await worker.end() == -signal.SIGKILL


async def test_a_worker_cut_off_ends_itself_where_a_task_does_not_end(tmp_path: Path) -> None:
    owner = Owner(session_ms=1_500, heartbeat_ms=100)
    async with serving(owner) as address, working(tmp_path, address) as worker:
        await owner.connected()
        _, tree = await start_tree(owner, tmp_path)
        await owner.begun(owner.python("wait-stubborn", '{"seconds": 300}'))
        owner.answers_heartbeats = False
        owner.leader = ""
        assert await worker.end() == 75
        await dead(*tree)
        assert "did not end" in worker.said()


async def test_a_killed_guard_and_a_killed_shim_are_survived(tmp_path: Path) -> None:
    owner = Owner()
    async with serving(owner) as address, working(tmp_path, address) as worker:
        await owner.connected()
        token, tree = await start_tree(owner, tmp_path)
        guard = int(Path(f"/proc/{tree[0]}/stat").read_text().rpartition(")")[2].split()[1])
        shim = int(Path(f"/proc/{guard}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(guard, signal.SIGKILL)
        done = await owner.completion(token)
        assert done.state == run_pb2.ATTEMPT_STATE_FAILED
        assert "guard" in done.error.message
        await dead(*tree)
        token, tree = await start_tree(owner, tmp_path)
        os.kill(shim, signal.SIGKILL)
        await dead(shim)
        done = await owner.completion(owner.shell("echo on"))
        assert done.output_tail == "on\n"
        assert all(alive(pid) for pid in tree)
        worker.signal(signal.SIGKILL)
        await dead(*tree)
