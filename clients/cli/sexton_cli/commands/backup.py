"""`sexton backup` and `sexton restore`: a store into a file, and a file into a store."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sexton_cli import logs
from sexton_cli.commands._store_call import StoreAddress, call_store
from sexton_cli.errors import NotFound, Refused
from sexton_cli.output import Format, Output, print_data, print_line

if TYPE_CHECKING:
    from sexton.internal.v1.store_pb2_grpc import StoreServiceAsyncStub

BACKUP_TIMEOUT_S = 3_600.0
"""A copy of the largest store on a slow disk."""


def register(app: typer.Typer) -> None:
    """Adds both commands."""
    app.command("backup")(backup)
    app.command("restore")(restore)


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the backup is put.")],
    store: StoreAddress = None,
    output: Output = Format.TABLE,
) -> None:
    """Copy a running store, consistent and verified, into a file that does not exist yet."""
    if file.exists():
        raise Refused(f"{file}: this file exists; name another one, or remove it first")
    if not file.absolute().parent.is_dir():
        raise NotFound(f"{file.absolute().parent}: no such folder")
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")

    async def receive(stub: StoreServiceAsyncStub) -> tuple[int, int]:
        return await _receive(stub, partial)

    try:
        total_bytes, revision = call_store(store, receive)
        partial.rename(file)
        _sync(file.absolute().parent)
    except OSError as error:
        raise Refused(f"{file}: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
    if not print_data({"file": str(file), "bytes": total_bytes, "revision": revision}, output):
        print_line(f"{file}: {total_bytes} bytes, revision {revision}")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The store's data folder.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace what is in the folder.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Make a folder the store that a backup is a copy of.

    The backup is verified first. The store goes on at a revision above everything that was ever
    given out, as a new incarnation: members of the one before are refused until they start again.
    """
    from sexton_runtime.clock import SystemClock  # noqa: PLC0415 - heavy
    from sexton_runtime.randomness import SystemRandomness  # noqa: PLC0415
    from sexton_store import backup as backups  # noqa: PLC0415
    from sexton_store.cluster import NewerFormatError  # noqa: PLC0415
    from sexton_store.disk import DamagedError  # noqa: PLC0415
    from sexton_store.folder import FolderLockedError  # noqa: PLC0415

    logs.to_stderr()
    if not file.is_file():
        raise NotFound(f"{file}: no such file")
    try:
        restored = backups.restore(
            file, data, replace=replace, clock=SystemClock(), randomness=SystemRandomness()
        )
    except backups.FolderNotEmptyError as error:
        raise Refused(f"{error} with --replace") from None
    except (DamagedError, FolderLockedError, NewerFormatError, ValueError) as error:
        raise Refused(str(error)) from None
    except OSError as error:
        raise Refused(f"{error.filename or data}: {error.strerror}") from None
    if print_data(asdict(restored), output):
        return
    replaced = restored.replaced_revision
    print_line(f"{data}: {restored.records} records as of revision {restored.backup_revision}")
    if replaced is not None:
        print_line(f"replaced: a store at revision {replaced}")
    print_line(f"goes on at revision {restored.revision}, incarnation {restored.incarnation}")


async def _receive(stub: StoreServiceAsyncStub, file: Path) -> tuple[int, int]:
    """Writes the stream to a file and syncs it; gives size and revision."""
    from crc32c import crc32c  # noqa: PLC0415

    from sexton.internal.v1 import store_pb2  # noqa: PLC0415

    checksum = told_checksum = size = total_bytes = revision = 0
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # as the data is
    with os.fdopen(descriptor, "wb") as target:
        async for piece in stub.Backup(store_pb2.BackupRequest(), timeout=BACKUP_TIMEOUT_S):
            total_bytes, revision = piece.total_bytes or total_bytes, piece.revision or revision
            checksum = crc32c(piece.data, checksum)
            told_checksum = piece.crc32c or told_checksum
            size += len(piece.data)
            target.write(piece.data)
        target.flush()
        os.fsync(target.fileno())
    if size != total_bytes or checksum != told_checksum:
        raise Refused(f"the backup arrived damaged: {size} of {total_bytes} bytes; try again")
    return total_bytes, revision


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
