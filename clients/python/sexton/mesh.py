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
