"""What `sexton up` starts: which processes, with which flags, on which ports."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
MAX_REPLICAS: Final = 8
"""Of coordinators and of queues: with these every port lies below the base + 17."""
_WORKER, _COORDINATOR, _QUEUE, _STORE, _CONSOLE = range(5)
"""In this order they end: each needs those after it to end well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpConfig:
    """What the mesh is made of."""

    data: Path
    app: str = ""
    """Module with the tasks of the workers; empty: none."""
    port_base: int = 7400
    coordinators: int = 2
    queues: int = 2
    workers: int = 1
    serve: tuple[str, ...] = ("default",)
    """Queues that the workers serve."""
    drain_s: float = 30.0
    """How long running jobs may go on once the mesh is told to stop."""
    history: bool = False
    """Whether the store writes one line per commit, for `sexton verify`."""
    console: bool = False
    """Whether there is a console, and every run is traced."""

    @property
    def console_port(self) -> int:
        """Gives the port of the console's pages."""
        return self.port_base + 80

    @property
    def otlp_port(self) -> int:
        """Gives the port to which telemetry is sent."""
        return self.port_base + 17

    @property
    def secrets(self) -> Path:
        """Gives the folder of the secrets."""
        return self.data / "secrets"

    @property
    def logs(self) -> Path:
        """Gives the folder of the logs."""
        return self.data / "logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One process to be."""

    name: str
    role: str
    """`store`, `queue`, `coordinator`, `worker`, `console`: the module is `sexton_` and this."""
    arguments: tuple[str, ...]
    port: int | None
    """On which it serves calls; None: it does not."""
    stage: int
    """Of a stop: lower ones end first."""
    other_ports: tuple[int, ...] = ()
    optional: bool = False
    """Whether the mesh goes on without it, also where it can't run at all."""

    @property
    def address(self) -> str:
        """Gives `host:port`; empty where it does not listen."""
        return f"{HOST}:{self.port}" if self.port is not None else ""


def plan(config: UpConfig) -> list[Program]:
    """Gives the processes in the order in which they are started."""
    base = config.port_base
    first_queue, next_coordinator = base + 2, base + 2 + config.queues
    queue_ports = range(first_queue, next_coordinator)
    coordinator_ports = [
        base if number == 0 else next_coordinator + number - 1
        for number in range(config.coordinators)
    ]
    store = f"{HOST}:{base + 1}"
    history = ("--history", str(config.data / "history")) if config.history else ()
    programs = [
        _program(config, "store", "store", base + 1, _STORE,
                 "--data", str(config.data / "store"), *history)
    ]  # fmt: skip
    programs += [
        _program(config, "queue", f"queue-{number}", port, _QUEUE, "--store", store)
        for number, port in enumerate(queue_ports, 1)
    ]
    programs += [
        _program(config, "coordinator", f"coordinator-{number}", port, _COORDINATOR,
                 "--store", store)
        for number, port in enumerate(coordinator_ports, 1)
    ]  # fmt: skip
    if config.console:
        programs.append(_console(config, coordinator_ports))
    app = ("--app", config.app) if config.app else ()
    queues = ",".join(f"{HOST}:{port}" for port in queue_ports)
    programs += [
        _program(config, "worker", f"worker-{number}", None, _WORKER,
                 "--queue", queues, "--queues", ",".join(config.serve), "--allow", "shell,http",
                 "--name", f"worker-{number}", "--drain-timeout-s", f"{config.drain_s:g}", *app)
        for number in range(1, config.workers + 1)
    ]  # fmt: skip
    return programs


def _console(config: UpConfig, coordinator_ports: Sequence[int]) -> Program:
    api = ",".join(f"{HOST}:{port}" for port in coordinator_ports)
    return Program(
        name="console",
        role="console",
        arguments=(
            "--listen", f"{HOST}:{config.console_port}",
            "--otlp-listen", f"{HOST}:{config.otlp_port}",
            "--api", api,
            "--data", str(config.data / "console"),
            "--secrets-dir", str(config.secrets),
            "--log-format", "json",
        ),
        port=None,
        stage=_CONSOLE,
        other_ports=(config.console_port, config.otlp_port),
        optional=True,
    )  # fmt: skip


def api_addresses(programs: Sequence[Program]) -> tuple[str, ...]:
    """Gives the addresses at which the API answers, the first coordinator's first."""
    return tuple(program.address for program in programs if program.role == "coordinator")


def taken(ports: Sequence[int]) -> list[int]:
    """Gives those of the ports on which this machine can't listen now."""
    return [port for port in ports if not _is_free(port)]


def free_base(base: int, offsets: Sequence[int]) -> int | None:
    """Gives the nearest higher base, in steps of 100, with all its ports free; None: there is none.

    Never from the range out of which the system gives ports to clients.
    """
    for candidate in range(base + 100, 32_700, 100):
        if not taken([candidate + offset for offset in offsets]):
            return candidate
    return None


def _program(
    config: UpConfig, role: str, name: str, port: int | None, stage: int, *flags: str
) -> Program:
    listen = ("--listen", f"{HOST}:{port}") if port is not None else ()
    common = ["--secrets-dir", str(config.secrets), "--log-format", "json"]
    if config.console:
        common += ["--telemetry-endpoint", f"http://{HOST}:{config.otlp_port}"]
    return Program(
        name=name, role=role, arguments=(*listen, *flags, *common), port=port, stage=stage
    )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # A port whose last connections linger is free to servers, ours included.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
