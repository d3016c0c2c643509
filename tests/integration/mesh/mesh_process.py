"""A whole mesh of real processes, started as its users start it: with `sexton up`."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sexton import Client, JobSpec, ShellTask
from sexton_cli.up import leash
from sexton_cli.up.plan import taken

PATIENCE_S: Final = 30.0
"""Nothing that is waited for takes longer on any machine; what does is a failure."""
WITNESS: Final = Path(__file__).with_name("witness.sh")
_PORTS: Final = 20
_CONSOLE: Final = 80
"""Where a console is, where there is one."""

T = TypeVar("T")


class Line(NamedTuple):
    """What a job wrote."""

    event: str
    run: str
    nominal: str
    attempt: int
    token: int
    pid: int


class Process(NamedTuple):
    """One of the mesh's processes."""

    name: str
    role: str
    address: str
    pid: int
    starts: int


class MeshProcess:
    """One `sexton up` and what it started."""

    def __init__(
        self, folder: Path, *flags: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.witnesses = folder / "witnesses"
        self.witnesses.mkdir(parents=True)
        self.errors = folder / "up.err"
        self._flags = flags
        self._environment = dict(environment or {})
        self._up: subprocess.Popen[str] | None = None

    # Life

    def start(self) -> MeshProcess:
        """Returns once it serves."""
        base = free_base()
        # Whatever becomes of the tests, the mesh ends with them.
        command = [sys.executable, leash.__file__, str(os.getpid()), "sexton_cli.main", "up"]
        kept = {name: value for name, value in os.environ.items() if "SEXTON_" not in name}
        kept |= {"PYTHONPATH": os.pathsep.join(sys.path), "XDG_STATE_HOME": str(self.folder)}
        with self.errors.open("ab") as errors:
            self._up = subprocess.Popen(
                [
                    *command, "--data", str(self.data), "--port-base", str(base), "--no-console",
                    *self._flags,
                ],
                stdout=subprocess.PIPE, stderr=errors, text=True, env=kept | self._environment,
            )  # fmt: skip
        assert self._up.stdout is not None
        line = self._up.stdout.readline()
        assert line == f"sexton is up: api 127.0.0.1:{base}\n", self.said()
        return self

    @property
    def up_pid(self) -> int:
        assert self._up is not None
        return self._up.pid

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ends it, and gives its exit code. Idempotent."""
        assert self._up is not None
        assert self._up.stdout is not None
        self._up.send_signal(number)  # none where it has ended
        try:
            return self._up.wait(timeout=2 * PATIENCE_S)
        finally:
            self._up.kill()
            self._up.wait()
            self._up.stdout.close()

    def said(self) -> str:
        """Gives what `sexton up` told its user."""
        return self.errors.read_text()

    # Processes

    def processes(self) -> dict[str, Process]:
        """Gives those that run, by name."""
        listed = json.loads((self.data / "processes.json").read_text())["processes"]
        found = [Process(**each) for each in listed if each["pid"] is not None]
        return {process.name: process for process in found}

    def process(self, name: str) -> Process:
        """Waits until it runs."""
        return wait_for(lambda: self.processes().get(name), f"{name} runs")

    def leader(self, role: str, *, after: Process | None = None) -> Process:
        """Waits until a replica leads; `after` one that was killed and may be back itself."""

        def leading() -> Process | None:
            return next(
                (
                    process
                    for process in self.processes().values()
                    if process.role == role
                    and (after is None or process.pid != after.pid)
                    and _serves(process.address, "leader")
                ),
                None,
            )

        return wait_for(leading, f"a {role} leads")

    def send(self, process: Process, number: signal.Signals) -> None:
        """Sends a signal."""
        os.kill(process.pid, number)

    def replaced(self, process: Process) -> Process:
        """Waits until another process serves under its name."""

        def serving() -> Process | None:
            now = self.processes().get(process.name)
            if now is None or now.pid == process.pid:
                return None
            return now if not now.address or _serves(now.address, "") else None

        return wait_for(serving, f"{process.name} serves again")

    # Jobs and what they wrote

    def client(self, **settings: Any) -> Client:
        """Connects to the API, with the secret that a user's client would find."""
        found = json.loads((self.data / "mesh.json").read_text())
        return Client(found["api"], secret_file=found["client_secret_file"], **settings)

    def witness(self, job: str, seconds: float = 0.0, later: float | None = None) -> ShellTask:
        """Gives a task that writes its start and end into the job's file, and sleeps in between.

        Attempts after the first sleep for `later`, where that is given.
        """
        words = [str(WITNESS), str(self.witnesses / job), f"{seconds:g}"]
        words += [f"{later:g}"] if later is not None else []
        return ShellTask(f"exec {shlex.join(words)}")

    def create(self, job: str, spec: JobSpec) -> None:
        """Creates a job."""
        with self.client() as client:
            client.jobs.create(job, spec)

    def lines(self, job: str) -> list[Line]:
        """Gives what the job's runs wrote, in that order."""
        path = self.witnesses / job
        if not path.exists():
            return []
        found = []
        for line in path.read_text().splitlines():
            event, run, nominal, attempt, token, pid = line.split()
            found.append(Line(event, run, nominal, int(attempt), int(token), int(pid)))
        return found

    def wait_for_lines(self, job: str, number: int, event: str = "start") -> list[Line]:
        """Waits until so many lines of a kind are written, and gives those."""

        def enough() -> list[Line] | None:
            found = [line for line in self.lines(job) if line.event == event]
            return found if len(found) >= number else None

        return wait_for(enough, f"{job} has written {number} times {event!r}")


def wait_for(found: Callable[[], T | None], what: str, patience_s: float = PATIENCE_S) -> T:
    """Gives the first answer that is something."""
    deadline = time.monotonic() + patience_s
    while True:
        answer = found()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"after {patience_s:g} s it is not so that {what}"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Tells whether a process exists and is more than an entry that nobody has collected."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def family(pid: int) -> set[int]:
    """Gives a process and all that descend from it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                stat = (entry / "stat").read_text()
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def second(nominal: str) -> int:
    """Gives the seconds of a nominal time as a job sees it."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.0+)?Z", nominal)
    assert match, nominal
    return int(time.mktime(time.strptime(match[1], "%Y-%m-%dT%H:%M:%S")) - time.timezone)


def _serves(address: str, service: str) -> bool:
    with grpc.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=2)
        except grpc.RpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def free_base() -> int:
    """Gives a base with free ports, outside the range that the system gives to clients."""
    for base in random.sample(range(20_000, 32_000, _PORTS), 200):
        if not taken([*range(base, base + _PORTS), base + _CONSOLE]):
            return base
    raise AssertionError("no free ports")
