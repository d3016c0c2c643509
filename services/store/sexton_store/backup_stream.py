"""A live copy of the store as the stream that Backup answers with."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

from sexton.errors import NoSpace, Overloaded, Unavailable
from sexton.internal.v1 import store_pb2 as pb
from sexton_store.backup import BackupFailedError, live_copy, read_chunks
from sexton_store.disk import DiskFullError


class BackupStream:
    """Makes one copy at a time: each needs as much room on the disk as the data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._copying = False

    async def pieces(self) -> AsyncGenerator[pb.BackupResponse, None]:
        """Gives what it is a copy of, then the file in pieces, the last with its checksum."""
        if self._copying:
            raise Overloaded("another copy is being made; ask again when it is done")
        self._copying = True
        try:
            async with live_copy(self._folder) as copy:
                yield pb.BackupResponse(total_bytes=copy.total_bytes, revision=copy.revision)
                left = copy.total_bytes
                for data, checksum in read_chunks(copy):
                    left -= len(data)
                    yield pb.BackupResponse(data=data, crc32c=checksum if left <= 0 else 0)
        except DiskFullError as error:
            raise NoSpace(f"the copy was not made: {error}") from error
        except BackupFailedError as error:
            raise Unavailable(f"the copy was not made: {error}") from error
        finally:
            self._copying = False
