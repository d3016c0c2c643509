"""What the doctor knows about the store's own data; later parts add what they know about theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from sexton_runtime.kv.types import LEASE_PREFIX
from sexton_store.cluster import REVISION_END, ClusterState, decode_lease
from sexton_store.contract import LIMITS
from sexton_store.disk import DamagedError, Record


class Check(Protocol):
    """One kind of invariant, fed with everything that is on disk, once, in order of key.

    Each method gives a sentence per violation. State is kept between the calls (a bijection
    between records and their index, say, collects both sides and compares them at the end).
    """

    name: str

    def start(self, cluster: ClusterState | None) -> Iterable[str]:
        """Looks at the cluster record; None: there is no readable one."""
        ...

    def record(self, key: bytes, record: Record) -> Iterable[str]:
        """Looks at a record whose checksums are right."""
        ...

    def end(self) -> Iterable[str]:
        """Tells what shows only when everything has been seen."""
        ...


class ClusterCheck:
    """The cluster record exists where records do, is complete, and of a known format."""

    name = "cluster"

    def __init__(self) -> None:
        self._present = False
        self._records = 0

    def start(self, cluster: ClusterState | None) -> Iterable[str]:
        """Looks at its fields."""
        self._present = cluster is not None
        if cluster is None:
            return
        if not cluster.cluster.incarnation:
            yield "the cluster record names no incarnation"
        if min(cluster.cluster.coordinator_shards, cluster.cluster.queue_shards) < 1:
            yield "the cluster record has less than one shard"
        if not 0 <= cluster.revision < REVISION_END:
            yield f"the revision {cluster.revision} is not within 0 and 2^53"

    def record(self, key: bytes, record: Record) -> Iterable[str]:  # noqa: ARG002
        """Counts."""
        self._records += 1
        return ()

    def end(self) -> Iterable[str]:
        """Compares."""
        if self._records and not self._present:
            yield f"there are {self._records} records but no cluster record"


class RevisionCheck:
    """Keys and revisions are possible, and none is newer than the cluster record's revision."""

    name = "revisions"

    def __init__(self) -> None:
        self._revision: int | None = None

    def start(self, cluster: ClusterState | None) -> Iterable[str]:
        """Keeps the store's revision."""
        self._revision = None if cluster is None else cluster.revision
        return ()

    def record(self, key: bytes, record: Record) -> Iterable[str]:
        """Looks at one record's numbers."""
        created, modified, version = record[1:]
        if not 1 <= len(key) <= LIMITS.max_key_bytes:
            yield f"key {key!r} has {len(key)} bytes"
        if len(record.value) > LIMITS.max_value_bytes:
            yield f"the value of key {key!r} has {len(record.value)} bytes"
        if not 1 <= created <= modified or version < 1:
            yield f"key {key!r} was created at {created}, written at {modified}, version {version}"
        elif (version == 1) != (created == modified) or version > modified - created + 1:
            yield f"key {key!r} cannot have version {version} from {created} to {modified}"
        if self._revision is not None and modified > self._revision:
            yield f"key {key!r} was written at {modified}, after the revision {self._revision}"

    def end(self) -> Iterable[str]:
        """Has nothing to add."""
        return ()


class LeaseCheck:
    """Every key below ``leases/`` is a lease with a possible time."""

    name = "leases"

    def start(self, cluster: ClusterState | None) -> Iterable[str]:  # noqa: ARG002
        """Has nothing to say yet."""
        return ()

    def record(self, key: bytes, record: Record) -> Iterable[str]:
        """Looks at a lease."""
        if not key.startswith(LEASE_PREFIX):
            return
        try:
            holder, ttl_ms, _ = decode_lease(record.value)
        except DamagedError:
            yield f"the value of {key!r} is no lease"
            return
        if not (holder and LIMITS.min_lease_ttl_ms <= ttl_ms <= LIMITS.max_lease_ttl_ms):
            yield f"the lease {key!r} of holder {holder!r} has a ttl of {ttl_ms} ms"

    def end(self) -> Iterable[str]:
        """Has nothing to add."""
        return ()


CHECKS: Sequence[Callable[[], Check]] = (ClusterCheck, RevisionCheck, LeaseCheck)
"""What the doctor checks beside structure and checksums; a new one is made per examination."""
