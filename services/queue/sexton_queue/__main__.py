"""`python -m sexton_queue --store HOST:PORT`: runs a queue replica until it is told to stop.

Exit codes: 0 stopped as asked; 1 could not start; 2 wrong flags or configuration; 75 stopped itself
because the store is another one than before: start it again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from sexton.errors import SextonError
from sexton_queue.app import Queue
from sexton_queue.config import QueueConfig
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


def main(arguments: Sequence[str] | None = None, *, program: str = "sexton_queue") -> int:
    """Runs a queue replica with a command line's flags; gives the exit code."""
    parser = argparse.ArgumentParser(prog=program, description="Runs a queue replica.")
    add_flags(parser, QueueConfig, "queue", own=True)
    add_flags(parser, SecretsConfig, "secrets")
    add_flags(parser, TlsConfig, "tls")
    add_flags(parser, LogConfig, "log")
    add_flags(parser, TelemetryConfig, "telemetry")
    try:
        sources = parse_flags(parser, arguments)
        configure_logging(sources.load(LogConfig, "log"), service="queue")
        return asyncio.run(_run(sources))
    except ConfigError as error:
        _complain(program, error)
        return ExitCode.USAGE
    except (SextonError, OSError) as error:
        _complain(program, error)
        return ExitCode.FAILED


async def _run(sources: Sources) -> ExitCode:
    config = sources.load(QueueConfig, "queue")
    clock, randomness = SystemClock(), SystemRandomness()
    secrets = load_or_create_secrets(
        sources.load(SecretsConfig, "secrets"), (Role.MESH, Role.WORKER), randomness
    )
    tls = load_tls(sources.load(TlsConfig, "tls"), serves=True)
    telemetry = open_telemetry(
        sources.load(TelemetryConfig, "telemetry"),
        service="sexton-queue",
        version=software_version(),
        instance=randomness.token_hex(8),
    )
    queue = Queue(
        config,
        transport=GrpcTransport(tls=tls),
        clock=clock,
        randomness=randomness,
        secrets=secrets,
        telemetry=telemetry,
    )

    def announce() -> None:
        print(f"queue ready on {queue.server.address}", flush=True)  # noqa: T201 - for its starter

    return await queue.lifecycle.run(on_started=announce)


def _complain(program: str, error: Exception) -> None:
    print(f"{program}: {error}", file=sys.stderr)  # noqa: T201 - the reason for not starting


if __name__ == "__main__":
    sys.exit(main())
