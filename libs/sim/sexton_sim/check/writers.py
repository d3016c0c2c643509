"""Who may write what, and with which compares: the second half of S5."""

from __future__ import annotations

from dataclasses import dataclass

from sexton_runtime.kv.types import Target, lease_key
from sexton_sim.check.model import Log
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import History, text
from sexton_store.history import Change, Commit


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRules:
    """The key table of a workload: what each write must have compared."""

    fenced: tuple[str, ...] = ()
    """Below `prefix/{lease}/`: a fence of that lease. Values begin with its token and a colon."""
    compared: tuple[str, ...] = ()
    """Below these: the key's own revision, value or absence."""
    counters: tuple[str, ...] = ()
    """Below these: values are whole numbers, each one more than before."""


def check_writers(history: History, log: Log, rules: WriteRules, verdict: Verdict) -> None:
    """Holds every write of the log against the key table."""
    for entry in history.commits:
        for change in entry.commit.changes:
            key = text(change.key)
            if key.startswith(rules.fenced):
                _check_fenced(key, change, entry.commit, log, verdict)
            if key.startswith(rules.compared):
                verdict.checked["S5"] += 1
                if not any(compare.key == change.key for compare in entry.commit.compares):
                    verdict.violate("S5", f"{key} was written uncompared", [entry.commit])
            if key.startswith(rules.counters) and change.after is not None:
                before = 0 if change.before is None else int(change.before.value)
                verdict.checked["S1"] += 1
                if int(change.after.value) != before + 1:
                    verdict.violate(
                        "S1",
                        f"{key} went from {before} to {int(change.after.value)}",
                        [entry.commit],
                    )


def _check_fenced(key: str, change: Change, commit: Commit, log: Log, verdict: Verdict) -> None:
    lease = key.split("/")[1]
    verdict.checked["S5"] += 1
    fences = [
        compare
        for compare in commit.compares
        if compare.key == lease_key(lease) and compare.target is Target.CREATE_REVISION
    ]
    if not fences:
        verdict.violate("S5", f"{key} was written without a fence", [commit])
    if change.after is None:
        return
    token = int(text(change.after.value).split(":")[0])
    held = log.at(lease_key(lease), commit.revision - 1)
    if held is None or held.create_revision != token:
        verdict.violate(
            "S5",
            f"{key} was written under token {token} while the lease {lease} had "
            f"{0 if held is None else held.create_revision}",
            [commit],
        )
