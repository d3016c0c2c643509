"""One mesh of containers for all tests of this folder; each leaves it whole."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Final

import pytest
from containers.compose import IMAGE, Compose, docker

from sexton import Client, Every, JobSpec, Role, RunState, ShellTask
from sexton.errors import SextonError

API_PORTS: Final = range(17_420, 17_430)
PATIENCE_S: Final = 240.0
CONSOLE_PORT: Final = 17_430
WHOLE: Final = (
    *("console-1", "coordinator-1", "coordinator-2", "coordinator-3"),
    *("queue-1", "queue-2", "store", "worker-1", "worker-2"),
)


def _need(what: str, *, there: bool) -> None:
    """Skips where something is missing, unless this run must not (as in CI)."""
    if not there:
        if os.environ.get("SEXTON_REQUIRE_SYSTEM"):
            pytest.fail(f"{what} is missing")
        pytest.skip(f"needs {what}")


def wait_for(found: Callable[[], object], what: str) -> None:
    """Waits until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not found():
        assert time.monotonic() < deadline, f"it did not come about that {what}"
        time.sleep(0.2)


class Mesh:
    """The project, and calls to the API from this machine."""

    def __init__(self, compose: Compose) -> None:
        self.compose = compose
        self.secret = ""

    def read_secret(self) -> str:
        """Reads the client secret as it is now."""
        (one, *_) = self.compose.of("coordinator")
        return docker("exec", one.id, "cat", "/secrets/client").strip()

    def client(self) -> Client:
        """Connects to every replica's published port."""
        addresses = [f"127.0.0.1:{each.port}" for each in self.compose.of("coordinator")]
        return Client(addresses, secret=self.secret, timeout_s=60, retry_for_s=60)

    def up(self, *arguments: str) -> None:
        """Starts what does not run."""
        self.compose("up", "--detach", "--no-build", *arguments)

    def wait_until_whole(self, names: Sequence[str] = WHOLE) -> None:
        """Waits until as many of each service run, and the API lists them."""
        wanted = sorted(name.partition("-")[0] for name in names)

        def running() -> list[str]:
            return sorted(
                each.service for each in self.compose.containers().values() if each.running
            )

        wait_for(lambda: running() == wanted, f"these run: {', '.join(wanted)}")
        wait_for(lambda: self._connected(wanted), "the API lists every member")

    def _connected(self, wanted: Sequence[str]) -> bool:
        try:
            with self.client() as client:
                found = [member.role.value for member in client.members().members]
        except SextonError:
            return False
        return sorted([*found, "console"]) == wanted

    def incarnation(self) -> str:
        """Gives the id of the store's incarnation."""
        with self.client() as client:
            return next(each.id for each in client.members().members if each.role is Role.STORE)

    def inspect(self, name: str, form: str) -> str:
        """Gives what Docker knows of a container, in a form of its templates."""
        return docker("inspect", "-f", form, self.compose.containers()[name].id).strip()

    def run_in(self, name: str, *command: str, check: bool = True) -> str:
        """Runs a command in a container."""
        return docker("exec", self.compose.containers()[name].id, *command, check=check)


def succeeded(mesh: Mesh, job: str) -> int:
    """Gives how many runs of a job have succeeded."""
    with mesh.client() as client:
        return sum(1 for run in client.runs.list(job, states=[RunState.SUCCEEDED]))


def fires_again(mesh: Mesh, job: str) -> None:
    """Waits for two more runs of a job than it has now."""
    before = succeeded(mesh, job)
    wait_for(lambda: succeeded(mesh, job) >= before + 2, f"{job} goes on")


@pytest.fixture(scope="session")
def image() -> str:
    """The image, as `make image` builds it."""
    there = shutil.which("docker") is not None and bool(docker("info", check=False))
    _need("a Docker engine that answers (tools/docker-engine)", there=there)
    built = bool(docker("images", "--quiet", IMAGE).strip())
    _need(f"the image {IMAGE} (make image)", there=built)
    return IMAGE


@pytest.fixture(scope="session")
def mesh(image: str) -> Iterator[Mesh]:
    """The full mesh, started as a user does, with a job `tick` that runs every second."""
    compose = Compose(
        f"sexton-test-{uuid.uuid4().hex[:8]}",
        environment={
            "SEXTON_API_PORTS": f"{API_PORTS[0]}-{API_PORTS[-1]}",
            "SEXTON_CONSOLE_PORT": str(CONSOLE_PORT),
        },
    )
    mesh = Mesh(compose)
    try:
        mesh.up()
        mesh.secret = mesh.read_secret()
        mesh.wait_until_whole()
        with mesh.client() as client:
            tick = JobSpec(
                schedules=(Every(timedelta(seconds=1)),), task=ShellTask("echo $SEXTON_RUN_ID")
            )
            client.jobs.create("tick", tick)
        yield mesh
    finally:
        compose("down", "--volumes", "--timeout", "1", "--remove-orphans")
