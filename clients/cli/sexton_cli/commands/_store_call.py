"""One call of the command line to a running store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from sexton_cli import logs
from sexton_cli.errors import Refused, Unavailable, UsageError

if TYPE_CHECKING:
    from sexton.internal.v1.store_pb2_grpc import StoreServiceAsyncStub

Answer = TypeVar("Answer")

StoreAddress = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="SEXTON_STORE",
        metavar="HOST:PORT",
        help="The store; default: that of the mesh of this machine, or 127.0.0.1:7600.",
    ),
]
DEFAULT_STORE = "127.0.0.1:7600"


def call_store(
    given: str | None, work: Callable[[StoreServiceAsyncStub], Awaitable[Answer]]
) -> Answer:
    """Connects with the mesh secret, if one is found, and gives what `work` returns.

    The secret is the configured one, or that of the mesh of this machine, which is shown to that
    mesh's own store only.

    Raises `Unavailable` where the store does not answer, `Refused` where it answers with an error,
    `UsageError` where the configuration can't be used.
    """
    # Heavy, and not needed for `sexton --help`.
    from sexton import errors  # noqa: PLC0415
    from sexton.internal.v1.store_pb2_grpc import StoreServiceStub  # noqa: PLC0415
    from sexton_runtime.config import ConfigError, Sources  # noqa: PLC0415
    from sexton_runtime.rpc.grpc_transport import GrpcTransport  # noqa: PLC0415
    from sexton_runtime.rpc.policy_channel import PolicyChannel  # noqa: PLC0415
    from sexton_runtime.secrets import Role, SecretsConfig, load_secret  # noqa: PLC0415
    from sexton_runtime.tls import TlsConfig, load_tls  # noqa: PLC0415

    local, folder = _store_of_this_machine()
    address = given or local or DEFAULT_STORE

    async def run() -> Answer:
        sources = Sources()
        secret, tls = load_secret(sources.load(SecretsConfig, "secrets"), Role.MESH), None
        if address != local:  # what `sexton up` runs speaks in the clear, on loopback
            tls = load_tls(sources.load(TlsConfig, "tls"), serves=False)
        elif not secret:
            secret = load_secret(SecretsConfig(dir=folder), Role.MESH)
        channel = GrpcTransport(tls=tls).channel(address)
        async with PolicyChannel(channel, secret=secret) as policed:
            return await work(StoreServiceStub(policed))

    logs.to_stderr()
    try:
        return asyncio.run(run())
    except ConfigError as error:
        raise UsageError(str(error)) from None
    except (errors.Unavailable, errors.DeadlineExceeded) as error:
        raise Unavailable(f"the store at {address} does not answer: {error}") from None
    except errors.SextonError as error:
        raise Refused(f"the store at {address}: {error}") from None


def _store_of_this_machine() -> tuple[str, Path | None]:
    """Gives the address and the folder of secrets of what `sexton up` has started; else nothing."""
    from sexton import local_mesh  # noqa: PLC0415 - heavy
    from sexton_cli.up.supervisor import PROCESSES_FILE  # noqa: PLC0415

    mesh = local_mesh.find()
    if mesh is None:
        return "", None
    secrets = mesh.client_secret_file.parent
    try:
        listed = json.loads((secrets.parent / PROCESSES_FILE).read_text(encoding="utf-8"))
        return next(p["address"] for p in listed["processes"] if p["role"] == "store"), secrets
    except (OSError, ValueError, KeyError, StopIteration):
        return "", None
