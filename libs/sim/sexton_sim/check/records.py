"""The store's log as a mesh means it: jobs, states, runs, decisions, by key and commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from sexton.internal.v1 import records_pb2 as pb
from sexton_records import keys
from sexton_runtime.kv.types import Compare
from sexton_sim.history import History
from sexton_store.disk import Record

_DECODERS: Final[dict[bytes, Callable[[bytes], Any]]] = {
    keys.JOBS: pb.JobRecord.FromString,
    keys.VERSIONS: pb.VersionRecord.FromString,
    keys.STATE: pb.StateRecord.FromString,
    keys.TIMERS: pb.TimerRecord.FromString,
    keys.DECISIONS: pb.DecisionRecord.FromString,
    keys.BUFFERED: pb.BufferedRecord.FromString,
    keys.DELETED: pb.DeletedRecord.FromString,
    keys.ACTIVE: pb.RunRecord.FromString,
    keys.RUNNING: bytes,
    keys.RUNS: pb.RunRecord.FromString,
    keys.ENDED: pb.EndedRecord.FromString,
    keys.DEAD: pb.EndedRecord.FromString,
    keys.SESSIONS: pb.SessionRecord.FromString,
    keys.REQUESTS: pb.RequestRecord.FromString,
}


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
    """It was seen by nobody before `begun_ns`, by everybody after this."""
    compares: tuple[Compare, ...]
    changes: dict[bytes, list[Changed]]
    """By the first part of the key, with its slash."""

    def of(self, kind: bytes) -> list[Changed]:
        """Gives the changes below a prefix."""
        return self.changes.get(kind, [])

    def __str__(self) -> str:
        keys_ = [changed.key.decode() for group in self.changes.values() for changed in group]
        return f"revision {self.revision} at mesh time {self.mesh_ns}: {', '.join(keys_)}"


class MeshLog:
    """The log, decoded."""

    def __init__(self, history: History) -> None:
        self._records: dict[bytes, Any] = {}
        self.commits = [*self._read(history)]

    def _read(self, history: History) -> Iterator[MeshCommit]:
        for entry in history.commits:
            changes: dict[bytes, list[Changed]] = {}
            for change in entry.commit.changes:
                kind = change.key[: change.key.find(b"/") + 1]
                decode = _DECODERS.get(kind)
                if decode is None:
                    continue
                before: Record | None = change.before
                changed = Changed(
                    change.key,
                    self._records.pop(change.key, None),
                    None if change.after is None else decode(change.after.value),
                    0 if before is None else before.mod_revision,
                )
                if changed.after is not None:
                    self._records[change.key] = changed.after
                changes.setdefault(kind, []).append(changed)
            if changes:
                commit = entry.commit
                yield MeshCommit(
                    commit.revision,
                    commit.mesh_time_ns,
                    entry.begun_ns or 0,
                    entry.durable_ns or 0,
                    commit.compares,
                    changes,
                )
