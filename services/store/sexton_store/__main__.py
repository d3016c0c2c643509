"""`python -m sexton_store --data DIR`: runs a store until it is told to stop.

Exit codes: 0 stopped as asked; 1 could not start; 2 wrong flags or configuration; 75 stopped itself
because the outcome of a commit is unknown: start it again.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence

from sexton.errors import OutcomeUnknown, SextonError
from sexton_runtime.binding import check_listen
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
from sexton_store.app import Store, prefer_writer_thread
from sexton_store.backup_stream import BackupStream
from sexton_store.cluster import NewerFormatError, ShardsFixedError
from sexton_store.config import StoreConfig
from sexton_store.disk import DamagedError, DiskFailedError, DiskFullError
from sexton_store.folder import FolderLockedError
from sexton_store.history import FileHistory
from sexton_store.lmdb_disk import LmdbDisk

_CANNOT_START = (
    FolderLockedError,
    NewerFormatError,
    ShardsFixedError,
    DamagedError,
    DiskFullError,
    DiskFailedError,
    SextonError,
    OSError,
)
"""What keeps a store from starting and has a message that says what to do."""


def main(arguments: Sequence[str] | None = None, *, program: str = "sexton_store") -> int:
    """Runs a store with a command line's flags; gives the exit code."""
    parser = argparse.ArgumentParser(prog=program, description="Runs a store.")
    add_flags(parser, StoreConfig, "store", own=True)
    add_flags(parser, SecretsConfig, "secrets")
    add_flags(parser, TlsConfig, "tls")
    add_flags(parser, LogConfig, "log")
    add_flags(parser, TelemetryConfig, "telemetry")
    try:
        sources = parse_flags(parser, arguments)
        configure_logging(sources.load(LogConfig, "log"), service="store")
        return asyncio.run(_run(sources))
    except ConfigError as error:
        _complain(program, error)
        return ExitCode.USAGE
    except OutcomeUnknown as error:
        _complain(program, error)
        return ExitCode.RESTART
    except _CANNOT_START as error:
        _complain(program, error)
        return ExitCode.FAILED
    except KeyboardInterrupt:  # before it had started; from then on it is a reason to stop
        return 128 + signal.SIGINT


async def _run(sources: Sources) -> ExitCode:
    config = sources.load(StoreConfig, "store")
    clock, randomness = SystemClock(), SystemRandomness()
    secrets = load_or_create_secrets(
        sources.load(SecretsConfig, "secrets"), (Role.MESH,), randomness
    )
    tls = load_tls(sources.load(TlsConfig, "tls"), serves=True)
    telemetry = open_telemetry(
        sources.load(TelemetryConfig, "telemetry"),
        service="sexton-store",
        version=software_version(),
        instance=randomness.token_hex(8),
    )
    check_listen(config.listen, "listen", secured=bool(secrets), insecure=config.insecure)
    prefer_writer_thread()
    history = FileHistory(config.history) if config.history else None
    disk = LmdbDisk.open(config.data, config.disk(), clock=clock, history=history)
    store = Store(
        disk=disk,
        transport=GrpcTransport(tls=tls),
        clock=clock,
        randomness=randomness,
        listen=config.listen,
        config=config.engine(),
        secrets=secrets,
        insecure=config.insecure,
        telemetry=telemetry,
        backups=BackupStream(config.data).pieces,
    )

    def announce() -> None:
        print(f"store ready on {store.server.address}", flush=True)  # noqa: T201 - for its starter

    return await store.lifecycle.run(on_started=announce)


def _complain(program: str, error: Exception) -> None:
    reason = str(error)
    if isinstance(error, OSError) and error.strerror:
        reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    print(f"{program}: {reason}", file=sys.stderr)  # noqa: T201 - the reason for not starting


if __name__ == "__main__":
    sys.exit(main())
