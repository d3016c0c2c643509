"""`python -m sexton_coordinator --store HOST:PORT`: runs a coordinator until it is told to stop.

Exit codes: 0 stopped as asked; 1 could not start; 2 wrong flags or configuration; 75 stopped itself
in order to be started again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import sexton_runtime.rpc.polling  # noqa: F401 - before anything imports gRPC
from sexton_coordinator.app import Coordinator
from sexton_coordinator.config import CoordinatorConfig
from sexton_runtime.clock import SystemClock
from sexton_runtime.config import Sources
from sexton_runtime.lifecycle import ExitCode
from sexton_runtime.program import announce, run_program, telemetry_of
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.secrets import Role, SecretsConfig, load_or_create_secrets
from sexton_runtime.telemetry import TelemetryConfig
from sexton_runtime.tls import TlsConfig, load_tls


def main(arguments: Sequence[str] | None = None, *, program: str = "sexton_coordinator") -> int:
    """Runs a coordinator with a command line's flags; gives the exit code."""
    return run_program(
        _run,
        arguments,
        program=program,
        description="Runs a coordinator.",
        service="coordinator",
        config=CoordinatorConfig,
    )


async def _run(sources: Sources) -> ExitCode:
    config = sources.load(CoordinatorConfig, "coordinator")
    randomness = SystemRandomness()
    secrets = load_or_create_secrets(
        sources.load(SecretsConfig, "secrets"), (Role.MESH, Role.CLIENT, Role.READER), randomness
    )
    tls = load_tls(sources.load(TlsConfig, "tls"), serves=True)
    sending = sources.load(TelemetryConfig, "telemetry")
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
        telemetry=telemetry_of(sources, "coordinator", randomness),
    )
    return await coordinator.lifecycle.run(
        on_started=lambda: announce(f"coordinator ready on {coordinator.server.address}")
    )


if __name__ == "__main__":
    sys.exit(main())
