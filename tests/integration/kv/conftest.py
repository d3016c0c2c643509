from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.kv.processes import RestartableStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RestartableStore]:
    """A real store, a process of its own."""
    store = RestartableStore(tmp_path / "store")
    store.start()
    yield store
    if store.process is not None and store.process.poll() is None:
        store.end(signal.SIGKILL)
