"""The worker's process: from its command line to its exit code."""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import structlog

from sexton.errors import SextonError
from sexton.task import registry
from sexton_runtime.clock import SystemClock
from sexton_runtime.collector import collect_less_often
from sexton_runtime.config import ConfigError, Sources, add_flags, parse_flags
from sexton_runtime.lifecycle import ExitCode
from sexton_runtime.log_export import export_logs
from sexton_runtime.logging import LogConfig, configure_logging
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.secrets import Role, SecretsConfig, load_secret
from sexton_runtime.telemetry import TelemetryConfig, open_telemetry
from sexton_runtime.tls import TlsConfig, load_tls
from sexton_runtime.version import software_version
from sexton_worker.app import Worker
from sexton_worker.config import WorkerConfig
from sexton_worker.executors.local import LocalExecutor
from sexton_worker.mark import mark_process
from sexton_worker.output import OUTPUT, route_output
from sexton_worker.tracing import TracedExecutor, Tracing

_OPEN_FILES = 65_536
"""Enough for the commands of 20,000 slots; some programs try to close as many as they may have."""

_log = structlog.get_logger(__name__)


def run(arguments: Sequence[str] | None, *, program: str) -> int:
    """Runs a worker with a command line's flags; gives the exit code."""
    parser = argparse.ArgumentParser(prog=program, description="Runs a worker.")
    add_flags(parser, WorkerConfig, "worker", own=True)
    add_flags(parser, SecretsConfig, "secrets")
    add_flags(parser, TlsConfig, "tls")
    add_flags(parser, LogConfig, "log")
    add_flags(parser, TelemetryConfig, "telemetry")
    try:
        sources = parse_flags(parser, arguments)
        config = sources.load(WorkerConfig, "worker")
        configure_logging(sources.load(LogConfig, "log"), service="worker")
        mark = mark_process()
        _allow_descriptors()
        _import_app(config)
        collect_less_often()
        route_output()
        # The interpreter's own end would wait for threads that tasks have left.
        _leave(asyncio.run(_run(config, sources, mark)))
    except ConfigError as error:
        exit_code, reason = ExitCode.USAGE, str(error)
    except (SextonError, OSError) as error:
        exit_code, reason = ExitCode.FAILED, str(error)
    print(f"{program}: {reason}", file=sys.stderr)  # noqa: T201 - the reason for not starting
    return exit_code


def _allow_descriptors() -> None:
    """Allows this process more open files than is usual: each command takes a few."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, min(most, _OPEN_FILES)), most))


def _import_app(config: WorkerConfig) -> None:
    sys.path.insert(0, os.getcwd())
    for module in config.app:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"worker.app: {module!r} can't be imported: {error}; start the worker in the "
                f"module's folder, or set PYTHONPATH"
            ) from error
    if not config.app and not config.allow:
        raise ConfigError(
            "worker: nothing is allowed; give --app MODULE for Python tasks, "
            "--allow shell,http for commands and calls, or both"
        )


async def _run(config: WorkerConfig, sources: Sources, mark: str) -> ExitCode:
    randomness = SystemRandomness()
    tls = load_tls(sources.load(TlsConfig, "tls"), serves=bool(config.health_listen))
    telemetry = open_telemetry(
        sources.load(TelemetryConfig, "telemetry"),
        service="sexton-worker",
        version=software_version(),
        instance=randomness.token_hex(8),
    )
    export_logs(telemetry, unless=lambda: OUTPUT.get() is not None)
    clock = SystemClock()
    tracing = None
    if telemetry.exporter is not None:
        tracing = Tracing(telemetry.exporter, config.shown_name, clock.wall_ns)
    executor = LocalExecutor(
        registry,
        app=config.app,
        kinds=config.allow,
        scratch=config.scratch,
        mark=mark,
        follow=(lambda _order: None) if tracing is None else tracing.follow,
    )
    worker = Worker(
        config=config,
        executor=executor if tracing is None else TracedExecutor(executor, tracing),
        transport=GrpcTransport(tls=tls),
        clock=clock,
        randomness=randomness,
        die=_die,
        secret=load_secret(sources.load(SecretsConfig, "secrets"), Role.WORKER),
        telemetry=telemetry,
    )

    def announce() -> None:
        print(f"worker ready as {config.shown_name}", flush=True)  # noqa: T201 - for its starter

    exit_code = await worker.lifecycle.run(on_started=announce)
    if executor.in_process:
        _die("tasks in this process did not end in time", exit_code)
    return exit_code


def _die(reason: str, exit_code: int = ExitCode.RESTART) -> None:
    """Ends the process at once, with all that runs in it; the shim ends everything else."""
    _log.error("The worker ends at once.", action="die", reason=reason)
    _leave(exit_code)


def _leave(exit_code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
