"""The command line against a mesh in memory."""

import json

import pytest
from unit.sdk.memory_api import MemoryApi, serving, with_history

from sexton_cli import main as entry


@pytest.fixture(autouse=True)
def _no_mesh_of_this_machine(monkeypatch, tmp_path):
    for name in ("API", "CLIENT_SECRET", "CLIENT_SECRET_FILE", "NAMESPACE", "DATA"):
        monkeypatch.delenv(f"SEXTON_{name}", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(name="api")
def _api():
    return with_history(MemoryApi())


@pytest.fixture(name="mesh")
def _mesh(api, monkeypatch):
    with serving(api) as address:
        monkeypatch.setenv("SEXTON_API", address)
        yield address


@pytest.fixture(name="sexton")
def _sexton(capsys):
    """Runs a command line; gives its exit code, stdout and stderr."""

    def run(*arguments):
        code = entry.run([str(each) for each in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return run


@pytest.fixture(name="data")
def _data(sexton):
    """Runs a command line with -o json; gives what it prints."""

    def run(*arguments):
        code, out, err = sexton(*arguments, "-o", "json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return run
