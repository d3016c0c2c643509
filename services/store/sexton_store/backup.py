"""Copies of a store: a live one for `Backup`, and the way back, `restore`.

A backup is one compacted data file, byte for byte what a store opens. It is made by a child process
with its own map of the live file, so that the store neither waits nor shares the risk, and it is
examined there before anyone calls it a backup.

**Leases** are kept in a backup as they stand. After a restore each has its full time again, as
after any start, and nobody can renew it: its holder belongs to another incarnation. So it runs out
like the lease of a holder that died, and a holder that does not know of the restore yet has
stopped, by its own deadline, before another one takes its place.

**Revisions** only rise: a restored store goes on above the backup, above what it replaces, and
above the time since 1970 in seconds, fractions included, times 2^21, which no store reaches that
commits less than two million times per second. So no token is ever given out twice, even if the
same backup is restored twice and the folder between them was lost.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import lmdb
from crc32c import crc32c

from sexton_runtime.clock import Clock
from sexton_runtime.randomness import Randomness
from sexton_store import cluster
from sexton_store.disk import DamagedError, DiskFullError
from sexton_store.doctor import (
    Diagnosis,
    child_environment,
    examine,
    examine_in_child,
    require_healthy,
)
from sexton_store.folder import (
    CLUSTER,
    CLUSTER_KEY,
    COPY_PREFIX,
    DATA_FILE,
    LOCK_FILE,
    NEW_FOLDER,
    READERS_FILE,
    FolderLock,
    free_bytes,
    sync_folder,
)
from sexton_store.record import decode_cluster_record, encode_cluster_record

MIB = 1024 * 1024
CHUNK_BYTES = MIB
"""Bytes per message of a backup's stream."""

_NOT_DATA = frozenset({LOCK_FILE, NEW_FOLDER})


class BackupFailedError(Exception):
    """No copy could be made; the store is not affected."""


class FolderNotEmptyError(Exception):
    """A restore would replace something and was not told that it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCopy:
    """A verified copy, there until its context ends."""

    path: Path
    total_bytes: int
    revision: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a restore made."""

    revision: int
    """Where the store goes on; above everything that was ever given out."""
    backup_revision: int
    replaced_revision: int | None
    """That of the data that was replaced; None: there was none, or it could not be read."""
    cluster_id: str
    incarnation: str
    records: int


