"""A mesh of containers: that of docker-compose.yml, with a small disk and its history kept."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc
import yaml
from containers.compose import ROOT, Compose, Container, docker, logs
from faults.mesh import (
    CLIENTS,
    SETTINGS,
    Ability,
    Member,
    Role,
    Usage,
    wait_for,
    wait_until_healthy,
)
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sexton import Client

DISK_MIB: Final = 96
"""Of the store's own disk."""
RESTARTS_WITHIN_S: Final = 120.0
"""Docker waits longer from one start to the next, up to a minute."""
_RESERVE_MIB: Final = 4
_API_PORTS: Final = range(17_500, 17_510)
_PORTS: Final = {Role.STORE: 7600, Role.QUEUE: 7700, Role.COORDINATOR: 7400, Role.WORKER: 7800}
_UID: Final = 10_001
_PROJECTS: Final = "sexton-faults"
"""And the pid of the tests, so that what killed ones have left can be told from what others use."""
_CHAINS: Final = ("DOCKER-USER", "INPUT", "OUTPUT")
_ASK_S: Final = 0.5
_TAIL_LINES: Final = 30
_NAMED: Final = (
    'until read -r name 2>/dev/null </names/"$$HOSTNAME"; do sleep 0.1; done; '
    'FAULTS_WORKER=$$name SEXTON_WORKER_NAME=$$name exec sexton "$$@"'
)
"""How a worker begins: replicas are alike, and its name is known once Docker has numbered it."""


