"""The store's log, replayed: what every key was at every revision."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from sexton_runtime.kv.types import LEASE_PREFIX, Compare, Target
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Durable, History, text
from sexton_store.disk import Record


class Version(NamedTuple):
    """A key from one revision on; `record` None: absent."""

    revision: int
    record: Record | None


class Log:
    """The replayed log. Replaying it checks that the log is a log: S2, S5 and half of S20."""

    def __init__(self, history: History, verdict: Verdict) -> None:
        self.by_revision: dict[int, Durable] = {}
        self.last_revision = 0
        self._verdict = verdict
        self._versions: dict[bytes, list[Version]] = {}
        mesh_ns = 0
        for entry in history.commits:
            commit = entry.commit
            verdict.checked["S2"] += 1
            if commit.revision <= self.last_revision:
                verdict.violate(
                    "S2",
                    f"revision {commit.revision} was committed after {self.last_revision}",
                    [commit],
                )
                continue
            if self.last_revision and commit.revision != self.last_revision + 1:
                verdict.violate(
                    "S2", f"revisions {self.last_revision + 1} to {commit.revision - 1} are gone"
                )
            if commit.mesh_time_ns < mesh_ns:
                verdict.violate("S20", f"mesh time went back from {mesh_ns}", [commit])
            verdict.checked["S20"] += 1
            mesh_ns = max(mesh_ns, commit.mesh_time_ns)
            self._check(entry)
            for change in commit.changes:
                self._versions.setdefault(change.key, []).append(
                    Version(commit.revision, change.after)
                )
            self.last_revision = commit.revision
            self.by_revision[commit.revision] = entry

    @property
    def keys(self) -> list[bytes]:
        """Lists all keys ever written, in order."""
        return sorted(self._versions)

    def at(self, key: bytes, revision: int) -> Record | None:
        """Gives a key as it was at a revision."""
        versions = self._versions.get(key, ())
        index = bisect_right(versions, revision, key=lambda version: version.revision)
        return versions[index - 1].record if index else None

    def versions(self, key: bytes) -> list[Version]:
        """Gives all that a key ever was."""
        return self._versions.get(key, [])

    def below(self, prefix: bytes, revision: int) -> dict[bytes, Record]:
        """Gives the keys below a prefix as they were at a revision."""
        found: dict[bytes, Record] = {}
        for key in self._versions:
            if key.startswith(prefix):
                record = self.at(key, revision)
                if record is not None:
                    found[key] = record
        return found

    def holds(self, compare: Compare, revision: int) -> bool:
        """Tells whether a compare was true at a revision."""
        record = self.at(compare.key, revision)
        if compare.target is Target.VALUE:
            return record is not None and record.value == compare.operand
        create, mod, version = (0, 0, 0) if record is None else record[1:]
        found = {
            Target.CREATE_REVISION: create,
            Target.MOD_REVISION: mod,
            Target.VERSION: version,
            Target.EXISTS: create != 0,
        }
        return found[compare.target] == compare.operand

    def _check(self, entry: Durable) -> None:
        commit, verdict = entry.commit, self._verdict
        for compare in commit.compares:
            fence = compare.key.startswith(LEASE_PREFIX)
            verdict.checked["S5" if fence else "S1"] += 1
            if not self.holds(compare, commit.revision - 1):
                verdict.violate(
                    "S5" if fence else "S1",
                    f"revision {commit.revision} was committed although its compare of "
                    f"{text(compare.key)} did not hold",
                    [compare, f"it was {self.at(compare.key, commit.revision - 1)}"],
                )
        for change in commit.changes:
            before = self.at(change.key, commit.revision - 1)
            if change.before != before:
                verdict.violate(
                    "S2",
                    f"revision {commit.revision} found {text(change.key)} not as the log left it",
                    [f"found {change.before}", f"the log says {before}"],
                )
            after = change.after
            if after is not None:
                create = before.create_revision if before is not None else commit.revision
                version = before.version + 1 if before is not None else 1
                if after[1:] != (create, commit.revision, version):
                    verdict.violate(
                        "S1",
                        f"revision {commit.revision} numbered {text(change.key)} wrongly",
                        [after],
                    )
