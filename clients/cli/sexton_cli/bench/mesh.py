"""A mesh of a bench's own: real processes on a temporary folder, and what they use.

Nothing of it is left behind, and only its own processes are ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import time_ns
from typing import Final

from sexton import AsyncClient
from sexton_cli.bench import tasks
from sexton_cli.errors import CliError
from sexton_cli.up.plan import Program, UpConfig, api_addresses, free_base, plan
from sexton_cli.up.readiness import Readiness
from sexton_cli.up.supervisor import Supervisor
from sexton_runtime.clock import SystemClock
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_runtime.secrets import Role, SecretsConfig, load_or_create_secrets, load_secret

SLOTS: Final = "2000"
"""Of a worker: with fewer in flight the bound would be the number, not the machine."""
_FIRST_PORT: Final = 20_000
_PORT_RANGES: Final = 100
_START_TIMEOUT_S: Final = 60.0
_CHANGE_TIMEOUT_S: Final = 120.0
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the mesh of a bench is made of."""

    coordinators: int = 1
    queues: int = 1
    workers: int = 1
    console: bool = False
    """With one, every run is traced."""
    history: bool = False
    """Whether the store writes one line per commit, for the checker."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the processes."""
    fill: Callable[[Path], None] | None = None
    """Writes the store's folder before anything is started; None: the store begins empty."""


class Mesh:
    """A mesh of the bench's own while it runs."""

    def __init__(
        self,
        config: UpConfig,
        programs: Sequence[Program],
        supervisor: Supervisor,
        readiness: Readiness,
    ) -> None:
        self.config = config
        self.programs: Final = programs
        self.readiness: Final = readiness
        self._supervisor = supervisor

    def client(self, timeout_s: float = 60.0) -> AsyncClient:
        """Gives a client of the API; `async with` it."""
        return AsyncClient(
            api_addresses(self.programs),
            secret_file=self.config.secrets / Role.CLIENT.value,
            timeout_s=timeout_s,
            retry_for_s=30.0,
        )

    @asynccontextmanager
    async def store(self) -> AsyncIterator[StoreClient]:
        """Connects to the store itself, to read what the mesh has written."""
        address = next(p.address for p in self.programs if p.role == "store")
        secret = load_secret(SecretsConfig(dir=self.config.secrets), Role.MESH)
        channel = PolicyChannel(GrpcTransport().channel(address), secret=secret)
        clock, randomness = SystemClock(), SystemRandomness()
        async with channel, StoreClient(channel, clock=clock, randomness=randomness) as store:
            yield store

    def cpu_s(self) -> dict[str, float]:
        """Gives the processor time that the processes have used, by role."""
        used: dict[str, float] = defaultdict(float)
        for program in self.programs:
            stat = self._proc(program, "stat")
            user, system = stat.rpartition(")")[2].split()[11:13]
            used[program.role] += (int(user) + int(system)) / _TICKS_PER_S
        return used

    def memory_mib(self, *, most: bool = False) -> dict[str, float]:
        """Gives the resident memory by role, now or at most so far; of replicas the largest."""
        wanted = "VmHWM:" if most else "VmRSS:"
        used: dict[str, float] = defaultdict(float)
        for program in self.programs:
            for line in self._proc(program, "status").splitlines():
                if line.startswith(wanted):
                    mib = round(int(line.split()[1]) * 1024 / _MIB, 1)
                    used[program.role] = max(used[program.role], mib)
        return used

    def memory_of(self, name: str) -> float:
        """Gives the resident memory of one process in MiB."""
        program = next(p for p in self.programs if p.name == name)
        lines = self._proc(program, "status").splitlines()
        kib = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
        return round(kib * 1024 / _MIB, 1)

    def file_bytes(self) -> int:
        """Gives what the store's data take on the disk."""
        files = (self.config.data / "store").rglob("*")
        return sum(file.stat().st_blocks * 512 for file in files if file.is_file())

    def leader(self, role: str) -> str:
        """Names the replica of a role that leads."""
        program = self.readiness.leader(role)
        if program is None:
            raise CliError(f"no {role} leads; logs are in {self.config.logs}")
        return program.name

    async def end(self, name: str, number: signal.Signals) -> tuple[int, int]:
        """Sends a signal to a process of this mesh, and waits until it has ended.

        Returns:
            When it was sent and when it had ended, nanoseconds of the machine's clock. The
            process is started again by its supervisor.

        """
        pid = self._supervisor.pid(name)
        if pid is None:
            raise CliError(f"{name} has ended before; its log says why: {self.config.logs}")
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        process = os.pidfd_open(pid)
        loop.add_reader(process, ended.set)
        try:
            sent = time_ns()
            signal.pidfd_send_signal(process, number)
            async with asyncio.timeout(_CHANGE_TIMEOUT_S):
                await ended.wait()
            return sent, time_ns()
        finally:
            loop.remove_reader(process)
            os.close(process)

    async def ready(self) -> int:
        """Waits until everything serves; gives the machine's time then."""
        return await self._until(lambda: not self.readiness.missing())

    async def led(self, role: str, *, after: str) -> int:
        """Waits until a replica leads after one that has just ended; gives the machine's time then.

        It may be the same one, where it was started again before its lease had ended.
        """

        def is_gone() -> bool:
            program = self.readiness.leader(role)
            return program is None or program.name != after

        await self._until(is_gone)
        return await self._until(lambda: self.readiness.leader(role) is not None)

    async def unready(self, name: str) -> int:
        """Waits until it is known that a process that has ended does not serve."""
        return await self._until(lambda: name in self.readiness.missing())

    async def _until(self, condition: Callable[[], bool]) -> int:
        try:
            async with asyncio.timeout(_CHANGE_TIMEOUT_S):
                while not condition():
                    await self.readiness.wait_changed(1.0)
        except TimeoutError:
            missing = ", ".join(self.readiness.missing()) or "a successor"
            raise CliError(f"{missing} did not become ready; see {self.config.logs}") from None
        return time_ns()

    def _proc(self, program: Program, file: str) -> str:
        pid = self._supervisor.pid(program.name)
        if pid is None:
            raise CliError(f"{program.name} has ended; its log says why: {self.config.logs}")
        return Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8")


