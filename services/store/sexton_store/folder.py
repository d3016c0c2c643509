"""The data folder of a store: which files it has, who may open it, and the reserve file.

==============  ==================================================================================
``data.mdb``    everything that is kept: LMDB, one file
``lock.mdb``    LMDB's table of readers; worthless without a running store, dropped by a restore
``store.lock``  held with flock by the one process that has the folder open; contains its pid
``reserve``     preallocated bytes, given up when the disk is full so that deletes go on
``new/``        a data file that is being made (at creation, by a restore), until its rename
``copy-*/``     a backup on its way out
==============  ==================================================================================
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import struct
from pathlib import Path

from sexton_store.disk import DamagedError

DATA_FILE = "data.mdb"
READERS_FILE = "lock.mdb"
LOCK_FILE = "store.lock"
RESERVE_FILE = "reserve"
NEW_FOLDER = "new"
COPY_PREFIX = "copy-"

RECORDS = b"records"
"""The named database of all records, by key."""

CLUSTER = b"cluster"
CLUSTER_KEY = b"record"
"""The named database that holds the cluster record alone, and its key there."""

FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the kernel says when there is no room: disk, quota, and limit of a file's size."""

_META_PAGES = 2
_MAGIC = 0xBEEFC0DE
_META_OFFSET = 16  # the page header before it
_META = struct.Struct("<IIQQ")  # magic, version, address, map size
_LAST_PAGE_OFFSET = _META_OFFSET + _META.size + 2 * 48  # after the two root descriptors
_LAST_PAGE = struct.Struct("<QQ")  # last page number, transaction id
_PAGE_SIZE_OFFSET = _META_OFFSET + _META.size  # LMDB keeps it in the free list's padding field


class FolderLockedError(Exception):
    """Another process has the data folder open."""

    def __init__(self, folder: Path, holder_pid: str) -> None:
        self.folder = folder
        self.holder_pid = holder_pid
        super().__init__(
            f"the data folder {folder} is in use by process {holder_pid or 'unknown'}: "
            "a store has its folder for itself. Stop that process, or name another folder."
        )


class FolderLock:
    """The right to be the only process that works on a data folder, until `release`.

    The kernel drops it with the process, however that ends. Not for network file systems.
    """

    def __init__(self, folder: Path) -> None:
        """Takes the lock; raises `FolderLockedError` at once where another has it."""
        self._fd = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise FolderLockedError(folder, holder) from None
        os.ftruncate(self._fd, 0)
        # On a full disk the pid may not fit; it only serves the other process's message.
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Gives the folder back; idempotent. The file stays: removing it would race."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class ReserveFile:
    """Bytes held on the disk for the day on which it is full.

    `held` is the state: while it is False only steps that free or settle are let through, until
    `take` succeeds again.
    """

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self._folder = folder
        self.size_bytes = size_bytes
        self._fd = os.open(folder / RESERVE_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.held = False
        self.take()

    def take(self) -> bool:
        """Preallocates the reserve if there is room for it and a quarter more; tells if held.

        The quarter keeps a disk at its limit from going back and forth with every step.
        """
        wanted = self.size_bytes - min(
            allocated_bytes(self._folder / RESERVE_FILE), self.size_bytes
        )
        if not self.held and (
            wanted == 0 or free_bytes(self._folder) >= wanted + self.size_bytes // 4
        ):
            try:
                if self.size_bytes:
                    os.posix_fallocate(self._fd, 0, self.size_bytes)
                self.held = True
            except OSError as error:
                if error.errno not in FULL_ERRNOS:
                    raise
                os.ftruncate(self._fd, 0)
        return self.held

    def give_up(self) -> None:
        """Frees the reserve's blocks, for good by the time this returns."""
        os.ftruncate(self._fd, 0)
        os.fsync(self._fd)
        self.held = False

    def close(self) -> None:
        """Closes the file and leaves its bytes reserved; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def allocated_bytes(file: Path) -> int:
    """Tells how many bytes of a file lie on the disk, holes not counted."""
    state = file.stat()
    return min(state.st_size, state.st_blocks * 512)


def free_bytes(folder: Path) -> int:
    """Tells how many bytes an unprivileged process may still write to the folder's disk."""
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize


def check_whole(data_file: Path) -> None:
    """Raises `DamagedError` (`it ...`) where the file is not LMDB's or shorter than it says.

    Reads the two meta pages as plain bytes: a map of a file that has been cut short would be a
    SIGBUS, which no exception handler sees.
    """
    size = data_file.stat().st_size
    with data_file.open("rb") as file:
        first = file.read(_LAST_PAGE_OFFSET + _LAST_PAGE.size)
        page_size = _page_size(first)
        file.seek(page_size)
        second = file.read(len(first))
    metas = [_last_page(meta) for meta in (first, second) if _is_meta(meta)]
    if not metas:
        raise DamagedError("it has no intact meta page")
    _, last_page = max(metas)
    if size < (last_page + 1) * page_size:
        raise DamagedError(
            f"it has been cut short: {size} bytes where its newest commit has "
            f"{(last_page + 1) * page_size}"
        )


def remove_leftover_copies(folder: Path) -> None:
    """Removes what copying processes that were killed have left; under the folder's lock."""
    for leftover in folder.glob(COPY_PREFIX + "*"):
        shutil.rmtree(leftover, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Makes the folder's entries (creations, renames) durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _is_meta(page: bytes) -> bool:
    return (
        len(page) >= _LAST_PAGE_OFFSET + _LAST_PAGE.size
        and _META.unpack_from(page, _META_OFFSET)[0] == _MAGIC
    )


def _last_page(meta: bytes) -> tuple[int, int]:
    last_page, transaction = _LAST_PAGE.unpack_from(meta, _LAST_PAGE_OFFSET)
    return transaction, last_page


def _page_size(meta: bytes) -> int:
    if not _is_meta(meta):
        raise DamagedError("it is not a data file of a store, or its start is damaged")
    (page_size,) = struct.unpack_from("<I", meta, _PAGE_SIZE_OFFSET)
    if page_size not in {1 << exponent for exponent in range(9, 17)}:
        raise DamagedError(f"it has an impossible page size of {page_size} bytes")
    return int(page_size)
