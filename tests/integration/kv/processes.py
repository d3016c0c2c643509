"""Real processes for the tests of the store client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from integration.store.store_process import READY, StoreProcess

from sexton_runtime.clock import SystemClock
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.policy_channel import PolicyChannel


class RestartableStore(StoreProcess):
    """A store that comes back at the address at which its clients look for it."""

    def kill(self) -> None:
        """Ends it with SIGKILL."""
        self.end(signal.SIGKILL)

    def start_again(self) -> None:
        """Starts it on its folder and its address."""
        self.process = self.spawn("--listen", self.address)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(READY), self.process.communicate()[1]


@asynccontextmanager
async def client_of(store: StoreProcess) -> AsyncIterator[StoreClient]:
    """Connects to a store."""
    channel = PolicyChannel(GrpcTransport().channel(store.address), secret=store.secret())
    clock, randomness = SystemClock(), SystemRandomness()
    async with channel, StoreClient(channel, clock=clock, randomness=randomness) as client:
        yield client


@contextmanager
def python(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a Python process, which is ended with its block."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, *arguments], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def holder(store: StoreProcess, log: Path) -> list[str]:
    """Gives the command line of a holder."""
    program = Path(__file__).with_name("holder.py")
    return [str(program), store.address, str(store.folder / "secrets"), str(log)]
