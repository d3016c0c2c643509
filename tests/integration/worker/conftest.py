"""A worker that a module's tests share, and the owner that it serves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio
from integration.worker.owner import Owner, serving
from integration.worker.worker_process import WorkerProcess, working

OWN = {
    "PASSWORD": "s3cret-words",
    "LINES": "one\ntwo",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
}
"""Of the worker's environment."""


class Pair(NamedTuple):
    """An owner and its only worker."""

    owner: Owner
    worker: WorkerProcess


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    owner, folder = Owner(), tmp_path_factory.mktemp("worker")
    async with serving(owner) as address, working(folder, address, **OWN) as worker:
        await owner.connected()
        yield Pair(owner, worker)
