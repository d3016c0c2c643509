"""Who the mesh is, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class Role(StrEnum):
    """What a process of the mesh does."""

    STORE = "store"
    COORDINATOR = "coordinator"
    QUEUE = "queue"
    WORKER = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process of the mesh."""

    role: Role
    id: str
    """Random per start."""
    address: str
    shard: int
    leading: bool
    """Whether it leads (a coordinator) or owns (a queue) its shard."""
    token: int
    """Fencing token of its lease or session."""
    skew: timedelta
    """Its wall clock minus mesh time; decides nothing."""
    software_version: str
    details: Mapping[str, str]
    """With a worker: slots, runs assigned, queues, ...; for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """The members, and the time that they share."""

    mesh_time: datetime | None
    members: tuple[Member, ...]
    """In order of role and shard, leaders first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One queue: its line, and who serves it."""

    name: str
    shard: int
    ready: int
    """Runs in line that could be assigned now; beyond 10,000 a lower bound."""
    delayed: int
    """Runs in line that wait for their time; likewise."""
    running: int
    """Runs assigned."""
    oldest_ready: timedelta
    """How long the oldest ready run has waited."""
    slots: int
    """Of the workers that serve it."""
    paused: bool
    """Whether assignments are stopped."""
    pause_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One worker's session."""

    session: str
    name: str
    """For people."""
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    """Names of the Python tasks that it knows."""
    kinds: tuple[str, ...]
    """Kinds that it allows besides Python."""
    slots: int
    runs: tuple[str, ...]
    """Runs that it holds, `NAMESPACE/JOB/RUN`, at most 100: what is delivered again if it dies."""
    running: int
    """How many it holds."""
    silent: timedelta
    """Time since its last heartbeat."""
    connected: bool
    draining: bool
    software_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One lease of the store."""

    name: str
    """`coordinator/000`, `queue/000`, `members/...`."""
    token: int
    """Its fencing token."""
    holder: str
    address: str
    ttl: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """How the store is."""

    revision: int
    used_bytes: int
    """Of records."""
    map_bytes: int
    """It grows by itself up to `max_bytes`."""
    max_bytes: int
    disk_free_bytes: int
    full: bool
    """Whether only deletes and settlements are taken."""
    watches: int
    clock_disputed: bool
    skew: timedelta
    """The wall clock minus mesh time."""
    cluster_id: str
    incarnation: str
    """Changes with every restore."""
    leases: tuple[Lease, ...]
