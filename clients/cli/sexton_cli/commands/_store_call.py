"""One call of the command line to a running store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from sexton_cli import logs
from sexton_cli.errors import Refused, Unavailable, UsageError

if TYPE_CHECKING:
    from sexton.internal.v1.store_pb2_grpc import StoreServiceAsyncStub

Answer = TypeVar("Answer")

StoreAddress = Annotated[
    str,
    typer.Option("--store", envvar="SEXTON_STORE", help="The store's address, host:port."),
]
DEFAULT_STORE = "127.0.0.1:7600"


def call_store(address: str, work: Callable[[StoreServiceAsyncStub], Awaitable[Answer]]) -> Answer:
    """Connects with the mesh secret, if one is configured, and gives what `work` returns.

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

    async def run() -> Answer:
        secret = load_secret(Sources().load(SecretsConfig, "secrets"), Role.MESH)
        channel = GrpcTransport().channel(address)
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
