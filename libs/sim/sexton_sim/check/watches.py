"""Watches against the log: S18.

Each update of a `RelistingWatcher` is applied to a picture. Whenever the watcher says that the
picture is exactly the state at a revision, it must be: a lost, doubled, split or reordered event
shows there. Events carry their own revision, which the log must know them by.
"""

from __future__ import annotations

from typing import Any

from sexton_sim.check.model import Log
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Call, History, text

_EVERY = 16
"""Every so many updates the whole picture is compared; the last one always is."""


def check_watches(history: History, log: Log, verdict: Verdict) -> None:
    """Replays every watch."""
    calls = {call.id: call for call in history.calls if call.name == "watch"}
    for number, updates in history.watches.items():
        _Picture(calls[number], log, verdict).follow([update for _, update in updates])


class _Picture:
    def __init__(self, call: Call, log: Log, verdict: Verdict) -> None:
        self._call = call
        self._prefix = call.args["prefix"].encode("latin-1")
        self._log = log
        self._verdict = verdict
        self._keys: dict[str, tuple[str, int]] = {}
        self._revision = 0
        self._synced = False

    def follow(self, updates: list[dict[str, Any]]) -> None:
        for number, update in enumerate(updates, 1):
            self._verdict.checked["S18"] += 1
            revision, synced = update["revision"], update["synced"]
            if self._synced and synced and revision < self._revision:
                self._violate(f"went back from revision {self._revision} to {revision}", update)
            for kind, key, value, mod_revision in update["events"]:
                self._apply(kind, key, value, mod_revision, within=self._revision if synced else 0)
            self._revision, self._synced = revision, synced
            if synced and (number % _EVERY == 0 or number == len(updates)):
                self._compare()

    def _apply(self, kind: str, key: str, value: str, mod_revision: int, *, within: int) -> None:
        if kind == "DELETE":
            if self._keys.pop(key, None) is None:
                self._violate(f"told the deletion of {key}, which was not there", mod_revision)
            return
        known = self._keys.get(key)
        if known is not None and known[1] >= mod_revision:
            self._violate(f"told {key} at {mod_revision} after {known[1]}", (key, mod_revision))
        if self._synced and mod_revision <= within:
            self._violate(f"told {key} at {mod_revision} after progress {within}", mod_revision)
        record = self._log.at(key.encode("latin-1"), mod_revision)
        if record is None or (text(record.value), record.mod_revision) != (value, mod_revision):
            self._violate(f"told {key} = {value!r} at {mod_revision}", f"the log says {record}")
        self._keys[key] = (value, mod_revision)

    def _compare(self) -> None:
        expected = {
            text(key): (text(record.value), record.mod_revision)
            for key, record in self._log.below(self._prefix, self._revision).items()
        }
        if expected != self._keys:
            wrong = sorted(
                key
                for key in expected.keys() | self._keys
                if expected.get(key) != self._keys.get(key)
            )
            self._violate(
                f"shows {len(wrong)} keys wrongly as of revision {self._revision}: {wrong[:5]}",
                [(key, self._keys.get(key), expected.get(key)) for key in wrong[:3]],
            )
            self._keys = expected  # so that one gap is told once

    def _violate(self, what: str, event: object) -> None:
        watch = f"the watch of {self._call.process} on {self._call.args['prefix']}"
        self._verdict.violate("S18", f"{watch} {what}", [event])