@asynccontextmanager
async def running(folder: Path | None, shape: Shape) -> AsyncIterator[Mesh]:
    """Runs a mesh whose data are below `folder`, and ends it."""
    with tempfile.TemporaryDirectory(prefix="sexton-bench-", dir=folder) as place:
        async with _started(Path(place), shape) as mesh:
            yield mesh


def _first_port() -> int:
    """Gives where ports are looked for: far from those of a bench that starts at the same time."""
    return _FIRST_PORT + os.getpid() % _PORT_RANGES * 100


@asynccontextmanager
async def _started(place: Path, shape: Shape) -> AsyncIterator[Mesh]:
    replicas = shape.coordinators + shape.queues
    base = free_base(_first_port(), (*range(2 + replicas), 17, 80))
    if base is None:
        raise CliError("there are no free ports below 32700")
    config = UpConfig(
        data=place,
        app=tasks.__name__,
        port_base=base,
        coordinators=shape.coordinators,
        queues=shape.queues,
        workers=shape.workers,
        console=shape.console,
        history=shape.history,
    )
    programs = plan(config)
    load_or_create_secrets(SecretsConfig(dir=config.secrets), Role, SystemRandomness())
    if shape.fill is not None:
        await asyncio.to_thread(shape.fill, config.data / "store")
    said: list[str] = []
    environment = {"SEXTON_WORKER_SLOTS": SLOTS, "SEXTON_LOG_LEVEL": "warning"}
    supervisor = Supervisor(
        programs, place, say=said.append, environment=environment | dict(shape.settings)
    )
    supervising = asyncio.create_task(supervisor.run())
    try:
        async with Readiness(programs) as readiness:
            try:
                async with asyncio.timeout(_START_TIMEOUT_S):
                    while readiness.missing() and not supervising.done():
                        await readiness.wait_changed(1.0)
            except TimeoutError:
                raise CliError("\n".join(["the mesh did not become ready", *said])) from None
            if supervising.done():
                raise CliError("\n".join(["the mesh did not start", *said]))
            yield Mesh(config, programs, supervisor, readiness)
    finally:
        supervisor.stop(0.0)
        await supervising
