"""doctor, backup, restore and clock, as an operator uses them on a store in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sexton_cli.main import run
from sexton_store.doctor import child_environment

pytestmark = pytest.mark.slow

REFUSED = 4


@contextmanager
def running_store(data: Path) -> Iterator[str]:
    """Runs a store; gives its address."""
    command = [sys.executable, "-m", "sexton_store", "--data", str(data), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command,
        env=child_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().removeprefix("store ready on ").strip()
        finally:
            process.terminate()
            process.wait()


def test_a_store_is_backed_up_checked_and_restored(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data, file = tmp_path / "data", tmp_path / "backup"
    with running_store(data) as address:
        assert run(["clock", "status", "--store", address, "-o", "json"]) == 0
        clock = json.loads(capfd.readouterr().out)
        assert (clock["state"], clock["dispute"]) == ("STEADY", 0)

        assert run(["clock", "accept", "1", "--store", address]) == REFUSED
        assert "there is no dispute 1, and no other" in capfd.readouterr().err

        assert run(["backup", str(file), "--store", address]) == 0
        assert f"{file}: {file.stat().st_size} bytes, revision 0" in capfd.readouterr().out
        assert file.stat().st_mode & 0o777 == 0o600
        assert run(["backup", str(file), "--store", address]) == REFUSED
        assert "this file exists" in capfd.readouterr().err
        assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []

        for command in (
            ["doctor", "--data", str(data)],
            ["restore", str(file), "--data", str(data), "--replace"],
        ):
            assert run(command) == REFUSED
            assert f"the data folder {data} is in use by process" in capfd.readouterr().err

    assert run(["doctor", "--data", str(data)]) == 0
    assert capfd.readouterr().out.startswith("0 findings in 0 records, revision 0, ")
    assert run(["restore", str(file), "--data", str(data)]) == REFUSED
    assert "say that its data may be replaced with --replace" in capfd.readouterr().err
    assert run(["restore", str(file), "--data", str(data), "--replace", "-o", "json"]) == 0
    restored = json.loads(capfd.readouterr().out)
    assert (restored["backup_revision"], restored["replaced_revision"]) == (0, 0)
    with running_store(data) as address:
        assert run(["clock", "status", "--store", address]) == 0
        assert "state       STEADY" in capfd.readouterr().out


def test_a_damaged_store_is_reported_and_not_started(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with running_store(data):
        pass
    file = data / "data.mdb"
    file.write_bytes(file.read_bytes()[:-4096])
    assert run(["doctor", "--data", str(data), "-o", "json"]) == REFUSED
    diagnosis = json.loads(capfd.readouterr().out)
    assert not diagnosis["healthy"]
    assert "has been cut short" in diagnosis["findings"][0]["message"]
    assert run(["store", "--data", str(data), "--listen", "127.0.0.1:0"]) == 1
    assert "has been cut short" in capfd.readouterr().err


def test_what_does_not_exist_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    missing = 3
    assert run(["doctor", "--data", str(tmp_path)]) == missing
    assert "there is no store's data in this folder" in capfd.readouterr().err
    assert run(["restore", str(tmp_path / "none"), "--data", str(tmp_path / "x")]) == missing
    assert "no such file" in capfd.readouterr().err
    assert run(["backup", str(tmp_path / "none" / "file")]) == missing
    assert "no such folder" in capfd.readouterr().err


def test_a_store_that_is_not_there_is_unavailable(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    unavailable = 5
    assert run(["clock", "status", "--store", "127.0.0.1:1"]) == unavailable
    assert "the store at 127.0.0.1:1 does not answer" in capfd.readouterr().err
    file = tmp_path / "backup"
    assert run(["backup", str(file), "--store", "127.0.0.1:1"]) == unavailable
    assert not list(tmp_path.iterdir())
