"""`python -m sexton_queue --store HOST:PORT`: runs a queue replica until it is told to stop.

Exit codes: 0 stopped as asked; 1 could not start; 2 wrong flags or configuration; 75 stopped itself
because the store is another one than before: start it again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import sexton_runtime.rpc.polling  # noqa: F401 - before anything imports gRPC
from sexton_queue.app import Queue
from sexton_queue.config import QueueConfig
from sexton_runtime.clock import SystemClock
from sexton_runtime.config import Sources
from sexton_runtime.lifecycle import ExitCode
from sexton_runtime.program import announce, run_program, telemetry_of
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.secrets import Role, SecretsConfig, load_or_create_secrets
from sexton_runtime.tls import TlsConfig, load_tls


def main(arguments: Sequence[str] | None = None, *, program: str = "sexton_queue") -> int:
    """Runs a queue replica with a command line's flags; gives the exit code."""
    return run_program(
        _run,
        arguments,
        program=program,
        description="Runs a queue replica.",
        service="queue",
        config=QueueConfig,
    )


async def _run(sources: Sources) -> ExitCode:
    config = sources.load(QueueConfig, "queue")
    randomness = SystemRandomness()
    secrets = load_or_create_secrets(
        sources.load(SecretsConfig, "secrets"), (Role.MESH, Role.WORKER), randomness
    )
    tls = load_tls(sources.load(TlsConfig, "tls"), serves=True)
    queue = Queue(
        config,
        transport=GrpcTransport(tls=tls),
        clock=SystemClock(),
        randomness=randomness,
        secrets=secrets,
        telemetry=telemetry_of(sources, "queue", randomness),
    )
    return await queue.lifecycle.run(
        on_started=lambda: announce(f"queue ready on {queue.server.address}")
    )


if __name__ == "__main__":
    sys.exit(main())
