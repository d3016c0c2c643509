"""Real queue replicas over a real store: processes of their own, asked over real gRPC."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

READY = " ready on "


class Service:
    """One service's process."""

    def __init__(self, module: str, folder: Path, *flags: str) -> None:
        self.module = module
        self.folder = folder
        self.flags = flags
        self.address = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self, *, listen: str = "127.0.0.1:0") -> Service:
        secrets = str(self.folder / "secrets")
        command = [sys.executable, "-m", self.module, "--secrets-dir", secrets, "--listen", listen]
        self.process = subprocess.Popen(
            [*command, *self.flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert READY in line, self.process.communicate()[1]
        self.address = line.rpartition(READY)[2].strip()
        return self

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Sends the signal and gives the exit code and what was written to stderr."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, stderr = self.process.communicate(timeout=20)
        return self.process.returncode, stderr

    def secret(self, role: str) -> str:
        return (self.folder / "secrets" / role).read_text().strip()


def store(folder: Path) -> Service:
    return Service("sexton_store", folder, "--data", str(folder / "data"))


def queue(folder: Path, store_address: str, *flags: str) -> Service:
    return Service("sexton_queue", folder, "--store", store_address, *flags)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEXTON_")}
    return kept | {"PYTHONPATH": os.pathsep.join(sys.path)}
