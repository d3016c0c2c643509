"""`python -m sexton_coordinator --store HOST:PORT`: runs a coordinator until it is told to stop.

Exit codes: 0 stopped as asked; 1 could not start; 2 wrong flags or configuration; 75 stopped itself
in order to be started again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from sexton.errors import SextonError
from sexton_coordinator.app import Coordinator
from sexton_coordinator.config import CoordinatorConfig
from sexton_runtime.clock import SystemClock
from sexton_runtime.config import ConfigError, Sources, add_flags, parse_flags
from sexton_runtime.lifecycle import ExitCode
from sexton_runtime.logging import LogConfig, configure_logging
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.secrets import Role, SecretsConfig, load_or_create_secrets
from sexton_runtime.telemetry import TelemetryConfig, open_telemetry
from sexton_runtime.tls import TlsConfig, load_tls
from sexton_runtime.version import software_version


def main(arguments: Sequence[str] | None = None, *, program: str = "sexton_coordinator") -> int:
    """Runs a coordinator with a command line's flags; gives the exit code."""
    parser = argparse.ArgumentParser(prog=program, description="Runs a coordinator.")
    add_flags(parser, CoordinatorConfig, "coordinator", own=True)
    add_flags(parser, SecretsConfig, "secrets")
    add_flags(parser, TlsConfig, "tls")
    add_flags(parser, LogConfig, "log")
    add_flags(parser, TelemetryConfig, "telemetry")
    try:
        sources = parse_flags(parser, arguments)
        configure_logging(sources.load(LogConfig, "log"), service="coordinator")
        return asyncio.run(_run(sources))
    except ConfigError as error:
        _complain(program, error)
        return ExitCode.USAGE
    except (SextonError, OSError) as error:
        _complain(program, error)
        return ExitCode.FAILED


async def _run(sources: Sources) -> ExitCode:
    config = sources.load(CoordinatorConfig, "coordinator")
    randomness = SystemRandomness()
    secrets = load_or_create_secrets(
        sources.load(SecretsConfig, "secrets"), (Role.MESH, Role.CLIENT, Role.READER), randomness
    )
    tls = load_tls(sources.load(TlsConfig, "tls"), serves=True)
    sending = sources.load(TelemetryConfig, "telemetry")
    telemetry = open_telemetry(
        sending,
        service="sexton-coordinator",
        version=software_version(),
        instance=randomness.token_hex(8),
    )
    coordinator = Coordinator(
        transport=GrpcTransport(tls=tls),
        clock=SystemClock(),
        randomness=randomness,
        store=config.store,
        listen=config.listen,
        advertise=config.advertise,
        lease_ttl_s=config.lease_ttl_ms / 1_000,
        secrets=secrets,
        insecure=config.insecure,
        trace_sample=float(bool(sending.endpoint))
        if config.trace_sample is None
        else config.trace_sample,
        telemetry=telemetry,
    )

    def announce() -> None:
        print(f"coordinator ready on {coordinator.server.address}", flush=True)  # noqa: T201

    return await coordinator.lifecycle.run(on_started=announce)


def _complain(program: str, error: Exception) -> None:
    print(f"{program}: {error}", file=sys.stderr)  # noqa: T201 - the reason for not starting


if __name__ == "__main__":
    sys.exit(main())
