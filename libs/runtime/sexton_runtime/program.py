"""How the process of a service begins and ends: flags, configuration, logging, exit codes."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from sexton.errors import SextonError
from sexton_runtime.collector import collect_at_leisure
from sexton_runtime.config import ConfigError, Sources, add_flags, parse_flags
from sexton_runtime.lifecycle import ExitCode
from sexton_runtime.log_export import export_logs
from sexton_runtime.logging import LogConfig, configure_logging
from sexton_runtime.randomness import Randomness
from sexton_runtime.secrets import SecretsConfig
from sexton_runtime.telemetry import Telemetry, TelemetryConfig, open_telemetry
from sexton_runtime.tls import TlsConfig
from sexton_runtime.version import software_version

SECTIONS: Final[Mapping[str, type]] = {
    "secrets": SecretsConfig,
    "tls": TlsConfig,
    "log": LogConfig,
    "telemetry": TelemetryConfig,
}
"""Sections of the configuration that a service has besides its own; `log` is always one."""


def run_program(
    run: Callable[[Sources], Coroutine[Any, Any, int]],
    arguments: Sequence[str] | None,
    *,
    program: str,
    description: str,
    service: str,
    config: type,
    sections: Mapping[str, type] = SECTIONS,
    failures: tuple[type[Exception], ...] = (),
    restarts: tuple[type[Exception], ...] = (),
) -> int:
    """Runs a service with a command line's flags; gives the exit code.

    What keeps it from starting is said on standard error: a `ConfigError` ends it with 2, what is
    in `restarts` with 75, a `SextonError`, an `OSError` and what is in `failures` with 1.
    """
    known: tuple[type[Exception], ...] = (SextonError, OSError, *failures)
    parser = argparse.ArgumentParser(prog=program, description=description)
    add_flags(parser, config, service, own=True)
    for name, section in sections.items():
        add_flags(parser, section, name)
    try:
        sources = parse_flags(parser, arguments)
        configure_logging(sources.load(LogConfig, "log"), service=service)
        return asyncio.run(_serve(run(sources)))
    except ConfigError as error:
        complain(program, error)
        return ExitCode.USAGE
    except restarts as error:
        complain(program, error)
        return ExitCode.RESTART
    except known as error:
        complain(program, error)
        return ExitCode.FAILED
    except KeyboardInterrupt:  # before it had started; from then on it is a reason to stop
        return 128 + signal.SIGINT


async def _serve(running: Coroutine[Any, Any, int]) -> int:
    collecting = asyncio.create_task(collect_at_leisure())
    try:
        return await running
    finally:
        collecting.cancel()


def telemetry_of(sources: Sources, service: str, randomness: Randomness) -> Telemetry:
    """Opens the telemetry of a process of a service, under an id of its own.

    Where there is an endpoint, what the process logs is sent there too.
    """
    telemetry = open_telemetry(
        sources.load(TelemetryConfig, "telemetry"),
        service=f"sexton-{service}",
        version=software_version(),
        instance=randomness.token_hex(8),
    )
    export_logs(telemetry)
    return telemetry


def announce(line: str) -> None:
    """Tells whoever has started the process that it serves."""
    print(line, flush=True)  # noqa: T201 - the one line for its starter


def complain(program: str, error: Exception) -> None:
    """Says on standard error what keeps a program from starting."""
    reason = str(error)
    if isinstance(error, OSError) and error.strerror:
        reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    print(f"{program}: {reason}", file=sys.stderr)  # noqa: T201 - the reason for not starting