class ContainerMesh:
    """`FaultMesh` of containers. Needs Docker and root: for the small disk, signals and iptables.

    A container's helpers stand still with it, and it shares this machine's clock. A cut lasts as
    long as both ends keep their addresses.
    """

    kind = "containers"
    tasks_folder = "/shared"
    able = frozenset({Ability.NETWORK, Ability.DISK, Ability.SCALE})

    def __init__(self, folder: Path, *, seed: int = 0) -> None:
        """Takes a folder; there is nothing here for which a seed would be needed."""
        self.folder = folder
        self.shared = folder / "tasks"
        self._data = folder / "data"
        self._names = folder / "names"
        project = f"{_PROJECTS}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._chain = _chain(project)
        ports = f"{_API_PORTS[0]}-{_API_PORTS[-1]}"
        self._compose = Compose(
            project,
            files=[self._override()],
            environment={"SEXTON_API_PORTS": ports, "SEXTON_TELEMETRY_ENDPOINT": ""},
        )
        self._sizes = {Role.COORDINATOR: 3, Role.WORKER: 2}
        self._secret = ""
        self._asked: dict[str, grpc.Channel] = {}
        self._suspended: dict[str, set[int]] = {}
        self._begun = False

    # Life

    def start(self) -> None:
        """Returns once it serves."""
        remove_leftovers()
        self._begun = True
        for folder in (self.shared, self._data, self._names, self.folder / "history"):
            folder.mkdir(parents=True, exist_ok=True)
        self.shared.chmod(0o777)
        options = f"size={DISK_MIB}m,mode=700,uid={_UID},gid={_UID}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self._data], check=True)
        os.chown(self.folder / "history", _UID, _UID)
        iptables("-N", self._chain)
        for chain in _CHAINS:
            iptables("-I", chain, "-j", self._chain)
        self._up()
        self._secret = docker("exec", self._container("store").id, "cat", "/secrets/client").strip()
        wait_until_healthy(self)

    def stop(self) -> None:
        """Ends it. Idempotent."""
        if not self._begun:
            return
        self._begun = False
        for name in list(self._suspended):
            self.resume(name)
        (self.folder / "logs").mkdir(exist_ok=True)
        for name, container in self._compose.containers().items():
            (self.folder / "logs" / f"{name}.log").write_text(logs(container.id))
            if container.service == Role.WORKER.value:
                docker("kill", container.id, check=False)
        for channel in self._asked.values():
            channel.close()
        self._asked.clear()
        self._compose("down", "--volumes", "--remove-orphans")
        _drop_chain(self._chain)
        subprocess.run(["umount", self._data], check=False)  # perhaps it was never mounted

    def client(
        self, *, timeout_s: float = 5.0, retry_for_s: float = 0.0, history: Path | None = None
    ) -> Client:
        """Connects to the API, at all addresses that are published now."""
        published = [each.port for each in self._compose.of("coordinator") if each.port]
        return Client(
            [f"127.0.0.1:{port}" for port in published or _API_PORTS[:3]],
            secret=self._secret,
            timeout_s=timeout_s,
            retry_for_s=retry_for_s,
            history=history,
        )

    # Who is there

    def names(self) -> Sequence[str]:
        """Gives the names of all members that are meant to run."""
        return list(self._all())

    def members(self) -> Mapping[str, Member]:
        """Gives those that run now."""
        return {
            name: Member(name, Role(each.service), _life(each))
            for name, each in self._all().items()
            if each.running
        }

    def leader(self, role: Role) -> str | None:
        """Gives who leads now."""
        for each in self._compose.of(role.value):
            if self._is_serving(each, "leader"):
                return each.name
        return None

    def serves(self, name: str) -> bool:
        """Tells whether a member is ready: a worker, whether the queue has welcomed it."""
        each = self._container(name)
        service = "queue" if each.service == Role.WORKER.value else ""
        return each.running and self._is_serving(each, service)

    # Processes

    def kill(self, name: str) -> None:
        """Kills the container's process 1, and with it everything in the container."""
        each = self._container(name)
        # Docker's own `kill` would keep it from being started again.
        if each.running:
            _send(each.pid, signal.SIGKILL)
        self._suspended.pop(name, None)
        wait_for(lambda: _has_ended(each, self._container(name)), f"{name} has ended")

    def hold_down(self, name: str) -> None:
        """Kills it, and keeps it from being started again."""
        docker("update", "--restart=no", self._container(name).id)
        self.kill(name)
        wait_for(lambda: not self._container(name).running, f"{name} stays down")

    def let_up(self, name: str) -> None:
        """Lets it be started again."""
        docker("update", "--restart=unless-stopped", self._container(name).id)
        docker("start", self._container(name).id)

    def pause(self, name: str) -> bool:
        """Suspends all that runs in the container."""
        each = self._container(name)
        stopped = self._suspended.setdefault(name, set())
        while found := set(_pids(each)) - stopped:  # what was started meanwhile, too
            for pid in found:
                _send(pid, signal.SIGSTOP)
            stopped |= found
        return True

    def resume(self, name: str) -> None:
        """Lets it go on."""
        for pid in self._suspended.pop(name, ()):
            _send(pid, signal.SIGCONT)

    def restart(self, name: str) -> None:
        """Sends SIGTERM and sees that Docker starts it again."""
        each = self._container(name)
        _send(each.pid, signal.SIGTERM)
        wait_for(lambda: _has_ended(each, self._container(name)), f"{name} ends when told to")
        wait_for(
            lambda: self._container(name).running, f"{name} is started again", RESTARTS_WITHIN_S
        )

    def scale(self, role: Role, number: int) -> None:
        """Makes it so many."""
        assert role in self._sizes, "of others there are always as many"
        self._sizes[role] = number
        self._up()

    # Network, disk, clock

    def cut(self, source: str, target: str) -> None:
        """Has this machine drop what it would carry from the one to the other."""
        iptables(
            *("-A", self._chain, "-s", self._address(source), "-d", self._address(target)),
            *("-j", "DROP"),
        )

    def rough(self, name: str, *, delay_ms: int, stalls: float, resets: float) -> None:
        """Is not possible here."""
        raise AssertionError(f"the network of a container, {name}'s too, can be cut only")

    def heal_network(self) -> None:
        """Takes every cut back."""
        iptables("-F", self._chain)

    def fill_disk(self) -> None:
        """Takes up all that is free on the store's disk."""
        with (self._data / "other").open("ab", buffering=0) as file:
            for piece in (1024 * 1024, 4096):
                with suppress(OSError):
                    while True:
                        file.write(bytes(piece))

    def free_disk(self) -> None:
        """Gives it back."""
        (self._data / "other").unlink(missing_ok=True)

    def skew_clock(self, name: str, offset_s: float) -> None:
        """Is not possible here."""
        raise AssertionError(f"containers have this machine's clock, {name} too")

    # What is left to read

    def store_history(self) -> Sequence[Path]:
        """Gives the store's history files."""
        return sorted((self.folder / "history").glob("history-*.jsonl"))

    def store_bytes(self) -> int:
        """Gives the size of the data file."""
        return (self._data / "data.mdb").stat().st_size

    def usage(self) -> Mapping[str, Usage]:
        """Gives what each member holds."""
        found = {}
        for name, each in self._all().items():
            with suppress(FileNotFoundError, ProcessLookupError):
                found[name] = _usage(_main_pid(each))
        return found

    def said(self, name: str) -> str:
        """Gives the end of its log."""
        return logs(self._container(name).id, lines=_TAIL_LINES)

    # Inside

    def _override(self) -> Path:
        """Writes what is other than in the mesh of users."""
        shown = {
            "PYTHONPATH": "/app",
            "SEXTON_WORKER_APP": "faults.tasks",
            "SEXTON_WORKER_HEALTH_LISTEN": "0.0.0.0:7800",
            "SEXTON_WORKER_DRAIN_TIMEOUT_S": "10",
        }
        reserve = str(_RESERVE_MIB * 1024 * 1024)
        history = {"SEXTON_STORE_HISTORY": "/history", "SEXTON_STORE_RESERVE_BYTES": reserve}
        services = {
            "store": {
                "environment": {**SETTINGS, **history},
                "volumes": [f"{self.folder / 'history'}:/history"],
            },
            "queue": {"environment": SETTINGS},
            "coordinator": {"environment": SETTINGS},
            "worker": {
                "entrypoint": ["bash", "-c", _NAMED, "sexton"],
                "environment": {**SETTINGS, **shown},
                "volumes": [
                    f"{ROOT / 'tests' / 'faults'}:/app/faults:ro",
                    f"{self._names}:/names:ro",
                    f"{self.shared}:{self.tasks_folder}",
                ],
            },
        }
        bind = {"type": "none", "o": "bind", "device": str(self._data)}
        path = self.folder / "override.yml"
        self.folder.mkdir(parents=True, exist_ok=True)
        path.write_text(
            yaml.safe_dump({"services": services, "volumes": {"data": {"driver_opts": bind}}})
        )
        return path

    def _up(self) -> None:
        sizes = [word for role, number in self._sizes.items()
                 for word in ("--scale", f"{role.value}={number}")]  # fmt: skip
        self._compose(
            *("up", "--detach", "--no-build", "--no-recreate", *sizes),
            *(role.value for role in Role),
        )
        for each in self._compose.of("worker"):
            named = self._names / each.id[:12]
            named.with_suffix(".new").write_text(each.name + "\n")
            named.with_suffix(".new").rename(named)

    def _all(self) -> dict[str, Container]:
        roles = {role.value for role in Role}
        return {
            name: each for name, each in self._compose.containers().items() if each.service in roles
        }

    def _container(self, name: str) -> Container:
        return self._compose.containers()[name]

    def _address(self, name: str) -> str:
        if name != CLIENTS:
            return self._container(name).address
        shown = "{{(index .IPAM.Config 0).Gateway}}"
        return docker("network", "inspect", "-f", shown, f"{self._compose.project}_mesh").strip()

    def _is_serving(self, each: Container, service: str) -> bool:
        address = f"{each.address}:{_PORTS[Role(each.service)]}"
        if address not in self._asked:
            options = (("grpc.max_reconnect_backoff_ms", 200),)
            self._asked[address] = grpc.insecure_channel(address, options)
        stub: Any = health_pb2_grpc.HealthStub(self._asked[address])
        try:
            request = health_pb2.HealthCheckRequest(service=service)
            answer = stub.Check(request, timeout=_ASK_S)
        except grpc.RpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def iptables(*arguments: str, check: bool = True) -> None:
    """Changes this machine's packet filter; waits for others who do."""
    subprocess.run(["iptables", "--wait", *arguments], check=check, capture_output=True)


