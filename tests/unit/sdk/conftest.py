"""A mesh in memory, and clients of it."""

import pytest
from unit.sdk.memory_api import MemoryApi, serving, with_history

import sexton


@pytest.fixture(autouse=True)
def _no_mesh_of_this_machine(monkeypatch, tmp_path):
    for name in ("API", "CLIENT_SECRET", "CLIENT_SECRET_FILE", "NAMESPACE", "DATA"):
        monkeypatch.delenv(f"SEXTON_{name}", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(name="api")
def _api():
    return with_history(MemoryApi())


@pytest.fixture(name="address")
def _address(api):
    with serving(api) as address:
        yield address


@pytest.fixture(name="client")
def _client(address):
    with sexton.Client(address, retry_for_s=2.0) as client:
        yield client
