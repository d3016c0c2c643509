"""The servers that the peers need: started for one measurement on a free port, and stopped."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_HOST = "127.0.0.1"
_START_S = 30.0
_STOP_S = 10.0
_PROGRAMS = {"redis": ("redis-server",), "postgresql": ("initdb", "postgres")}
_PACKAGES = {"redis": "redis-server", "postgresql": "postgresql"}


class MissingError(Exception):
    """A program is not installed."""


@contextlib.contextmanager
def redis(place: Path, *, fsync: str) -> Iterator[tuple[str, int]]:
    """Runs Redis with an append-only file; gives its URL and its process id.

    fsync: `always`: a write is on the disk before it is answered; `everysec`: a second later.
    """
    program = _find("redis-server", _PACKAGES["redis"])
    port = _free_port()
    arguments = ["--port", str(port), "--bind", _HOST, "--dir", str(place), "--save", "",
                 "--appendonly", "yes", "--appendfsync", fsync]  # fmt: skip
    with _running([program, *arguments], port) as pid:
        yield f"redis://{_HOST}:{port}/0", pid


@contextlib.contextmanager
def postgresql(place: Path) -> Iterator[tuple[str, int]]:
    """Runs PostgreSQL as it is set up by default; gives its URL and its process id."""
    initdb, program = (_find(name, _PACKAGES["postgresql"]) for name in _PROGRAMS["postgresql"])
    data = place / "data"
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to be root
    data.mkdir(mode=0o700)
    if user is not None:
        place.chmod(0o755)
        shutil.chown(data, user)
    port = _free_port()
    subprocess.run(
        [initdb, "-D", str(data), "-U", "peer", "--auth=trust"],
        user=user, cwd="/", check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    command = [program, "-D", str(data), "-p", str(port), "-k", "",
               "-c", f"listen_addresses={_HOST}", "-c", "log_min_messages=fatal"]  # fmt: skip
    with _running(command, port, user=user) as pid:
        yield f"postgresql://peer@{_HOST}:{port}/postgres", pid


@contextlib.contextmanager
def _running(command: list[str], port: int, *, user: str | None = None) -> Iterator[int]:
    process = subprocess.Popen(
        command, user=user, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        until = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection((_HOST, port), 1.0):
                break
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{command[0]} did not start")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _find(program: str, package: str) -> str:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders)])
    found = shutil.which(program, path=path)
    if found is None:
        raise MissingError(
            f"{program} is not installed. On Debian or Ubuntu: apt-get install {package}"
        )
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def require(names: set[str]) -> None:
    """Raises `MissingError` where a server can't be started, before anything is installed."""
    for name in sorted(names):
        for program in _PROGRAMS[name]:
            _find(program, _PACKAGES[name])
