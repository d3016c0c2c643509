"""Workers as real processes."""
# ruff: noqa: ASYNC110, ASYNC220, ASYNC240 - other processes are watched

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

APP = "integration.worker.sample_tasks"


class WorkerProcess:
    """A worker, what it has printed, and the end of it."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def end(self) -> int:
        """Waits for its end; gives the exit code."""
        async with asyncio.timeout(20):
            return await asyncio.to_thread(self.process.wait)

    def said(self) -> str:
        return self.log.read_text()


@asynccontextmanager
async def working(
    folder: Path, *addresses: str, arguments: tuple[str, ...] = (), **env: str
) -> AsyncIterator[WorkerProcess]:
    """Runs a worker for these addresses, which is killed with its block."""
    log = folder / "worker.log"
    command = [
        *(sys.executable, "-m", "sexton_worker"),
        *("--queue", ",".join(addresses), "--allow", "shell,http", "--app", APP),
        *("--scratch", str(folder), "--cancel-grace-s", "0.3", *arguments),
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | env
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=file, cwd=folder, start_new_session=True
        )
    worker = WorkerProcess(process, log)
    try:
        yield worker
    finally:
        process.kill()
        process.wait()


def alive(pid: int) -> bool:
    """Tells whether a process runs: a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def dead(*pids: int) -> None:
    """Waits until none of them runs."""
    async with asyncio.timeout(20):
        while any(alive(pid) for pid in pids):
            await asyncio.sleep(0.01)


async def written(path: Path) -> str:
    """Waits for a file with a whole line and gives it."""
    async with asyncio.timeout(20):
        while not path.exists() or not path.read_text().endswith("\n"):
            await asyncio.sleep(0.01)
    return path.read_text().strip()
