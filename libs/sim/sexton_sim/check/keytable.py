"""The key table of docs/keys.md: every write carries the compares that it must (the rest of S5).

That a compare which a commit carries was true is checked by `Log`; here, that it carries it.
"""

from __future__ import annotations

from sexton_core.runs import WITH_WORKER
from sexton_records import keys
from sexton_records.runs import STATE_OF
from sexton_runtime.kv.types import Compare, Target, lease_key
from sexton_sim.check.records import Changed, MeshCommit
from sexton_sim.check.verdict import Verdict

_COORDINATOR = lease_key("coordinator/")
_QUEUE = lease_key("queue/")
_OWN = frozenset({Target.MOD_REVISION, Target.CREATE_REVISION, Target.VERSION, Target.EXISTS})


class KeyTable:
    """Holds every write of a mesh against the table."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict

    def take(self, commit: MeshCommit) -> None:
        """Looks at a commit."""
        leads, owns = _fenced(commit, _COORDINATOR), _fenced(commit, _QUEUE)
        for kind, group in commit.changes.items():
            for changed in group:
                self._verdict.checked["S5"] += 1
                missing = _missing(kind, changed, commit, leads=leads, owns=owns)
                if missing:
                    self._verdict.violate(
                        "S5",
                        f"{changed.key.decode()} was written without comparing {missing}",
                        [commit, *commit.compares],
                    )


def _missing(kind: bytes, changed: Changed, commit: MeshCommit, *, leads: bool, owns: bool) -> str:
    """Names the compare that a write lacks; empty: none."""
    by_person = bool(commit.of(keys.JOBS))
    if kind == keys.JOBS:
        return _first(own=_compared(commit, changed.key), state=_compares(commit, keys.STATE))
    if kind == keys.STATE:
        own = _compared(commit, changed.key)
        return _first(own=own, **{"the coordinator's lease": leads or by_person})
    if kind in {keys.TIMERS, keys.BUFFERED, keys.DECISIONS}:
        rests = _compares(commit, keys.STATE) or _compares(commit, keys.DELETED)
        swept = kind == keys.DECISIONS and changed.after is None
        lease = leads or (by_person and kind != keys.BUFFERED)
        return _first(state=rests or swept, **{"the coordinator's lease": lease})
    if kind == keys.BACKFILLS:
        own = _compared(commit, changed.key)
        state = changed.after is None or _compares(commit, keys.STATE)
        return _first(own=own, state=state, **{"the coordinator's lease": leads})
    if kind == keys.DELETED:
        own = _compared(commit, changed.key)
        return _first(own=own, **{"the coordinator's lease": leads or changed.before is None})
    if kind == keys.FORMER:
        deleted = changed.after is not None and bool(commit.of(keys.DELETED))
        return _first(**{"its job": deleted or (changed.after is None and leads)})
    if kind == keys.ACTIVE and changed.before is None:
        own, state = _compared(commit, changed.key), _compares(commit, keys.STATE)
        return _first(own=own, state=state, **{"the coordinator's lease": leads})
    if kind == keys.ACTIVE:
        state = not _is_assigned(changed) or _compares(commit, keys.STATE)
        own = _unchanged(commit, changed)
        return _first(own=own, state=state, **{"the queue's lease": owns})
    if kind in {keys.RUNS, keys.ENDED, keys.DEAD} and changed.after is None:
        return _first(**{"the coordinator's lease": leads})
    if kind in {keys.RUNS, keys.ENDED, keys.DEAD, keys.SESSIONS, keys.QUEUES}:
        return _first(**{"the queue's lease": owns})
    if kind == keys.REQUESTS:
        return _first(own=_compared(commit, changed.key))
    return _first(**{"its job": by_person or leads})


def _first(**found: bool) -> str:
    return next((name for name, there in found.items() if not there), "")


def _fenced(commit: MeshCommit, prefix: bytes) -> bool:
    return any(
        it.key.startswith(prefix) and it.target is Target.CREATE_REVISION and it.operand
        for it in commit.compares
    )


def _compared(commit: MeshCommit, key: bytes) -> bool:
    return any(it.key == key and it.target in _OWN for it in commit.compares)


def _unchanged(commit: MeshCommit, changed: Changed) -> bool:
    wanted = Compare(changed.key, Target.MOD_REVISION, changed.revision_before)
    return wanted in commit.compares


def _compares(commit: MeshCommit, prefix: bytes) -> bool:
    return any(it.key.startswith(prefix) for it in commit.compares)


def _is_assigned(changed: Changed) -> bool:
    """Tells whether a run in line becomes a session's."""
    before, after = changed.before, changed.after
    if before is None or after is None:
        return False
    held = [STATE_OF[record.state] in WITH_WORKER for record in (before, after)]
    return held == [False, True]
