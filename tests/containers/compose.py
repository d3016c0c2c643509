"""One Compose project of docker-compose.yml, and what Docker says of its containers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
IMAGE: Final = os.environ.get("SEXTON_IMAGE", "sexton:local")
COMMAND_S: Final = 300.0
"""No command of Docker takes longer; what does hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container as it now is."""

    id: str
    name: str
    """Service and number: `queue-2`; of the store, of which there is one, `store`."""
    service: str
    running: bool
    healthy: bool
    exit_code: int
    pid: int
    """Of its process 1, on this machine; 0: it does not run."""
    started_at: str
    restarts: int
    address: str
    """Its IP address in the mesh's network."""
    port: int | None
    """At which the API is published on 127.0.0.1."""


def docker(*arguments: str, check: bool = True, stdin: str | None = None) -> str:
    """Runs a command of Docker; gives what it prints."""
    return _run(["docker", *arguments], {}, check=check, stdin=stdin)


def logs(container: str, *, lines: int | None = None) -> str:
    """Gives what a container has said, to whichever stream; of many lines the last ones."""
    tail = "all" if lines is None else str(lines)
    command = ["docker", "logs", "--tail", tail, container]
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    return said.stdout.decode(errors="replace")


class Compose:
    """A project; every command of Compose is one call: `compose("up", "--detach")`."""

    def __init__(
        self, project: str, *, files: Sequence[Path] = (), environment: Mapping[str, str]
    ) -> None:
        self.project = project
        program = os.environ.get("SEXTON_COMPOSE") or (
            "docker-compose" if shutil.which("docker-compose") else "docker compose"
        )
        named = [word for file in (ROOT / "docker-compose.yml", *files) for word in ("-f", file)]
        self.command = [*program.split(), "-p", project, *map(str, named)]
        self.environment = {"SEXTON_IMAGE": IMAGE, **environment}

    def __call__(self, *arguments: str, check: bool = True, stdin: str | None = None) -> str:
        """Runs a command; gives what it prints, without what it says to standard error."""
        return _run([*self.command, *arguments], self.environment, check=check, stdin=stdin)

    def containers(self) -> dict[str, Container]:
        """Gives the containers of services, by name; those of single commands are left out."""
        label = f"label=com.docker.compose.project={self.project}"
        ids = docker("ps", "--all", "--quiet", "--filter", label).split()
        if not ids:
            return {}
        # Not checked: one may have been removed meanwhile, and the others are told all the same.
        found = json.loads(docker("inspect", *ids, check=False))
        containers = [_container(each) for each in found if not _is_one_off(each)]
        return {each.name: each for each in sorted(containers, key=lambda each: each.name)}

    def of(self, service: str) -> list[Container]:
        """Gives the containers of one service that run."""
        return [
            each for each in self.containers().values() if each.service == service and each.running
        ]


def _run(
    command: Sequence[str], environment: Mapping[str, str], *, check: bool, stdin: str | None
) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        input=stdin if stdin is not None else "",
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    if check:
        assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}: {done.stderr}"
    return done.stdout


def _is_one_off(inspected: Any) -> bool:
    return inspected["Config"]["Labels"].get("com.docker.compose.oneoff") == "True"


def _container(inspected: Any) -> Container:
    labels, state = inspected["Config"]["Labels"], inspected["State"]
    service = labels["com.docker.compose.service"]
    number = labels["com.docker.compose.container-number"]
    networks = inspected["NetworkSettings"]["Networks"].values()
    published = inspected["NetworkSettings"]["Ports"].get("7400/tcp")
    return Container(
        id=inspected["Id"],
        name=service if service == "store" else f"{service}-{number}",
        service=service,
        running=state["Running"] and not state["Restarting"],
        healthy=state.get("Health", {}).get("Status") == "healthy",
        exit_code=state["ExitCode"],
        pid=state["Pid"],
        started_at=state["StartedAt"],
        restarts=inspected["RestartCount"],
        address=next((each["IPAddress"] for each in networks), ""),
        port=int(published[0]["HostPort"]) if published else None,
    )