@asynccontextmanager
async def live_copy(folder: Path) -> AsyncIterator[LiveCopy]:
    """Makes a compacted, examined copy of the store in `folder` while that is running.

    The copy lies in the data folder until the context ends. Raises `DiskFullError` where there is
    no room for it, `DamagedError` where what was copied is damaged, else `BackupFailedError`.
    """
    needed = (folder / DATA_FILE).stat().st_size
    if free_bytes(folder) < needed:
        raise DiskFullError(f"a copy may need {needed} bytes in {folder}; there is less room")
    scratch = Path(tempfile.mkdtemp(prefix=COPY_PREFIX, dir=folder))
    try:
        diagnosis = await _copy_in_child(folder, scratch)
        require_healthy(diagnosis, folder / DATA_FILE, "`sexton doctor` tells more.")
        yield LiveCopy(
            path=scratch / DATA_FILE,
            total_bytes=diagnosis.data_bytes,
            revision=diagnosis.revision,
            records=diagnosis.records,
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def read_chunks(copy: LiveCopy) -> Iterator[tuple[bytes, int]]:
    """Reads a copy in chunks, each with the CRC32C of the file up to and including it."""
    checksum = 0
    with copy.path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            checksum = crc32c(chunk, checksum)
            yield chunk, checksum


def restore(
    backup: Path, folder: Path, *, replace: bool, clock: Clock, randomness: Randomness
) -> Restored:
    """Makes `folder` the store that `backup` is a copy of, as a new incarnation. Blocks.

    All or nothing: until the last step, a rename, the folder is what it was. Raises `DamagedError`
    where the backup is not sound, `FolderNotEmptyError` where the folder holds anything and
    `replace` is not set, `FolderLockedError` where a store is running there, `NewerFormatError`.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = FolderLock(folder)
    try:
        _require_room(folder, replace=replace)
        new = folder / NEW_FOLDER
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        try:
            shutil.copyfile(backup, new / DATA_FILE)
            (new / DATA_FILE).chmod(0o600)
            diagnosis = examine_in_child(new)
            require_healthy(diagnosis, backup, "Nothing was restored; take another backup.")
            replaced = _revision_of(folder)
            restored = _rewrite(new, diagnosis, replaced, clock, randomness)
            (folder / READERS_FILE).unlink(missing_ok=True)
            (new / DATA_FILE).rename(folder / DATA_FILE)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        sync_folder(folder)
        sync_folder(folder.parent)
    except BaseException:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        lock.release()
    return restored


def _require_room(folder: Path, *, replace: bool) -> None:
    present = sorted(path.name for path in folder.iterdir() if path.name not in _NOT_DATA)
    if present and not replace:
        raise FolderNotEmptyError(
            f"the folder {folder} is not empty ({', '.join(present[:5])}): name an empty one, or "
            "say that its data may be replaced"
        )


def _rewrite(
    new: Path, diagnosis: Diagnosis, replaced: int | None, clock: Clock, randomness: Randomness
) -> Restored:
    """Makes the verified data in `new` an incarnation of its own, durably."""
    map_bytes = 2 * diagnosis.data_bytes + MIB
    with lmdb.Environment(str(new), map_size=map_bytes, max_dbs=2, mode=0o600) as env:
        database = env.open_db(CLUSTER)
        with env.begin(write=True) as txn:
            stored = txn.get(CLUSTER_KEY, db=database)
            if stored is None:
                raise DamagedError("the backup holds no cluster record: it was never a store")
            content = cluster.restored(
                decode_cluster_record(stored),
                replaced_revision=replaced or 0,
                wall_ns=clock.wall_ns(),
                incarnation=cluster.new_incarnation(randomness),
            )
            txn.put(CLUSTER_KEY, encode_cluster_record(content), db=database)
    fd = os.open(new / DATA_FILE, os.O_RDWR)
    try:
        os.fsync(fd)  # LMDB has synced what it wrote, not what the copy wrote
    finally:
        os.close(fd)
    state = cluster.decode(content)
    return Restored(
        revision=state.revision,
        backup_revision=diagnosis.revision,
        replaced_revision=replaced,
        cluster_id=state.cluster.cluster_id,
        incarnation=state.cluster.incarnation,
        records=diagnosis.records,
    )


def _revision_of(folder: Path) -> int | None:
    """Reads the revision of the data that is to be replaced, in a child: it may be damaged."""
    if not (folder / DATA_FILE).exists():
        return None
    child = subprocess.run(  # noqa: S603 - our own module, in our own interpreter
        _child_command("revision", folder),
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return int(child.stdout) if child.returncode == 0 else None


async def _copy_in_child(folder: Path, scratch: Path) -> Diagnosis:
    child = await asyncio.create_subprocess_exec(
        *_child_command("copy", folder, scratch),
        env=child_environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        stdout, stderr = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        reason = stderr.decode(errors="replace").strip()[-500:]
        raise BackupFailedError(f"the copying process ended with {child.returncode}: {reason}")
    return Diagnosis.from_json(stdout.decode())


def _child_command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "sexton_store.backup", *map(str, arguments)]


def _child_copy(folder: Path, scratch: Path) -> str:
    with lmdb.Environment(str(folder), max_dbs=2, readonly=True, create=False) as env:
        env.copy(str(scratch), compact=True)
    return examine(scratch).to_json()


def _child_revision(folder: Path) -> str:
    with (
        lmdb.Environment(str(folder), max_dbs=2, readonly=True, lock=False, create=False) as env,
        env.begin() as txn,
    ):
        stored = txn.get(CLUSTER_KEY, db=env.open_db(CLUSTER, txn=txn, create=False)) or b""
        return str(cluster.decode(decode_cluster_record(stored)).revision)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["copy", source, target]:
            sys.stdout.write(_child_copy(Path(source), Path(target)))
        case ["revision", source]:
            sys.stdout.write(_child_revision(Path(source)))
