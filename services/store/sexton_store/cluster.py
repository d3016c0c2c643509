"""What this store is: its ids, its format, its shards; and how that outlives the process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from google.protobuf.message import DecodeError

from sexton.internal.v1 import cluster_pb2, store_pb2
from sexton_runtime.kv.status import ClockState
from sexton_runtime.randomness import Randomness
from sexton_store.disk import DamagedError
from sexton_store.mesh_clock import SECOND_NS, ClockRecord

FORMAT_VERSION = 1
"""The format of the data that this software writes, and the newest that it reads."""
MAX_SHARDS = 1_000
RESTORED_REVISIONS_PER_SECOND = 2**21
"""A restore moves the revision on to unix seconds times this: faster than any store can write, so
that it lies above everything that was ever given out, also by a store that is gone."""
REVISION_END = 2**53
"""Revisions stay below this, so that they are exact in every JSON reader (until the year 2106)."""
_ID_BYTES = 16


class NewerFormatError(Exception):
    """The data was written by newer software."""

    def __init__(self, found: int) -> None:
        super().__init__(
            f"the data has format {found}, but this software reads formats up to {FORMAT_VERSION}: "
            f"start the version of Sexton that wrote it or a newer one, or restore a backup"
        )
        self.found = found


class ShardsFixedError(Exception):
    """The configuration asks for other shards than the data was created with."""

    def __init__(self, kind: str, asked: int, fixed: int) -> None:
        super().__init__(
            f"{kind} is {asked}, but the data was created with {fixed} and every key says so: "
            f"leave it out, or set it to {fixed}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What does not change while a store runs (see ``cluster.proto``)."""

    cluster_id: str
    incarnation: str
    epoch: int
    format_version: int
    coordinator_shards: int
    queue_shards: int

    def check_shards(self, coordinator_shards: int | None, queue_shards: int | None) -> None:
        """Checks what a configuration asks for (None: nothing) against what was created.

        Raises `ShardsFixedError`.
        """
        for kind, asked, fixed in (
            ("coordinator_shards", coordinator_shards, self.coordinator_shards),
            ("queue_shards", queue_shards, self.queue_shards),
        ):
            if asked is not None and asked != fixed:
                raise ShardsFixedError(kind, asked, fixed)


class ClusterState(NamedTuple):
    """A cluster record, read."""

    cluster: Cluster
    revision: int
    clock: ClockRecord


def create(randomness: Randomness, *, coordinator_shards: int, queue_shards: int) -> Cluster:
    """Makes a new cluster. Raises `ValueError` where a number of shards is not 1 to 1,000."""
    for name, shards in (("coordinator", coordinator_shards), ("queue", queue_shards)):
        if not 1 <= shards <= MAX_SHARDS:
            raise ValueError(f"{shards} {name} shards can't be; use 1 to {MAX_SHARDS:,}")
    return Cluster(
        cluster_id=randomness.token_hex(_ID_BYTES),
        incarnation=randomness.token_hex(_ID_BYTES),
        epoch=0,
        format_version=FORMAT_VERSION,
        coordinator_shards=coordinator_shards,
        queue_shards=queue_shards,
    )


def encode(cluster: Cluster, revision: int, clock: ClockRecord) -> bytes:
    """Gives the bytes of a cluster record."""
    return cluster_pb2.ClusterRecord(
        cluster_id=cluster.cluster_id,
        incarnation=cluster.incarnation,
        epoch=cluster.epoch,
        format_version=cluster.format_version,
        coordinator_shards=cluster.coordinator_shards,
        queue_shards=cluster.queue_shards,
        revision=revision,
        clock=cluster_pb2.MeshClockRecord(
            boot_id=clock.boot_id,
            boot_time_ns=clock.boot_ns,
            mesh_time_ns=clock.mesh_ns,
            wall_offset_ns=clock.wall_offset_ns,
            state=store_pb2.ClockState.ValueType(clock.state.value),
            dispute=clock.dispute,
        ),
    ).SerializeToString()


def decode(data: bytes) -> ClusterState:
    """Reads a cluster record. Raises `DamagedError` or `NewerFormatError`."""
    try:
        record = cluster_pb2.ClusterRecord.FromString(data)
    except DecodeError as error:
        raise DamagedError("the cluster record can't be read; restore a backup") from error
    if record.format_version > FORMAT_VERSION:
        raise NewerFormatError(record.format_version)
    if record.format_version < 1 or not record.cluster_id or not record.clock.state:
        raise DamagedError("the cluster record is incomplete; restore a backup")
    return ClusterState(
        Cluster(
            cluster_id=record.cluster_id,
            incarnation=record.incarnation,
            epoch=record.epoch,
            format_version=record.format_version,
            coordinator_shards=record.coordinator_shards,
            queue_shards=record.queue_shards,
        ),
        record.revision,
        ClockRecord(
            record.clock.boot_id,
            record.clock.boot_time_ns,
            record.clock.mesh_time_ns,
            record.clock.wall_offset_ns,
            ClockState(record.clock.state),
            record.clock.dispute,
        ),
    )


def restored(backup: bytes, *, replaced_revision: int, wall_ns: int, incarnation: str) -> bytes:
    """Makes a restored backup's record: a new incarnation above every token ever given out.

    `replaced_revision` is the revision of the data that the restore replaces, 0 where there is
    none. Mesh time goes on as after a boot. Raises what `decode` does, and `ValueError` where the
    wall clock is beyond what a revision can hold.
    """
    state = decode(backup)
    by_time = wall_ns * RESTORED_REVISIONS_PER_SECOND // SECOND_NS
    revision = max(state.revision + 1, replaced_revision + 1, by_time)
    if revision >= REVISION_END:
        raise ValueError(
            f"revision {revision} is beyond 2^53: set the wall clock of this machine right "
            f"and restore again"
        )
    cluster = replace(state.cluster, incarnation=incarnation, epoch=state.cluster.epoch + 1)
    return encode(cluster, revision, state.clock._replace(boot_id="", boot_ns=0))


def new_incarnation(randomness: Randomness) -> str:
    """Draws the id of an incarnation."""
    return randomness.token_hex(_ID_BYTES)


def encode_lease(holder: str, ttl_ms: int, value: bytes) -> bytes:
    """Gives the value of a lease's key."""
    return cluster_pb2.LeaseRecord(holder=holder, ttl_ms=ttl_ms, value=value).SerializeToString()


def decode_lease(data: bytes) -> tuple[str, int, bytes]:
    """Reads (holder, ttl in ms, value) from a lease's key. Raises `DamagedError`."""
    try:
        record = cluster_pb2.LeaseRecord.FromString(data)
    except DecodeError as error:
        raise DamagedError("a lease's record can't be read; restore a backup") from error
    return record.holder, record.ttl_ms, record.value
