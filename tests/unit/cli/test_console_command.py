"""`sexton console` and `sexton console link`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sexton import local_mesh
from sexton_cli import main as entry
from sexton_console.web.sessions import Access, Sessions

SECRET = "c" * 64


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in which the mesh of this machine would say how it is reached."""
    monkeypatch.setenv("SEXTON_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "none"))
    (tmp_path / "client").write_text(SECRET + "\n")
    return tmp_path


def announce(folder: Path, console: str) -> None:
    mesh = local_mesh.LocalMesh(
        api=("127.0.0.1:7400",), client_secret_file=folder / "client", console=console
    )
    local_mesh.announce(mesh, folder)


def test_the_link_logs_in_to_the_console_of_this_machine(alone, capsys):
    announce(alone, "http://127.0.0.1:7480")
    assert entry.run(["console", "link"]) == 0
    address, _, ticket = capsys.readouterr().out.strip().partition("?ticket=")
    assert address == "http://127.0.0.1:7480/login"
    sessions = Sessions(SECRET, "", read_only=False)
    assert sessions.use_ticket(ticket, time.time()) is Access.OPERATOR


def test_without_a_console_there_is_no_link(alone, capsys):
    assert entry.run(["console", "link"]) == 3
    announce(alone, "")
    assert entry.run(["console", "link"]) == 3
    assert "start one with `sexton up`" in capsys.readouterr().err


def test_a_secret_that_can_not_be_read_is_said(alone, capsys):
    announce(alone, "http://127.0.0.1:7480")
    (alone / "client").unlink()
    assert entry.run(["console", "link"]) == 4
    assert str(alone / "client") in capsys.readouterr().err


def test_the_console_says_what_it_needs(alone, capsys):
    assert entry.run(["console"]) == 2
    assert "--data" in capsys.readouterr().err
    wide = ["console", "--data", str(alone / "c"), "--listen", "0.0.0.0:0"]
    assert entry.run(wide) == 2
    assert "console.listen" in capsys.readouterr().err
