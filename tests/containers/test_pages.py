"""The pages about containers and operations are true: their commands are run, in order."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from containers.compose import COMMAND_S, ROOT, Compose
from containers.conftest import WHOLE, Mesh, fires_again

pytestmark = pytest.mark.containers

CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBERS = re.compile(r"\b[0-9a-f]{32}\b|[+-]?\d+(\.\d+)?")
# `docker compose ARGUMENTS` is this project, whichever Compose there is; `docker` is Docker.
DOCKER = """\
#!/usr/bin/env bash
[ "$1" = compose ] || exec {docker} "$@"
shift
exec {compose} "$@"
"""


def steps(page: str) -> Iterator[tuple[str, str]]:
    """Yields (command, what it prints) of the page's console blocks, in order."""
    for block in CONSOLE.findall((ROOT / "docs" / page).read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield command, printed


class Shell:
    """Runs the commands of a page in a folder of its own."""

    def __init__(self, compose: Compose, folder: Path) -> None:
        which = subprocess.run(["which", "docker"], capture_output=True, text=True, check=True)
        (folder / "bin").mkdir()
        program = folder / "bin" / "docker"
        program.write_text(
            DOCKER.format(docker=which.stdout.strip(), compose=" ".join(compose.command))
        )
        program.chmod(0o755)
        (folder / "deploy").symlink_to(ROOT / "deploy")
        self._folder = folder
        self._environment = {
            **os.environ,
            **compose.environment,
            "PATH": f"{program.parent}:{os.environ['PATH']}",
        }

    def run(self, command: str) -> str:
        """Gives what a command prints. One that goes on for ever is left after a while."""
        for_ever = command.endswith("run --rm demo")
        if for_ever:
            command = f"timeout 15 {command.replace('--rm', '--rm -T')}"
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == (124 if for_ever else 0), f"{command}: {done.stderr}"
        return done.stdout


@pytest.fixture(name="shell")
def _shell(mesh: Mesh, tmp_path: Path) -> Shell:
    return Shell(mesh.compose, tmp_path)


def play(page: str, shell: Shell) -> int:
    """Runs a page's commands; gives how many."""
    ran = 0
    for command, printed in steps(page):
        shown = shell.run(command)
        if printed != "...\n":
            assert NUMBERS.sub("#", shown) == NUMBERS.sub("#", printed), command
        ran += 1
    return ran


def test_the_commands_of_the_page_about_containers_do_what_it_says(
    mesh: Mesh, shell: Shell, tmp_path: Path
) -> None:
    assert play("compose.md", shell) == 8
    assert (tmp_path / "client.secret").read_text().strip() == mesh.secret
    mesh.wait_until_whole([*WHOLE, "coordinator-4", "coordinator-5", "worker-3", "worker-4"])
    mesh.up("--scale", "worker=2", "--scale", "coordinator=3", "--no-recreate")
    mesh.wait_until_whole()
    with mesh.client() as client:
        for name in ("hello", "flaky", "report"):
            client.jobs.delete(name)


def test_a_mesh_is_looked_at_restored_and_upgraded_as_the_page_says(
    mesh: Mesh, shell: Shell, tmp_path: Path
) -> None:
    incarnation = mesh.incarnation()
    assert play("operations.md", shell) == 17
    assert (tmp_path / "drill.sexton").stat().st_size > 0
    mesh.wait_until_whole()
    assert mesh.incarnation() != incarnation
    fires_again(mesh, "tick")
