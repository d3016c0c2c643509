"""Backups of a simulated store: made beside the load all the time, and restored now and then."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from sexton.errors import SextonError
from sexton.internal.v1 import store_pb2 as pb
from sexton.internal.v1.store_pb2_grpc import StoreServiceStub
from sexton_runtime.rpc.policy_channel import PolicyChannel, cancelling
from sexton_sim.disks import SimDisk
from sexton_sim.history import Recorder
from sexton_store import cluster
from sexton_store.memory_disk import MemoryDisk

_PIECE_BYTES = 4_096
_TIMEOUT_S = 10.0
_TWICE_P = 0.4


class Kept(NamedTuple):
    """A backup that has arrived whole."""

    revision: int
    made_ns: int
    """When, on the recorder's clock."""
    disk: MemoryDisk


class Backups:
    """Answers Backup for a simulated store, and keeps what arrived whole."""

    def __init__(self, disk: SimDisk, recorder: Recorder, now_ns: Callable[[], int]) -> None:
        self._disk = disk
        self._recorder = recorder
        self._now_ns = now_ns
        self._made: dict[int, Kept] = {}
        self._kept: list[Kept] = []
        self._last: Kept | None = None

    async def pieces(self) -> AsyncGenerator[pb.BackupResponse, None]:
        """Makes a copy and gives it in pieces."""
        copy = self._disk.backup()
        revision = self._disk.revision()
        self._recorder.fault("backup", "store", revision=revision)
        self._made[revision] = Kept(revision, self._now_ns(), copy)
        data = b"".join(_content(copy))
        yield pb.BackupResponse(total_bytes=len(data), revision=revision)
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            whole = start + len(piece) == len(data)
            yield pb.BackupResponse(data=piece, crc32c=crc32c(data) if whole else 0)

    async def take_one(self, channel: PolicyChannel) -> None:
        """Makes a backup as the command line does; raises `SextonError` where it fails."""
        data, revision, total_bytes, checksum = b"", 0, 0, 0
        stub = StoreServiceStub(channel)
        async with cancelling(stub.Backup(pb.BackupRequest(), timeout=_TIMEOUT_S)) as call:
            async for piece in call:
                if not revision:
                    revision, total_bytes = piece.revision, piece.total_bytes
                data += piece.data
                checksum = piece.crc32c or checksum
        if len(data) != total_bytes or crc32c(data) != checksum:
            raise SextonError("the backup did not arrive whole, and its stream ended well")
        self._kept.append(self._made[revision])

    def draw(self, rng: random.Random) -> Kept | None:
        """Draws what is restored: one that was made, often the one restored last; None: none."""
        if not self._kept:
            return None
        if self._last is None or rng.random() > _TWICE_P:
            self._last = rng.choice(self._kept[-8:])
        return self._last


def _content(disk: MemoryDisk) -> Iterator[bytes]:
    record = disk.cluster_record() or b""
    yield b"%d" % cluster.decode(record).revision
    with disk.view() as view:
        for kv in view.scan(b"", b""):
            yield kv.key + kv.value
