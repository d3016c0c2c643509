"""`python -m sexton_store --data DIR`: runs a store until it is told to stop.

Exit codes: 0 stopped as asked; 1 could not start; 2 wrong flags or configuration; 75 stopped itself
because the outcome of a commit is unknown: start it again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import sexton_runtime.rpc.polling  # noqa: F401 - before anything imports gRPC
from sexton.errors import OutcomeUnknown
from sexton_runtime.binding import check_listen
from sexton_runtime.clock import SystemClock
from sexton_runtime.config import Sources
from sexton_runtime.lifecycle import ExitCode
from sexton_runtime.program import announce, run_program, telemetry_of
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.secrets import Role, SecretsConfig, load_or_create_secrets
from sexton_runtime.tls import TlsConfig, load_tls
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
)
"""What keeps a store from starting and has a message that says what to do."""


def main(arguments: Sequence[str] | None = None, *, program: str = "sexton_store") -> int:
    """Runs a store with a command line's flags; gives the exit code."""
    return run_program(
        _run,
        arguments,
        program=program,
        description="Runs a store.",
        service="store",
        config=StoreConfig,
        failures=_CANNOT_START,
        restarts=(OutcomeUnknown,),
    )


async def _run(sources: Sources) -> ExitCode:
    config = sources.load(StoreConfig, "store")
    clock, randomness = SystemClock(), SystemRandomness()
    secrets = load_or_create_secrets(
        sources.load(SecretsConfig, "secrets"), (Role.MESH,), randomness
    )
    tls = load_tls(sources.load(TlsConfig, "tls"), serves=True)
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
        telemetry=telemetry_of(sources, "store", randomness),
        backups=BackupStream(config.data).pieces,
    )
    return await store.lifecycle.run(
        on_started=lambda: announce(f"store ready on {store.server.address}")
    )


if __name__ == "__main__":
    sys.exit(main())