def remove_leftovers() -> None:
    """Removes the meshes of tests that were killed themselves."""
    shown = '{{.Label "com.docker.compose.project"}}'
    for project in set(docker("ps", "--all", "--format", shown).split()):
        match = re.fullmatch(rf"{_PROJECTS}-(\d+)-[0-9a-f]{{8}}", project)
        if match is None or Path("/proc", match[1]).exists():
            continue
        of_it = ("--quiet", "--filter", f"label=com.docker.compose.project={project}")
        docker("rm", "--force", *docker("ps", "--all", *of_it).split())
        for volume in docker("volume", "ls", *of_it).split():
            device = docker("volume", "inspect", "-f", "{{.Options.device}}", volume).strip()
            docker("volume", "rm", volume)
            if device.startswith("/"):
                subprocess.run(["umount", device], check=False)
        docker("network", "rm", *docker("network", "ls", *of_it).split())
        _drop_chain(_chain(project))


def _chain(project: str) -> str:
    return f"SEXTON-{project[-8:]}"


def _drop_chain(name: str) -> None:
    """Removes the chain of the packet filter, or what there is of it."""
    for chain in _CHAINS:
        iptables("-D", chain, "-j", name, check=False)
    iptables("-F", name, check=False)
    iptables("-X", name, check=False)


def _life(each: Container) -> str:
    return f"{each.id[:12]} {each.started_at}"


def _has_ended(before: Container, now: Container) -> bool:
    return not now.running or _life(now) != _life(before)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _pids(each: Container) -> list[int]:
    return [int(line) for line in docker("top", each.id, "-eo", "pid").splitlines()[1:]]


def _main_pid(each: Container) -> int:
    """Gives the process that is the member: the child of process 1, which passes signals on."""
    for line in docker("top", each.id, "-eo", "pid,ppid").splitlines()[1:]:
        pid, parent = line.split()
        if int(parent) == each.pid:
            return int(pid)
    return each.pid


def _usage(pid: int) -> Usage:
    process = Path("/proc") / str(pid)
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return Usage(
        resident_bytes=int(status["VmRSS"].split()[0]) * 1024,
        descriptors=len(list((process / "fd").iterdir())),
        threads=int(status["Threads"]),
    )
