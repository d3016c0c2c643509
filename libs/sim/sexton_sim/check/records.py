"""The store's log as a mesh means it: jobs, states, runs, decisions, by key and commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sexton.internal.v1 import records_pb2 as pb
from sexton_records import keys
from sexton_runtime.kv.types import Compare
from sexton_sim.check.describe import describe_changes, moment
from sexton_sim.history import Durable
from sexton_store.history import Change

_DECODERS: Final[dict[bytes, Callable[[bytes], Any]]] = {
    keys.JOBS: pb.JobRecord.FromString,
    keys.VERSIONS: pb.VersionRecord.FromString,
    keys.STATE: pb.StateRecord.FromString,
    keys.TIMERS: pb.TimerRecord.FromString,
    keys.DECISIONS: pb.DecisionRecord.FromString,
    keys.BUFFERED: pb.BufferedRecord.FromString,
    keys.BACKFILLS: pb.BackfillRecord.FromString,
    keys.DELETED: pb.DeletedRecord.FromString,
    keys.FORMER: pb.FormerRecord.FromString,
    keys.ACTIVE: pb.RunRecord.FromString,
    keys.RUNS: pb.RunRecord.FromString,
    keys.ENDED: pb.EndedRecord.FromString,
    keys.DEAD: pb.EndedRecord.FromString,
    keys.SESSIONS: pb.SessionRecord.FromString,
    keys.QUEUES: pb.QueueRecord.FromString,
    keys.REQUESTS: pb.RequestRecord.FromString,
}
_KEPT: Final = frozenset({keys.JOBS, keys.STATE, keys.ACTIVE, keys.BUFFERED})
"""What is decoded once and kept as long as it stands; the rest is seldom written over."""


class Changed(NamedTuple):
    """One key's change; None: absent before, or after."""

    key: bytes
    before: Any
    after: Any
    revision_before: int
    """At which `before` was written; 0: it was not."""

    @property
    def uid(self) -> str:
        """Gives the job's uid, for `state/`, `decisions/`, `buffered/` and `deleted/`."""
        parts = self.key.decode().split("/")
        return parts[1] if parts[0] == "decisions" else parts[2]


class MeshCommit(NamedTuple):
    """One commit that wrote something of the mesh's."""

    revision: int
    mesh_ns: int
    begun_ns: int
    durable_ns: int
    """It was seen by nobody before `begun_ns`, by everybody after this. 0: not known."""
    compares: tuple[Compare, ...]
    changes: dict[bytes, list[Changed]]
    """By the first part of the key, with its slash."""

    def of(self, kind: bytes) -> list[Changed]:
        """Gives the changes below a prefix."""
        return self.changes.get(kind, [])

    def __str__(self) -> str:
        told = "; ".join(describe_changes(self.changes)) or "nothing of a job or run"
        return f"revision {self.revision} at {moment(self.mesh_ns)}: {told}"


class Decoder:
    """Decodes the log, commit by commit."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Any] = {}

    def take(self, entry: Durable) -> MeshCommit | None:
        """Decodes a commit; None: it wrote nothing of the mesh's."""
        changes: dict[bytes, list[Changed]] = {}
        for change in entry.commit.changes:
            kind = change.key[: change.key.find(b"/") + 1]
            decode = _DECODERS.get(kind)
            if decode is not None:
                changes.setdefault(kind, []).append(self._changed(kind, change, decode))
        if not changes:
            return None
        commit = entry.commit
        return MeshCommit(
            commit.revision,
            commit.mesh_time_ns,
            entry.begun_ns or 0,
            entry.durable_ns or 0,
            commit.compares,
            changes,
        )

    def _changed(self, kind: bytes, change: Change, decode: Callable[[bytes], Any]) -> Changed:
        key, (_, before, after) = change.key, change
        was, revision = None, 0
        if before is not None:
            revision = before.mod_revision
            kept = self._kept.get(key)
            was = kept[1] if kept is not None and kept[0] == revision else decode(before.value)
        became = None if after is None else decode(after.value)
        if kind in _KEPT:
            if after is None:
                self._kept.pop(key, None)
            else:
                self._kept[key] = (after.mod_revision, became)
        return Changed(key, was, became, revision)
