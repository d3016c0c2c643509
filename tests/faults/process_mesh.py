"""A mesh of local processes, each with a network and a wall clock of its own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import grpc
from faults.keeper import Keeper
from faults.launch import set_shift
from faults.mesh import (
    CLIENTS,
    PATIENCE_S,
    SETTINGS,
    Ability,
    Member,
    Role,
    Usage,
    wait_for,
    wait_until_healthy,
)
from faults.network import HOST, Network, Roughness
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sexton import Client
from sexton import Role as MemberRole
from sexton.errors import SextonError
from sexton_cli.up import plan as plans
from sexton_cli.up.plan import Program, UpConfig, taken
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.secrets import Role as SecretRole
from sexton_runtime.secrets import SecretsConfig, load_or_create_secrets

DISK_MIB: Final = 96
"""Of the store's own disk."""
_RESERVE_MIB: Final = 4
_PORTS: Final = 20
_ASK_S: Final = 1.0
_MEMBERS_S: Final = 10.0
_TAIL_BYTES: Final = 4_000


class ProcessMesh:
    """`FaultMesh` of processes. Needs root for the small disk; without, it is not `able` of that.

    Processes are started as `sexton up` plans them, by keepers of our own, because a supervisor
    that is under test can't be told to leave a process down.
    """

    kind = "processes"

    def __init__(self, folder: Path, *, seed: int = 0) -> None:
        self.folder = folder
        self.shared = folder / "tasks"
        self.tasks_folder = str(self.shared)
        self.able = frozenset(Ability) - (set() if os.geteuid() == 0 else {Ability.DISK})
        self.network = Network(seed)
        self._config = UpConfig(
            data=folder / "data", app="faults.tasks", port_base=_free_base(),
            coordinators=3, queues=2, workers=2, drain_s=10.0, history=True,
        )  # fmt: skip
        self._keepers: dict[str, Keeper] = {}
        self._programs: dict[str, Program] = {}
        self._asked: dict[str, grpc.Channel] = {}
        self._mounted = False

    # Life

    def start(self) -> None:
        """Returns once it serves."""
        data = self._config.data
        for folder in (data / "store", data / "logs", self.folder / "clocks", self.shared):
            folder.mkdir(parents=True, exist_ok=True)
        if Ability.DISK in self.able:
            options = ["-t", "tmpfs", "-o", f"size={DISK_MIB}m,mode=700", "tmpfs"]
            subprocess.run(["mount", *options, str(data / "store")], check=True)
            self._mounted = True
        secrets = SecretsConfig(dir=self._config.secrets)
        load_or_create_secrets(secrets, SecretRole, SystemRandomness())
        for program in plans.plan(self._config):
            self._add(program)
        wait_until_healthy(self)

    def stop(self) -> None:
        """Ends it. Idempotent."""
        self.network.heal()
        order = sorted(self._keepers.values(), key=lambda it: self._programs[it.name].stage)
        for keeper in order:
            keeper.stop(signal.SIGKILL if keeper.name.startswith("worker") else signal.SIGTERM)
        self._keepers.clear()
        for channel in self._asked.values():
            channel.close()
        self._asked.clear()
        self.network.stop()
        if self._mounted:
            subprocess.run(["umount", str(self._config.data / "store")], check=True)
            self._mounted = False

    def client(
        self, *, timeout_s: float = 5.0, retry_for_s: float = 0.0, history: Path | None = None
    ) -> Client:
        """Connects to the API."""
        ports = [p.port for p in self._programs.values() if p.role == "coordinator" and p.port]
        return Client(
            [f"{HOST}:{self.network.forward(CLIENTS, port)}" for port in ports],
            secret_file=self._config.secrets / SecretRole.CLIENT.value,
            timeout_s=timeout_s,
            retry_for_s=retry_for_s,
            history=history,
        )

    # Who is there

    def names(self) -> Sequence[str]:
        """Gives the names of all members that are meant to run."""
        return list(self._keepers)

    def members(self) -> Mapping[str, Member]:
        """Gives those that run now."""
        running = {name: keeper.pid for name, keeper in self._keepers.items()}
        return {
            name: Member(name, Role(self._programs[name].role), str(pid))
            for name, pid in running.items()
            if pid is not None
        }

    def leader(self, role: Role) -> str | None:
        """Gives who leads now."""
        names = [name for name, member in self.members().items() if member.role is role]
        return next((name for name in names if self._is_serving(name, "leader")), None)

    def serves(self, name: str) -> bool:
        """Tells whether a member is ready."""
        if self._programs[name].role != Role.WORKER.value:
            return self._is_serving(name, "")
        keeper = self._keepers[name]
        if keeper.pid is None:
            return False
        with self.client(timeout_s=_MEMBERS_S) as client:
            try:
                members = client.members().members
            except SextonError:
                return False
        return any(
            member.role is MemberRole.WORKER
            and member.details.get("worker") == name
            and member.details.get("state") == "connected"
            for member in members
        )

    # Processes

    def kill(self, name: str) -> None:
        """Sends SIGKILL."""
        keeper = self._keepers[name]
        keeper.wait_ended(keeper.send(signal.SIGKILL), PATIENCE_S)

    def hold_down(self, name: str) -> None:
        """Kills it, and keeps it from being started again."""
        self._keepers[name].hold()
        self.kill(name)

    def let_up(self, name: str) -> None:
        """Lets it be started again."""
        self._keepers[name].let_go()

    def pause(self, name: str) -> bool:
        """Suspends the process itself."""
        self._keepers[name].send(signal.SIGSTOP)
        return False

    def resume(self, name: str) -> None:
        """Lets it go on."""
        self._keepers[name].send(signal.SIGCONT)

    def restart(self, name: str) -> None:
        """Sends SIGTERM and sees that it is started again."""
        keeper = self._keepers[name]
        pid = keeper.send(signal.SIGTERM)
        assert keeper.wait_ended(pid, PATIENCE_S), f"{name} does not end when it is told to"
        wait_for(lambda: keeper.pid is not None, f"{name} is started again")

    def scale(self, role: Role, number: int) -> None:
        """Makes it so many."""
        assert role in (Role.COORDINATOR, Role.WORKER), "others have fixed addresses"
        if role is Role.COORDINATOR:
            self._config = replace(self._config, coordinators=number)
        else:
            self._config = replace(self._config, workers=number)
        wanted = {program.name: program for program in plans.plan(self._config)}
        for name in sorted(self._keepers.keys() - wanted.keys()):
            keeper = self._keepers.pop(name)
            keeper.stop(signal.SIGTERM)
            del self._programs[name]
        for name, program in wanted.items():
            if name not in self._keepers:
                self._add(program)

    # Network, disk, clock

    def cut(self, source: str, target: str) -> None:
        """Cuts one direction."""
        self.network.cut(source, target)

    def rough(self, name: str, *, delay_ms: int, stalls: float, resets: float) -> None:
        """Makes a member's network bad."""
        self.network.rough(name, Roughness(delay_ms, stalls, resets))

    def heal_network(self) -> None:
        """Takes it all back."""
        self.network.heal()

    def fill_disk(self) -> None:
        """Takes up all that is free on the store's disk."""
        with (self._config.data / "store" / "other").open("ab", buffering=0) as file:
            for piece in (1024 * 1024, 4096):
                try:
                    while True:
                        file.write(bytes(piece))
                except OSError:
                    continue

    def free_disk(self) -> None:
        """Gives it back."""
        (self._config.data / "store" / "other").unlink(missing_ok=True)

    def skew_clock(self, name: str, offset_s: float) -> None:
        """Shifts its wall clock."""
        set_shift(self._shift(name), offset_s)

    # What is left to read

    def store_history(self) -> Sequence[Path]:
        """Gives the store's history files."""
        return sorted((self._config.data / "history").glob("history-*.jsonl"))

    def store_bytes(self) -> int:
        """Gives the size of the data file."""
        return (self._config.data / "store" / "data.mdb").stat().st_size

    def usage(self) -> Mapping[str, Usage]:
        """Gives what each process holds."""
        found = {}
        for name, member in self.members().items():
            process = Path("/proc") / member.life
            status = dict(
                line.split(":", 1) for line in (process / "status").read_text().splitlines()
            )
            found[name] = Usage(
                resident_bytes=int(status["VmRSS"].split()[0]) * 1024,
                descriptors=len(list((process / "fd").iterdir())),
                threads=int(status["Threads"]),
            )
        return found

    def said(self, name: str) -> str:
        """Gives the end of its log."""
        log = self._log(name).read_bytes()[-_TAIL_BYTES:]
        return log.decode(errors="replace")

    # Inside

    def _add(self, program: Program) -> None:
        name = program.name
        set_shift(self._shift(name), 0.0)
        if program.port is not None:
            self.network.name(program.port, name)
        arguments = program.arguments
        if program.role == Role.STORE.value:
            arguments += ("--reserve-bytes", str(_RESERVE_MIB * 1024 * 1024))
        environment = {
            **{key: value for key, value in os.environ.items() if "SEXTON_" not in key},
            **SETTINGS,
            **self.network.environment(name),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "FAULTS_WORKER": name,
        }
        module = ["faults.launch", str(self._shift(name)), f"sexton_{program.role}", *arguments]
        self._programs[name] = program
        self._keepers[name] = keeper = Keeper(name, module, environment, self._log(name))
        keeper.start()

    def _log(self, name: str) -> Path:
        return self._config.logs / f"{name}.log"

    def _shift(self, name: str) -> Path:
        return self.folder / "clocks" / name

    def _is_serving(self, name: str, service: str) -> bool:
        address = self._programs[name].address
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


def _free_base() -> int:
    """Gives a base with free ports, outside the range that the system gives to clients."""
    for base in random.sample(range(20_000, 32_000, _PORTS), 200):
        if not taken(range(base, base + _PORTS)):
            return base
    raise AssertionError("no free ports")
