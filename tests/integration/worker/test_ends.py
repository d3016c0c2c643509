"""Commands are ended with everything that has come of them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from integration.worker.conftest import Pair
from integration.worker.test_death import start_tree
from integration.worker.worker_process import alive, written

from sexton.v1 import run_pb2

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


async def test_a_short_stop_costs_nothing(pair: Pair, tmp_path: Path) -> None:
    owner = pair.owner
    token, tree = await start_tree(owner, tmp_path)
    pair.worker.signal(signal.SIGSTOP)
    pair.worker.signal(signal.SIGCONT)
    await owner.beats(3)
    assert all(alive(pid) for pid in tree)
    assert token not in [done.attempt.token for done in owner.completions]
    owner.cancel(token, terminate=True)
    assert (await owner.completion(token)).state == run_pb2.ATTEMPT_STATE_TERMINATED


async def test_cancelling_ends_the_group_and_then_all_that_is_left(
    pair: Pair, tmp_path: Path
) -> None:
    owner = pair.owner
    polite, tree = await start_tree(owner, tmp_path)
    owner.cancel(polite)
    done = await owner.completion(polite)
    assert done.state == run_pb2.ATTEMPT_STATE_CANCELLED
    assert (done.error.kind, done.error.message[:7]) == ("cancelled", "by hand")
    assert not any(alive(pid) for pid in tree)
    ready = tmp_path / "ready"
    deaf = owner.shell(f"trap '' TERM; echo $$ > {ready}; while :; do sleep 1; done")
    await written(ready)
    owner.cancel(deaf)
    assert (await owner.completion(deaf)).state == run_pb2.ATTEMPT_STATE_CANCELLED


async def test_terminating_and_the_timeout_kill_everything(pair: Pair, tmp_path: Path) -> None:
    owner = pair.owner
    terminated, tree = await start_tree(owner, tmp_path)
    owner.cancel(terminated, terminate=True)
    done = await owner.completion(terminated)
    assert (done.state, done.error.kind) == (
        run_pb2.ATTEMPT_STATE_TERMINATED, "terminated",
    )  # fmt: skip
    assert not any(alive(pid) for pid in tree)
    late, tree = await start_tree(owner, tmp_path, timeout_ms=600)
    done = await owner.completion(late)
    assert (done.state, done.error.kind) == (run_pb2.ATTEMPT_STATE_TIMED_OUT, "timeout")
    assert not any(alive(pid) for pid in tree)


async def test_what_a_command_leaves_behind_goes_with_it(pair: Pair, tmp_path: Path) -> None:
    owner = pair.owner
    token = owner.shell("setsid sleep 300 & echo $!; exit 0")
    done = await owner.completion(token)
    assert done.state == run_pb2.ATTEMPT_STATE_SUCCEEDED
    assert not alive(int(done.output_tail))
