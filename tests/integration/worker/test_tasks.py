"""Tasks run on a real worker process and are reported to the queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from integration.worker.owner import Owner, serving
from integration.worker.worker_process import WorkerProcess, working

from sexton.v1 import job_pb2, run_pb2


class Pair(NamedTuple):
    owner: Owner
    worker: WorkerProcess


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    owner = Owner()
    async with serving(owner) as address, working(tmp_path, address, PASSWORD="s3cret") as worker:
        await owner.connected()
        yield Pair(owner, worker)


@pytest.mark.slow
async def test_python_and_shell_tasks_run_and_say_what_became_of_them(pair: Pair) -> None:
    owner = pair.owner
    (hello,) = owner.hellos
    assert list(hello.queues) == ["default"]
    assert list(hello.kinds) == ["shell"]
    assert "whoami-alone" in hello.tasks
    done = await owner.completion(owner.python("add", '{"a": 1, "b": 2}'))
    assert (done.state, done.result_json) == (run_pb2.ATTEMPT_STATE_SUCCEEDED, "3")
    done = await owner.completion(owner.shell("echo hello; echo wrong >&2; false | true; exit $?"))
    assert done.state == run_pb2.ATTEMPT_STATE_FAILED
    assert (done.error.kind, done.error.message) == (
        "exit 1", "it ended with exit status 1: wrong",
    )  # fmt: skip
    assert done.output_tail == "hello\nwrong\n"
