"""The store's log, replayed: what every key was at every revision."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sexton_runtime.kv.types import LEASE_PREFIX, Compare, Target
from sexton_sim.check.describe import moment
from sexton_sim.check.faults import Faults
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Durable, History, text
from sexton_sim.sources import Opening
from sexton_store.disk import Record
from sexton_store.history import Change


class Version(NamedTuple):
    """A key from one revision on; `record` None: absent."""

    revision: int
    record: Record | None


class Replay:
    """The log, commit by commit, and what every key is now. Checks S2, S5 and half of S20.

    Of a log that does not begin with the store itself, or goes on after a restore, what a key was
    is believed at its first change, and known from then on.
    """

    def __init__(self, verdict: Verdict) -> None:
        self.last_revision = 0
        self._verdict = verdict
        self._now: dict[bytes, Record] = {}
        self._whole = True
        """Whether a key of which nothing is known was never written."""
        self._touched: set[bytes] = set()
        """The keys of which something is known, where the log is not whole."""
        self._mesh_ns = 0
        self._opened: Opening | None = None

    def open(self, opening: Opening) -> bool:
        """Takes note that the store was opened; tells whether it is known what it held."""
        before, self._opened = self._opened, opening
        self._verdict.checked["S2"] += 1
        if opening.undone_steps > 1:
            self._verdict.violate(
                "S2",
                f"the store was opened at revision {opening.revision}: {opening.undone} commits of "
                f"{opening.undone_steps} steps above it are gone, and only the last step before a "
                f"crash can come to nothing",
            )
        elif opening.revision < self.last_revision:
            self._verdict.violate(
                "S2",
                f"the store was opened at revision {opening.revision}, although "
                f"{self.last_revision} was durable before",
            )
        if opening.revision == self.last_revision:
            return True
        if before is not None and before.incarnation != opening.incarnation:
            self._verdict.unknown(
                f"what the restore at revision {opening.revision} brought back (S2, S8)"
            )
        elif self.last_revision or before is not None:
            self._verdict.unknown(
                f"revisions {self.last_revision + 1} to {opening.revision}: the store ran without "
                f"a history then (S2, S8)"
            )
        else:
            self._begin_late(opening.revision + 1)
        self._forget(opening.revision)
        return False

    def restore(self, revision: int, commits: Iterable[Durable]) -> None:
        """The store goes on at a revision with what these commits had made."""
        self._verdict.checked["S2"] += 1
        if revision < self.last_revision:
            self._verdict.violate(
                "S2", f"a restore went on at revision {revision}, after {self.last_revision}"
            )
        self._forget(revision)
        self.go_back(commits)

    def go_back(self, commits: Iterable[Durable]) -> None:
        """A restore has brought back what these commits, from the first on, had made."""
        self._whole = True
        self._now.clear()
        for entry in commits:
            for change in entry.commit.changes:
                self._put(change.key, change.after)

    def take(self, entry: Durable) -> bool:
        """Holds a commit against what came before it; tells whether that is known."""
        commit, verdict = entry.commit, self._verdict
        verdict.checked["S2"] += 1
        if commit.revision <= self.last_revision:
            verdict.violate(
                "S2",
                f"revision {commit.revision} was committed after {self.last_revision}",
                [commit],
            )
            return True
        known = True
        if self._opened is None and not self.last_revision and commit.revision > 1:
            self._begin_late(commit.revision)
            self._forget(commit.revision - 1)
            known = False
        elif commit.revision != self.last_revision + 1:
            verdict.violate(
                "S2", f"revisions {self.last_revision + 1} to {commit.revision - 1} are gone"
            )
        if commit.mesh_time_ns < self._mesh_ns:
            verdict.violate("S20", f"mesh time went back, from {moment(self._mesh_ns)}", [commit])
        verdict.checked["S20"] += 1
        self._mesh_ns = max(self._mesh_ns, commit.mesh_time_ns)
        for compare in commit.compares:
            self._check_compare(compare, entry)
        for change in commit.changes:
            self._check_change(change, entry)
        self.last_revision = commit.revision
        return known

    def now(self, key: bytes) -> Record | None:
        """Gives what a key is now, as far as it is known."""
        return self._now.get(key)

    def knows(self, key: bytes) -> bool:
        """Tells whether it is known what a key is."""
        return self._whole or key in self._touched

    def _begin_late(self, revision: int) -> None:
        self._verdict.unknown(f"what was before revision {revision}, where the log begins (S2, S8)")

    def _forget(self, revision: int) -> None:
        self._now.clear()
        self._touched.clear()
        self._whole = False
        self._mesh_ns = 0
        self.last_revision = revision

    def _check_compare(self, compare: Compare, entry: Durable) -> None:
        if not self.knows(compare.key):
            return
        fence = compare.key.startswith(LEASE_PREFIX)
        self._verdict.checked["S5" if fence else "S1"] += 1
        record = self._now.get(compare.key)
        if not holds(compare, record):
            self._verdict.violate(
                "S5" if fence else "S1",
                f"revision {entry.commit.revision} was committed although its compare of "
                f"{text(compare.key)} did not hold",
                [compare, f"it was {_told(record)}", entry],
            )

    def _check_change(self, change: Change, entry: Durable) -> None:
        commit, verdict = entry.commit, self._verdict
        before = self._now.get(change.key) if self.knows(change.key) else change.before
        if change.before != before:
            verdict.violate(
                "S2",
                f"revision {commit.revision} found {text(change.key)} not as the log left it",
                [f"found {_told(change.before)}", f"the log says {_told(before)}", entry],
            )
        after = change.after
        if not self._whole:
            self._touched.add(change.key)
        self._put(change.key, after)
        if after is None:
            return
        create = before.create_revision if before is not None else commit.revision
        version = before.version + 1 if before is not None else 1
        if after[1:] != (create, commit.revision, version):
            verdict.violate(
                "S1",
                f"revision {commit.revision} numbered {text(change.key)} wrongly",
                [f"it was {_told(before)}", f"it became {_told(after)}"],
            )

    def _put(self, key: bytes, record: Record | None) -> None:
        if record is None:
            self._now.pop(key, None)
        else:
            self._now[key] = record


class Log:
    """The whole log, with all that every key ever was."""

    def __init__(self, history: History, verdict: Verdict) -> None:
        self.by_revision: dict[int, Durable] = {}
        self._versions: dict[bytes, list[Version]] = {}
        self._replay = Replay(verdict)
        restores = Faults(history).restores
        for index, entry in enumerate(history.commits):
            commit = entry.commit
            before = self._replay.last_revision
            if commit.revision - 1 != before and commit.revision - 1 in restores:
                kept = prefix(history.commits[:index], restores, commit.revision - 1)
                self._go_back(kept, commit.revision - 1)
            self._replay.take(entry)
            if commit.revision <= before:
                continue
            for change in commit.changes:
                self._versions.setdefault(change.key, []).append(
                    Version(commit.revision, change.after)
                )
            self.by_revision[commit.revision] = entry

    def _go_back(self, commits: Sequence[Durable], revision: int) -> None:
        """A restore has brought back what these commits had made, as of a revision."""
        self._replay.restore(revision, commits)
        for key, versions in self._versions.items():
            record = self._replay.now(key)
            if versions[-1].record != record:
                versions.append(Version(revision, record))

    @property
    def last_revision(self) -> int:
        """Gives the revision of the last commit."""
        return self._replay.last_revision

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
        return holds(compare, self.at(compare.key, revision))


def holds(compare: Compare, record: Record | None) -> bool:
    """Tells whether a compare is true of what a key is."""
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


def prefix(commits: Iterable[Durable], restores: Mapping[int, int], revision: int) -> list[Durable]:
    """Gives the commits of which a store is made that was restored at a revision.

    A backup may itself be of a restored store: then those of its own backup are among them, and not
    what was restored or written in between.
    """
    ranges: list[tuple[int, int]] = []
    while revision:
        backup = restores[revision]
        revision = max((it for it in restores if it <= backup), default=0)
        ranges.append((revision, backup))
    return [it for it in commits if any(low < it.commit.revision <= top for low, top in ranges)]


def _told(record: Record | None) -> str:
    if record is None:
        return "absent"
    _, create, mod, version = record
    return f"created at revision {create}, written at {mod}, version {version}"
