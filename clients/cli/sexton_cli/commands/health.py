"""`sexton health`: whether a process serves, for supervisors and for people."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from sexton_cli import logs
from sexton_cli.errors import NotFound, Refused, Unavailable, UsageError
from sexton_cli.output import print_line


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("health")(health)


def health(
    address: Annotated[
        str,
        typer.Argument(
            metavar="HOST:PORT", envvar="SEXTON_HEALTH", help="Where the process listens."
        ),
    ],
    service: Annotated[
        str,
        typer.Option(
            envvar="SEXTON_HEALTH_SERVICE",
            metavar="NAME",
            help="One service of it: `leader` of a coordinator or a queue, `queue` of a worker.",
        ),
    ] = "",
    timeout: Annotated[
        float, typer.Option(min=0.1, max=60, metavar="SECONDS", help="Longest time to wait.")
    ] = 3.0,
) -> None:
    """Ask a process for its health, as gRPC's health service has it. Needs no secret.

    Ends with 0 where it serves, 4 where it says that it does not, 3 where it does not know the
    service, 5 where it does not answer.
    """
    from sexton_runtime.binding import parse_address  # noqa: PLC0415 - heavy
    from sexton_runtime.config import ConfigError  # noqa: PLC0415

    try:
        parse_address(address, "health")
    except ConfigError as error:
        raise UsageError(str(error)) from None
    logs.to_stderr()
    serving = asyncio.run(_check(address, service, timeout))
    named = f"{address} {service}".rstrip()
    if not serving:
        raise Refused(f"{named}: does not serve")
    print_line(f"{named}: serves")


async def _check(address: str, service: str, timeout_s: float) -> bool:
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415 - heavy

    from sexton import errors  # noqa: PLC0415
    from sexton_runtime.config import ConfigError, Sources  # noqa: PLC0415
    from sexton_runtime.rpc.grpc_transport import GrpcTransport  # noqa: PLC0415
    from sexton_runtime.rpc.policy_channel import PolicyChannel  # noqa: PLC0415
    from sexton_runtime.tls import TlsConfig, load_tls  # noqa: PLC0415

    request = health_pb2.HealthCheckRequest(service=service)
    try:
        tls = load_tls(Sources().load(TlsConfig, "tls"), serves=False)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    try:
        async with PolicyChannel(GrpcTransport(tls=tls).channel(address)) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)  # its types know no methods
            answer = await stub.Check(request, timeout=timeout_s)
    except errors.NotFound as error:
        raise NotFound(f"{address}: {error}") from None
    except errors.SextonError as error:
        raise Unavailable(f"{address}: does not answer: {error}") from None
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
