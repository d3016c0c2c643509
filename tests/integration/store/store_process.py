"""A real store: a process of its own, on 127.0.0.1, asked over real gRPC."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from sexton.internal.v1 import store_pb2 as pb
from sexton.internal.v1 import store_pb2_grpc
from sexton_runtime.rpc.grpc_transport import GrpcTransport

READY = "store ready on "
SERVING = health_pb2.HealthCheckResponse.SERVING


class StoreProcess:
    """One store's process and folder; `start` may follow on an end of any kind."""

    def __init__(self, folder: Path, *flags: str, secured: bool = True) -> None:
        self.folder = folder
        self.address = ""
        self.process: subprocess.Popen[str] | None = None
        secrets = ("--secrets-dir", str(folder / "secrets")) if secured else ()
        self._flags = (*secrets, *flags)

    def spawn(self, *flags: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "sexton_store", "--data", str(self.folder / "data")]
        return subprocess.Popen(
            [*command, *self._flags, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )

    def start(self) -> StoreProcess:
        self.process = self.spawn("--listen", "127.0.0.1:0")
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(READY), self.process.communicate()[1]
        self.address = line.removeprefix(READY).strip()
        return self

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Sends the signal and gives the exit code and what was written to stderr."""
        self.send(signal.SIGCONT)
        self.send(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Waits for the end and gives the exit code and what was written to stderr."""
        assert self.process is not None
        _, stderr = self.process.communicate(timeout=20)
        return self.process.returncode, stderr

    def secret(self) -> str:
        return (self.folder / "secrets" / "mesh").read_text().strip()


class Refusal(NamedTuple):
    """What a caller sees of a refused call."""

    code: str
    reason: str
    message: str
    facts: dict[str, str]


class Client:
    """Speaks to a store as any gRPC client would, without our own channel's help."""

    def __init__(self, address: str, secret: str = "") -> None:
        self.channel = GrpcTransport().channel(address)
        self.metadata: tuple[tuple[str, str], ...] = (
            (("authorization", f"Bearer {secret}"),) if secret else ()
        )
        self.stub: Any = store_pb2_grpc.StoreServiceStub(self.channel)
        self.health: Any = health_pb2_grpc.HealthStub(self.channel)

    async def call(self, method: str, request: Any, **options: Any) -> Any:
        """Makes a call; of a stream of answers gives the first. None: sends nothing.

        A message on its way to a server that has refused the call makes gRPC's client forget the
        refusal now and then ("Internal error from Core").
        """
        options = {"timeout": 10, "metadata": self.metadata} | options
        if request is None:
            stream = getattr(self.stub, method)(**options)
        elif method == "CommitStream":
            stream = self.stub.CommitStream(_one(request), **options)
        else:
            stream = getattr(self.stub, method)(request, **options)
        if not hasattr(stream, "read"):
            return await stream
        try:
            return await stream.read()
        finally:
            stream.cancel()

    async def raw(self, method: str, request: bytes) -> Any:
        """Calls a unary method with bytes as they are."""
        call = self.channel.unary_unary(f"/sexton.internal.v1.StoreService/{method}")
        return await call(request, timeout=10, metadata=self.metadata)

    async def commit(self, *txns: pb.Txn) -> Any:
        return await self.call("Commit", pb.CommitRequest(txns=txns))

    async def put(self, key: bytes, value: bytes = b"v") -> int:
        answer = await self.commit(pb.Txn(then=[pb.Op(key=key, put=value)]))
        return int(answer.results[0].revision)

    async def revision(self) -> int:
        return int((await self.call("Status", pb.StatusRequest())).revision)

    async def healthy(self) -> bool:
        answer = await self.health.Check(health_pb2.HealthCheckRequest(), timeout=10)
        return bool(answer.status == SERVING)


def refusal(error: aio.AioRpcError) -> Refusal:
    """Reads a failed call; it holds exactly one ErrorInfo."""
    status: status_pb2.Status | None = rpc_status.from_call(error)  # type: ignore[arg-type]
    infos = []
    for detail in status.details if status else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            infos.append(info)
    assert [info.domain for info in infos] == ["sexton"], error
    return Refusal(
        error.code().name, infos[0].reason, error.details() or "", dict(infos[0].metadata)
    )


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEXTON_")}
    return kept | {"PYTHONPATH": os.pathsep.join(sys.path)}


async def _one(request: Any) -> Any:
    yield request
