"""The front page shows what works: each of its commands is run, in its order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.mesh.mesh_process import MeshProcess

README = Path(__file__).parents[3] / "README.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.slow


def first_ten_minutes() -> list[tuple[str, str]]:
    """Gives the section's blocks, by language."""
    text = README.read_text()
    start = text.index("## The first ten minutes")
    return BLOCK.findall(text[start : text.index("\n## ", start + 1)])


@pytest.fixture(scope="module")
def commands() -> list[str]:
    lines = [line for kind, text in first_ten_minutes() if not kind for line in text.splitlines()]
    return [line for line in lines if line.startswith("sexton ")]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcess]:
    folder = tmp_path_factory.mktemp("readme")
    (job_file,) = [text for kind, text in first_ten_minutes() if kind == "yaml"]
    (folder / "jobs.yaml").write_text(job_file)
    mesh = MeshProcess(folder)
    try:
        mesh.start()
        run(mesh, ["-m", "sexton_cli.main", "apply", "-f", "jobs.yaml"])
        yield mesh
    finally:
        mesh.stop()


def run(mesh: MeshProcess, arguments: list[str]) -> str:
    """Runs a Python with a user's environment on the mesh's machine; gives what it printed."""
    kept = {name: value for name, value in os.environ.items() if "SEXTON_" not in name}
    ended = subprocess.run(
        [sys.executable, *arguments],
        env=kept | {"PYTHONPATH": os.pathsep.join(sys.path), "SEXTON_DATA": str(mesh.data)},
        cwd=mesh.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_each_command_of_the_front_page_works(mesh: MeshProcess, commands: list[str]) -> None:
    assert [shlex.split(command)[1] for command in commands] == [
        "preview", "simulate", "up", "jobs", "jobs", "runs", "why", "members",
    ]  # fmt: skip
    printed = {
        command: run(mesh, ["-m", "sexton_cli.main", *shlex.split(command)[1:]])
        for command in commands
        if not command.startswith("sexton up")
    }
    by_words = {" ".join(shlex.split(command)[1:3]): text for command, text in printed.items()}
    assert "the clock skips 02:30:00" in by_words["preview jobs.yaml"]
    assert "passed_over" in by_words["simulate jobs.yaml"]
    assert "default/backup" in by_words["jobs list"]
    assert "default/report/m" in by_words["jobs trigger"]
    assert "default/report/m" in by_words["runs list"]
    assert "exists" in by_words["why backup"]
    assert by_words["members"].count("coordinator") == 2


def test_the_python_of_the_front_page_works(mesh: MeshProcess) -> None:
    (code,) = [text for kind, text in first_ten_minutes() if kind == "python"]
    run(mesh, ["-m", "sexton_cli.main", "jobs", "trigger", "report"])
    assert "report" in run(mesh, ["-c", code])
