"""`sexton up` from beginning to end: checks, secrets, processes, the one line, and the stop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from sexton import AsyncClient, Client, local_mesh
from sexton import Role as MemberRole
from sexton.errors import SextonError
from sexton_cli.errors import Refused, Unavailable, UsageError
from sexton_cli.jobfile import JobFile
from sexton_cli.offline.values import read_job_file
from sexton_cli.online import applying
from sexton_cli.online.console import login_link
from sexton_cli.output import print_line, visible
from sexton_cli.up import plan as plans
from sexton_cli.up.plan import Program, UpConfig
from sexton_cli.up.readiness import Readiness
from sexton_cli.up.supervisor import Supervisor
from sexton_runtime.config import ConfigError
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.secrets import Role, SecretsConfig, load_or_create_secrets

_LOCK_FILE: Final = "up.lock"
_OTLP_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""The SDK's own variable."""
_LOOK_S: Final = 0.2
_PATIENCE_S: Final = 10.0
"""After so long it is said what a mesh that does not serve yet is waiting for."""
_KILL_AFTER_S: Final = 15.0
"""Beyond the time that running jobs have: a worker asks what still runs to end, and kills it ten
seconds later."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def default_data() -> Path:
    """Gives the folder of a mesh for which none is named: where its clients look for it, too."""
    return local_mesh.folders()[0]


def up(config: UpConfig, *, jobs: str | None = None, verbose: bool = False) -> int:
    """Runs the mesh until it is told to stop; gives the exit code.

    Raises `CliError` where it can't be started.
    """
    file = None if jobs is None else read_job_file(jobs)
    if file is not None:
        # Whoever applies a file expects its jobs to run, whichever queues they name.
        named = {job.run.queue for job in file.jobs}
        config = replace(config, serve=tuple(sorted(named | set(config.serve))))
    programs = plans.plan(config)
    try:
        config.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _only_one(config.data):
            _check_ports(config, programs)
            load_or_create_secrets(SecretsConfig(dir=config.secrets), Role, SystemRandomness())
            return asyncio.run(_Up(config, programs, file, verbose=verbose).run())
    except ConfigError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise Refused(f"{error.filename or config.data}: {error.strerror}") from None


class _Up:
    """One mesh while it runs."""

    def __init__(
        self,
        config: UpConfig,
        programs: list[Program],
        jobs: JobFile | None,
        *,
        verbose: bool,
    ) -> None:
        self._config = config
        self._programs = programs
        self._jobs = jobs
        self._supervisor = Supervisor(
            programs,
            config.data,
            say=self._say,
            verbose=verbose,
            environment=_for_user_code(config),
        )
        self._is_up = False

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            # Under nohup the end of the terminal is to be survived.
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._on_signal)
        self._say(f"starting {len(self._programs)} processes on {self._config.data}")
        supervising = asyncio.create_task(self._supervisor.run())
        async with Readiness(self._programs, on_leader=self._on_leader) as readiness:
            serving = asyncio.create_task(self._serve(readiness))
            await asyncio.wait((supervising, serving), return_when=asyncio.FIRST_COMPLETED)
            try:
                if serving.done():
                    await serving  # it ends only with an error
                return await supervising
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
                if not supervising.done():
                    self._supervisor.stop(0.0)
                    await supervising

    async def _serve(self, readiness: Readiness) -> None:
        """Says that the mesh is up once it is, and where, for as long as it runs."""
        mesh = local_mesh.LocalMesh(
            api=plans.api_addresses(self._programs),
            client_secret_file=self._config.secrets / Role.CLIENT.value,
            console=f"http://{plans.HOST}:{self._config.console_port}"
            if self._config.console
            else "",
        )
        await self._become_ready(readiness, mesh)
        folders = {self._config.data.absolute(), local_mesh.folders()[-1].absolute()}
        for folder in folders:
            local_mesh.announce(mesh, folder)
        try:
            if self._jobs is not None:
                for line in await asyncio.to_thread(_apply, self._jobs, mesh):
                    print_line(line)
            self._is_up = True
            print_line(f"sexton is up: api {mesh.api[0]}")
            if mesh.console:
                print_line(f"the console: {login_link(mesh)}")
            sys.stdout.flush()
            await asyncio.Event().wait()
        finally:
            for folder in folders:
                local_mesh.withdraw(mesh, folder)

    async def _become_ready(self, readiness: Readiness, mesh: local_mesh.LocalMesh) -> None:
        loop = asyncio.get_running_loop()
        told = loop.time()
        async with AsyncClient(mesh.api, secret_file=mesh.client_secret_file) as client:
            while missing := readiness.missing() or await self._missing_workers(client):
                await readiness.wait_changed(_LOOK_S)
                if loop.time() - told >= _PATIENCE_S:
                    told = loop.time()
                    self._say(f"waiting for {', '.join(missing)}; logs are in {self._config.logs}")

    async def _missing_workers(self, client: AsyncClient) -> list[str]:
        """Names the workers that the queue has not welcomed. They serve nothing to ask for."""
        try:
            members = (await client.members()).members
        except SextonError:
            return ["an answer of the API"]
        connected = {
            member.details.get("worker")
            for member in members
            if member.role is MemberRole.WORKER and member.details.get("state") == "connected"
        }
        workers = (program.name for program in self._programs if program.role == "worker")
        return [name for name in workers if name not in connected]

    def _on_leader(self, program: Program) -> None:
        if self._is_up and not self._supervisor.stopping:
            self._say(f"{program.name} leads now")

    def _on_signal(self) -> None:
        if self._supervisor.stopping:
            self._say("ending at once")
        else:
            self._say(
                f"stopping: running jobs have {self._config.drain_s:g} s to end; "
                f"press Ctrl-C again to end at once"
            )
        self._supervisor.stop(self._config.drain_s + _KILL_AFTER_S)

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # nobody may be there any more to read it
            sys.stderr.write(f"sexton up: {visible(text)}\n")
            sys.stderr.flush()


def _for_user_code(config: UpConfig) -> dict[str, str]:
    """Tells tasks that use the OpenTelemetry SDK where this mesh's traces go."""
    if not config.console or _OTLP_ENDPOINT in os.environ:
        return {}
    return {_OTLP_ENDPOINT: f"http://{plans.HOST}:{config.otlp_port}"}


@contextlib.contextmanager
def _only_one(data: Path) -> Iterator[None]:
    """Holds the folder; raises `Refused` where another `sexton up` does."""
    descriptor = os.open(data / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
            raise Refused(
                f"{data}: another sexton up (pid {holder}) runs on this folder; stop it, or give "
                f"another one with --data"
            ) from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _check_ports(config: UpConfig, programs: list[Program]) -> None:
    by_port = {
        port: program.name
        for program in programs
        for port in (program.port, *program.other_ports)
        if port is not None
    }
    found = plans.taken(list(by_port))
    if not found:
        return
    named = ", ".join(f"{port} ({by_port[port]})" for port in found)
    free = plans.free_base(config.port_base, [port - config.port_base for port in by_port])
    hint = f"; these are free: --port-base {free}" if free is not None else ""
    plural = "s are" if len(found) > 1 else " is"
    raise Refused(f"{plans.HOST}: the port{plural} taken: {named}{hint}")


def _apply(file: JobFile, mesh: local_mesh.LocalMesh) -> list[str]:
    """Applies a job file, and tells what became of each job."""
    try:
        with Client(mesh.api, secret_file=mesh.client_secret_file) as client:
            return applying.lines_of(applying.apply_file(client, file))
    except SextonError as error:
        raise Unavailable(f"{file.source} was not applied: {error}") from None
