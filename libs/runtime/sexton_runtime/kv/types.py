"""The vocabulary of the store as its clients and its engines speak it.

Everything here is an immutable tuple: these are built and read on the hottest paths of the mesh,
where a frozen dataclass costs four times as much. The proto ``sexton/internal/v1/store.proto`` is
the specification; the names are the same.

Units: revisions are positive integers on one line for the whole mesh (0: absent, or "no bound"),
``*_ns`` are nanoseconds of mesh time since the Unix epoch, ``*_ms`` are milliseconds.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

LEASE_PREFIX = b"leases/"
"""Where leases live as keys. Only the lease calls write there."""


class Target(IntEnum):
    """What of a key a compare looks at."""

    CREATE_REVISION = 2
    MOD_REVISION = 3
    VERSION = 4
    EXISTS = 5
    VALUE = 6


class Compare(NamedTuple):
    """A condition: the key's target equals the operand (absent keys have 0 everywhere)."""

    key: bytes
    target: Target
    operand: int | bool | bytes


class Put(NamedTuple):
    """Sets a key's value."""

    key: bytes
    value: bytes


class Delete(NamedTuple):
    """Deletes a key; no effect where it is absent."""

    key: bytes


Op = Put | Delete


class Txn(NamedTuple):
    """An atomic transaction: all compares hold -> `then`, else -> `orelse`.

    `not_before_ns` and `not_after_ns` bound it by mesh time (inclusive, 0: no bound).
    `use_reserve` marks a transaction that settles or frees and may write while the store is full.
    """

    compares: tuple[Compare, ...] = ()
    then: tuple[Op, ...] = ()
    orelse: tuple[Op, ...] = ()
    not_before_ns: int = 0
    not_after_ns: int = 0
    use_reserve: bool = False


class Outcome(IntEnum):
    """What became of a transaction."""

    COMMITTED = 1  # every compare held; `then` is durable
    REFUSED = 2  # a compare did not hold; `orelse`, if any, is durable
    TOO_EARLY = 3  # mesh time is below not_before; nothing was written
    TOO_LATE = 4  # mesh time is above not_after; nothing was written
    NO_SPACE = 5  # the store is full and the transaction may not use the reserve


class TxnResult(NamedTuple):
    """The answer to one transaction.

    `revision` is its own commit's where it wrote, else the one at which it was evaluated. With
    REFUSED, `failed_compare` is the index of the first compare that did not hold and
    `found_mod_revision` that key's modification revision (0: absent).
    """

    outcome: Outcome
    revision: int
    failed_compare: int = 0
    found_mod_revision: int = 0


class KeyValue(NamedTuple):
    """A key with its value and its history in numbers; `create_revision` 0 means absent."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int


class Snapshot(NamedTuple):
    """What some keys were at one revision, in the order asked for."""

    revision: int
    kvs: tuple[KeyValue, ...]
    mesh_time_ns: int


class Page(NamedTuple):
    """One page of a range at one revision; `next_token` is empty on the last page."""

    revision: int
    kvs: tuple[KeyValue, ...]
    next_token: bytes
    mesh_time_ns: int


class EventKind(IntEnum):
    """What happened to a key."""

    PUT = 1
    DELETE = 2


class Event(NamedTuple):
    """One key's change. Of a deletion only `key` and `mod_revision` of `kv` are set."""

    kind: EventKind
    kv: KeyValue


class RevisionEvents(NamedTuple):
    """The changes of one transaction, whole, in its order."""

    revision: int
    mesh_time_ns: int
    events: tuple[Event, ...]


class WatchBatch(NamedTuple):
    """Whole revisions in rising order; everything up to `progress_revision` has been delivered."""

    revisions: tuple[RevisionEvents, ...]
    progress_revision: int
    mesh_time_ns: int


class Lease(NamedTuple):
    """A lease as it stands. `token` is the fencing token: the create revision of its key."""

    name: str
    holder: str
    token: int
    ttl_ms: int
    value: bytes
    remaining_ms: int


class Acquired(NamedTuple):
    """The answer to an acquire: `lease` is the caller's if `granted`, else the one that stands."""

    granted: bool
    lease: Lease
    mesh_time_ns: int


class LeaseRef(NamedTuple):
    """One incarnation of a lease."""

    name: str
    token: int


class Renewal(NamedTuple):
    """What became of one renewal; not renewed: the token is not, or no longer, the lease's."""

    renewed: bool
    remaining_ms: int


class Limits(NamedTuple):
    """An engine's bounds (bytes, counts, milliseconds); another engine has others."""

    max_key_bytes: int
    max_value_bytes: int
    max_ops_per_txn: int
    max_txn_bytes: int
    max_txns_per_commit: int
    max_commit_bytes: int
    max_keys_per_get: int
    max_page_items: int
    max_page_bytes: int
    min_lease_ttl_ms: int
    max_lease_ttl_ms: int
    max_leases_per_renew: int


def lease_key(name: str) -> bytes:
    """Gives the key of a lease."""
    return LEASE_PREFIX + name.encode()


def fence(name: str, token: int) -> Compare:
    """Gives the compare that holds exactly while the lease `name` still has this token."""
    return Compare(lease_key(name), Target.CREATE_REVISION, token)


def absent(key: bytes) -> Compare:
    """Gives the compare that holds where the key does not exist."""
    return Compare(key, Target.MOD_REVISION, 0)


def unchanged(kv: KeyValue) -> Compare:
    """Gives the compare that holds while the key has not been written since `kv` was read."""
    return Compare(kv.key, Target.MOD_REVISION, kv.mod_revision)


def prefix_end(prefix: bytes) -> bytes:
    """Gives the first key after all keys that start with `prefix` (empty: there is none)."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b""
