"""`python -m sexton_console --data DIR --api HOST:PORT`: runs the console until told to stop.

Exit codes: 0 stopped as asked; 1 could not start; 2 wrong flags or configuration.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

import sexton_runtime.rpc.polling  # noqa: F401 - before anything imports gRPC
from sexton_console.app import Console
from sexton_console.config import ConsoleConfig
from sexton_runtime.clock import SystemClock
from sexton_runtime.config import Sources
from sexton_runtime.lifecycle import ExitCode
from sexton_runtime.logging import LogConfig
from sexton_runtime.program import announce, run_program
from sexton_runtime.secrets import Role, SecretsConfig, load_secret


def main(arguments: Sequence[str] | None = None, *, program: str = "sexton_console") -> int:
    """Runs a console with a command line's flags; gives the exit code."""
    return run_program(
        _run,
        arguments,
        program=program,
        description="Runs the console.",
        service="console",
        config=ConsoleConfig,
        sections={"secrets": SecretsConfig, "log": LogConfig},
    )


async def _run(sources: Sources) -> ExitCode:
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    secrets = sources.load(SecretsConfig, "secrets")
    console = Console(
        sources.load(ConsoleConfig, "console"),
        client_secret=load_secret(secrets, Role.CLIENT),
        reader_secret=load_secret(secrets, Role.READER),
        clock=SystemClock(),
    )
    return await console.lifecycle.run(
        on_started=lambda: announce(
            f"console ready on http://{console.web.address}, OTLP on {console.receiver.address}"
        )
    )


if __name__ == "__main__":
    sys.exit(main())
