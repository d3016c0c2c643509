"""`python -m sexton_console --data DIR --api HOST:PORT`: runs the console until told to stop.

Exit codes: 0 stopped as asked; 1 could not start; 2 wrong flags or configuration.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence

from sexton.errors import SextonError
from sexton_console.app import Console
from sexton_console.config import ConsoleConfig
from sexton_runtime.clock import SystemClock
from sexton_runtime.config import ConfigError, Sources, add_flags, parse_flags
from sexton_runtime.lifecycle import ExitCode
from sexton_runtime.logging import LogConfig, configure_logging
from sexton_runtime.secrets import Role, SecretsConfig, load_secret


def main(arguments: Sequence[str] | None = None, *, program: str = "sexton_console") -> int:
    """Runs a console with a command line's flags; gives the exit code."""
    parser = argparse.ArgumentParser(prog=program, description="Runs the console.")
    add_flags(parser, ConsoleConfig, "console", own=True)
    add_flags(parser, SecretsConfig, "secrets")
    add_flags(parser, LogConfig, "log")
    try:
        sources = parse_flags(parser, arguments)
        configure_logging(sources.load(LogConfig, "log"), service="console")
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        return asyncio.run(_run(sources))
    except ConfigError as error:
        _complain(program, error)
        return ExitCode.USAGE
    except (SextonError, OSError) as error:
        _complain(program, error)
        return ExitCode.FAILED


async def _run(sources: Sources) -> ExitCode:
    secrets = sources.load(SecretsConfig, "secrets")
    console = Console(
        sources.load(ConsoleConfig, "console"),
        client_secret=load_secret(secrets, Role.CLIENT),
        reader_secret=load_secret(secrets, Role.READER),
        clock=SystemClock(),
    )

    def announce() -> None:
        print(  # noqa: T201 - for its starter
            f"console ready on http://{console.web.address}, OTLP on {console.receiver.address}",
            flush=True,
        )

    return await console.lifecycle.run(on_started=announce)


def _complain(program: str, error: Exception) -> None:
    print(f"{program}: {error}", file=sys.stderr)  # noqa: T201 - the reason for not starting


if __name__ == "__main__":
    sys.exit(main())
