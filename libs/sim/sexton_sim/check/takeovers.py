"""Who leads, and how soon somebody does again: L2 and L7, from the leases in the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sexton_runtime.kv.types import lease_key
from sexton_sim.check.describe import describe_note, moment
from sexton_sim.check.executions import Times
from sexton_sim.check.faults import NEVER_NS, Faults
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Durable, Note, text
from sexton_store.cluster import decode_lease

_ROLES: Final = {"coordinator": lease_key("coordinator/"), "queue": lease_key("queue/")}
_RETRY_NS: Final = 1_000_000_000
"""Within so long a standby asks for a lease that is free; and a successor acts after SIGTERM."""
_CALM_NS: Final = 6_000_000_000
"""Nothing else may be done for so long around a stop, so that it alone explains what follows."""
_OWN: Final = frozenset({"inject", "exit", "start", "backup", "healed"})
_BYSTANDERS: Final = frozenset({"worker", "user", "backup"})
"""Who may be told to stop at the same time: they hold no lease, and nobody waits for them."""


class _Tenure(NamedTuple):
    token: int
    begun_ns: int
    ended_ns: int
    mesh_ns: int
    """When it began."""
    ttl_ns: int

    def __str__(self) -> str:
        end = "" if self.ended_ns == NEVER_NS else f", ended at {self.ended_ns / 1e9:.3f} s"
        at = f"{self.begun_ns / 1e9:.3f} s ({moment(self.mesh_ns)})"
        return f"token {self.token} was given out at {at}{end}"


@dataclass(slots=True)
class _Lease:
    role: str
    tenures: list[_Tenure] = field(default_factory=list)


class TakeoverRules:
    """Follows the leases of leaders and owners. Between two times everything works."""

    def __init__(
        self, faults: Faults, verdict: Verdict, times: Times, *, since_ns: int, until_ns: int
    ) -> None:
        self._slack_ns = times.slack_ns
        self._faults = faults
        self._verdict = verdict
        self._since_ns = since_ns
        self._until_ns = until_ns
        self._leases: dict[str, _Lease] = {}
        self._timed = False

    def take(self, entry: Durable) -> None:
        """Looks at a commit."""
        for change in entry.commit.changes:
            role = next((it for it, prefix in _ROLES.items() if change.key.startswith(prefix)), "")
            if not role or entry.begun_ns is None:
                continue
            self._timed = True
            tenures = self._leases.setdefault(text(change.key), _Lease(role)).tenures
            if change.before is not None and tenures:
                tenures[-1] = tenures[-1]._replace(ended_ns=entry.begun_ns)
            if change.after is not None:
                # What a restore took back has no end in the log; it ends with its successor.
                tenures[:] = [
                    it._replace(ended_ns=min(it.ended_ns, entry.begun_ns)) for it in tenures
                ]
                ttl_ns = decode_lease(change.after.value)[1] * 1_000_000
                token = change.after.create_revision
                tenures.append(
                    _Tenure(token, entry.begun_ns, NEVER_NS, entry.commit.mesh_time_ns, ttl_ns)
                )

    def finish(self) -> None:
        """Looks at all tenures together."""
        gaps = []
        for name, lease in self._leases.items():
            for before, after in zip(lease.tenures, lease.tenures[1:], strict=False):
                gaps.append((after.begun_ns - before.ended_ns) / 1e9)
            if self._until_ns > self._since_ns:
                self._check_calm(name, lease)
        self._verdict.measure("a lease of a leader or owner was free", gaps)
        if self._leases and self._until_ns <= self._since_ns:
            self._verdict.unknown("whether leaders stay: nobody says when everything worked (L2)")
        for note in self._faults.notes:
            role = note.target.partition("-")[0]
            if note.what == "stop" and role in _ROLES:
                self._check_stop(role, note)

    def _check_calm(self, name: str, lease: _Lease) -> None:
        """While everything works, somebody leads all the time, and it is the same all the time."""
        self._verdict.checked["L2"] += 1
        since_ns, until_ns = self._since_ns, self._until_ns
        held = [it for it in lease.tenures if it.begun_ns < until_ns and it.ended_ns > since_ns]
        led_ns = sum(min(it.ended_ns, until_ns) - max(it.begun_ns, since_ns) for it in held)
        shown = [*map(str, lease.tenures[-4:])]
        if until_ns - since_ns - led_ns > _RETRY_NS + self._slack_ns:
            self._verdict.violate(
                "L2",
                f"nobody held {name} for {(until_ns - since_ns - led_ns) / 1e9:.3f} s between "
                f"{since_ns / 1e9:.3f} s and {until_ns / 1e9:.3f} s, although everything worked",
                shown,
            )
        elif len(held) > 1:
            self._verdict.violate(
                "L2",
                f"{name} changed hands {len(held) - 1} times although everything worked",
                shown,
            )

    def _check_stop(self, role: str, note: Note) -> None:
        at_ns = note.at_ns
        others = [
            it
            for it in self._faults.notes
            if abs(it.at_ns - at_ns) <= _CALM_NS
            and it is not note
            and it.what not in _OWN
            and not (it.what == "stop" and it.target.partition("-")[0] in _BYSTANDERS)
        ]
        if others:
            return
        for name, lease in self._leases.items():
            if lease.role != role:
                continue
            for before, after in zip(lease.tenures, lease.tenures[1:], strict=False):
                if not at_ns <= before.ended_ns <= at_ns + before.ttl_ns + _RETRY_NS:
                    continue
                self._verdict.checked["L7"] += 1
                took_ns = after.begun_ns - at_ns
                if took_ns > _RETRY_NS + self._slack_ns:
                    self._verdict.violate(
                        "L7",
                        f"{note.target} was told to stop, and {name} had its next holder "
                        f"{took_ns / 1e9:.3f} s later, not within {_RETRY_NS / 1e9:.0f} s",
                        [describe_note(note), str(before), str(after)],
                    )
