"""A mesh whose every connection is mutual TLS, each process with a certificate of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE

import pytest
from integration.runtime.certificates import Authority

import sexton
from sexton_cli.main import run

pytestmark = pytest.mark.slow

ROLES = ("mesh", "worker", "client")


class TlsMesh:
    """Store, queue, coordinator and worker, ended with the stack."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.authority = Authority(folder / "certificates")
        self.folder = folder
        self._stack = stack
        self._processes: list[subprocess.Popen[str]] = []
        self.store = self.start("store", "--data", str(folder / "store"))
        self.queue = self.start("queue", "--store", self.store)
        self.api = self.start("coordinator", "--store", self.store)
        self.start("worker", "--queue", self.queue, "--allow", "shell,http", listens=False)

    def variables(self, name: str) -> dict[str, str]:
        """Gives what says how a process shows itself."""
        issued = self.authority.issue(name, "127.0.0.1", name)
        return {
            "SEXTON_TLS_CA": str(issued.ca),
            "SEXTON_TLS_CERT": str(issued.cert),
            "SEXTON_TLS_KEY": str(issued.key),
            "SEXTON_SECRETS_DIR": str(self.folder / "secrets"),
        }

    def start(self, role: str, *flags: str, listens: bool = True) -> str:
        """Starts a service; gives its address, or what it calls itself."""
        kept = {name: value for name, value in os.environ.items() if "SEXTON_" not in name}
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", f"sexton_{role}", "--tls-require-client-cert"),
                *(("--listen", "127.0.0.1:0") if listens else ()),
                *flags,
            ],
            env=kept | {"PYTHONPATH": os.pathsep.join(sys.path)} | self.variables(role),
            stdout=PIPE,
            text=True,
        )
        self._processes.append(process)
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)
        assert process.stdout is not None
        self._stack.enter_context(process.stdout)
        line = process.stdout.readline()
        assert " ready " in line, role
        return line.split()[-1]

    def all_live(self) -> bool:
        """Tells whether no process has ended."""
        return all(process.poll() is None for process in self._processes)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsMesh]:
    with ExitStack() as stack:
        yield TlsMesh(tmp_path_factory.mktemp("tls"), stack)


@pytest.fixture
def mesh(running: TlsMesh, monkeypatch: pytest.MonkeyPatch) -> TlsMesh:
    for name, value in running.variables("client").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SEXTON_CLIENT_SECRET_FILE", str(running.folder / "secrets" / "client"))
    monkeypatch.setenv("SEXTON_API", running.api)
    monkeypatch.setattr("sexton_cli.online.session._RETRY_FOR_S", 0.2)
    return running


async def listed() -> list[str]:
    async with sexton.AsyncClient() as client:
        return [job.full_name async for job in client.jobs.list(prefix="hello")]


@contextmanager
def answering(status: int) -> Iterator[str]:
    """Serves one status; gives the URL."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_what_no_repetition_mends_ends_its_run_at_once(mesh: TlsMesh) -> None:
    retry = sexton.Retry(max_attempts=3, initial_backoff=timedelta(milliseconds=50))
    ended = {}
    with sexton.Client() as client:
        for status in (204, 404, 503):
            with answering(status) as url:
                spec = sexton.JobSpec(task=sexton.HttpTask(url), retry=retry)
                client.jobs.create(f"call-{status}", spec)
                run = client.jobs.trigger(f"call-{status}").run
                assert run is not None
                found = client.runs.wait(run, timeout_s=30)
                ended[status] = (found.state.value, len(found.attempts))
    assert ended == {204: ("succeeded", 1), 404: ("failed", 1), 503: ("failed", 3)}


def test_jobs_run_and_both_clients_and_the_command_line_find_their_way(
    mesh: TlsMesh, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with sexton.Client() as client:
        client.jobs.create("hello", sexton.JobSpec(task=sexton.ShellTask("echo hello")))
        started = client.jobs.trigger("hello").run
        assert started is not None
        assert client.runs.wait(started).state is sexton.RunState.SUCCEEDED
    assert asyncio.run(listed()) == ["default/hello"]
    capsys.readouterr()
    assert run(["jobs", "list", "--prefix", "hello", "-o", "name"]) == 0
    assert capsys.readouterr().out == "default/hello\n"
    assert run(["clock", "status", "--store", mesh.store]) == 0
    assert run(["health", mesh.api]) == 0
    with monkeypatch.context() as reading:
        reading.setenv("SEXTON_CLIENT_SECRET_FILE", str(mesh.folder / "secrets" / "reader"))
        assert run(["jobs", "show", "hello"]) == 0
        assert run(["jobs", "trigger", "hello"]) == 4
        said = "the reader secret only reads; TriggerJob takes the client or mesh secret"
        assert said in capsys.readouterr().err
    monkeypatch.delenv("SEXTON_TLS_CERT")
    monkeypatch.delenv("SEXTON_TLS_KEY")
    assert run(["jobs", "list"]) == 5
    given = sexton.Tls(
        ca=mesh.authority.ca,
        cert=mesh.authority.folder / "client.pem",
        key=mesh.authority.folder / "client.key",
    )
    with sexton.Client(tls=given) as client:
        assert client.jobs.get("hello").version == 1


def test_every_secret_is_changed_at_once_and_nothing_is_restarted(
    mesh: TlsMesh, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sexton._watched_files.LOOK_EVERY_S", 0.0)
    secrets = mesh.folder / "secrets"
    old = (secrets / "client").read_text().strip()
    with sexton.Client() as client:
        client.jobs.create("changed", sexton.JobSpec(task=sexton.ShellTask("echo hello")))
        changes = [f"--{what}={role}" for what in ("renew", "retire") for role in ROLES]
        assert run(["secrets", str(secrets), *changes]) == 0
        assert capsys.readouterr().out.count("the old ones retired") == 3
        mesh.start("worker", "--queue", mesh.queue, "--allow", "shell", listens=False)
        for _ in range(2):
            started = client.jobs.trigger("changed").run
            assert started is not None
            assert client.runs.wait(started, timeout_s=30).state is sexton.RunState.SUCCEEDED
    assert run(["clock", "status", "--store", mesh.store]) == 0
    with sexton.Client(secret=old) as client, pytest.raises(sexton.Unauthenticated):
        client.jobs.get("changed")
    assert mesh.all_live()
