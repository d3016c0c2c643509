"""What a store tells about itself and its clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from sexton_runtime.kv.types import Limits


class ClockState(IntEnum):
    """How mesh time stands to the store's wall clock."""

    STEADY = 1  # within one second of it, slewed
    DISPUTED = 2  # the wall clock is elsewhere and nobody has said that it is right
    FOLLOWING = 3  # an accepted wall clock lies behind: half speed until it is reached


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """Mesh time and the store's wall clock at one moment (ns since the epoch)."""

    mesh_time_ns: int
    wall_time_ns: int
    state: ClockState
    dispute: int  # number of the latest dispute; 0: there was never one


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """What a store is and how it is. Sizes in bytes, ages in milliseconds."""

    cluster_id: str
    incarnation: str
    format_version: int
    coordinator_shards: int
    queue_shards: int
    revision: int
    mesh_time_ns: int
    oldest_watch_revision: int
    limits: Limits
    full: bool
    used_bytes: int
    map_bytes: int
    max_map_bytes: int
    disk_free_bytes: int
    keys: int
    watches: int
    leases: int
    clock_disputed: bool
    software_version: str
    oldest_reader_ms: int
