"""`sexton up` as its user meets it: what it refuses, how it stops, that it leaves nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from integration.mesh.mesh_process import MeshProcess, alive, family, free_base, wait_for

from sexton import JobSpec

pytestmark = pytest.mark.slow

SMALL = ("--coordinators", "1", "--queues", "1", "--workers", "1")


def test_nothing_is_left_behind_a_killed_one_not_even_what_a_job_started(tmp_path: Path):
    mesh = MeshProcess(tmp_path, *SMALL).start()
    try:
        everything = family(mesh.up_pid) | {start_long_run(mesh)}
        assert len(everything) >= 7
        assert mesh.stop(signal.SIGKILL) == -signal.SIGKILL
    finally:
        mesh.stop(signal.SIGKILL)
    wait_for(lambda: not any(alive(pid) for pid in everything), "all of it is gone")


def test_it_ends_what_runs_when_it_is_stopped_and_knows_its_jobs_when_it_is_back(tmp_path: Path):
    mesh = MeshProcess(tmp_path, *SMALL, "--drain", "0").start()
    try:
        everything = family(mesh.up_pid) | {start_long_run(mesh)}
        code, message = up(mesh.data)
        assert code == 4
        assert f"another sexton up (pid {mesh.up_pid}) runs on this folder" in message
        assert mesh.stop(signal.SIGINT) == 0
        assert not any(alive(pid) for pid in everything)
        assert not (mesh.data / "mesh.json").exists()
        mesh.start()
        with mesh.client() as client:
            assert [job.name for job in client.jobs.list()] == ["long"]
        # What follows is found by itself, with the secret that it needs.
        listed = command(mesh.data, "jobs", "list", "-o", "name")
        assert (listed.stdout, listed.stderr) == ("default/long\n", "")
        assert "STEADY" in command(mesh.data, "clock", "status").stdout
        secrets = mesh.data / "secrets"
        assert sorted(os.listdir(secrets)) == ["client", "mesh", "reader", "worker"]
        assert {path.stat().st_mode & 0o777 for path in secrets.iterdir()} == {0o600}
    finally:
        mesh.stop(signal.SIGKILL)


def test_taken_ports_are_named_before_anything_starts(tmp_path: Path):
    with socket.socket() as taken:
        base = next(base for base in range(28_000, 32_000, 20) if bound(taken, base + 1))
        code, message = up(tmp_path / "data", "--port-base", str(base))
    assert code == 4
    assert f"the port is taken: {base + 1} (store); these are free: --port-base " in message
    assert not (tmp_path / "data" / "store").exists()


def test_a_wrong_job_file_is_refused_before_anything_starts(tmp_path: Path):
    (tmp_path / "jobs.yaml").write_text("jobs: [{name: Upper, task: {shell: x}}]")
    code, message = up(tmp_path / "data", "--apply", str(tmp_path / "jobs.yaml"))
    assert code == 4
    assert "jobs[0].name: 'Upper' can't be used" in message
    assert up(tmp_path / "data", "--apply", str(tmp_path / "none.yaml"))[0] == 3
    assert not (tmp_path / "data").exists()


def test_tasks_that_can_not_be_imported_end_it_with_the_reason(tmp_path: Path):
    base = free_base()
    code, message = up(tmp_path / "data", "--app", "no_such_module", "--port-base", str(base))
    assert code == 1
    assert "no_such_module" in message
    assert "worker-1 can't run; stopping." in message


def start_long_run(mesh: MeshProcess) -> int:
    """Starts a run that does not end by itself, and gives the process that it is."""
    mesh.create("long", JobSpec(task=mesh.witness("long", 600.0)))
    with mesh.client() as client:
        client.jobs.trigger("long")
    return mesh.wait_for_lines("long", 1)[0].pid


def up(data: Path, *flags: str) -> tuple[int, str]:
    """Runs a `sexton up` that is expected to end by itself; gives code and what it said."""
    ended = command(data, "up", *flags)
    assert ended.stdout == ""
    return ended.returncode, ended.stderr


def command(data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs `sexton` as somebody does whose mesh is in this folder."""
    kept = {name: value for name, value in os.environ.items() if "SEXTON_" not in name}
    kept |= {"PYTHONPATH": os.pathsep.join(sys.path), "SEXTON_DATA": str(data)}
    return subprocess.run(
        [sys.executable, "-m", "sexton_cli.main", *words],
        env=kept | {"XDG_STATE_HOME": str(data)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def bound(taken: socket.socket, port: int) -> bool:
    """Takes a port; tells whether it was free."""
    try:
        taken.bind(("127.0.0.1", port))
    except OSError:
        return False
    taken.listen()
    return True
