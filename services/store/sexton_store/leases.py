"""Leases in memory: their deadlines on the store's awake time.

That a lease exists is a key in the store; when it ends is known here only. After a restart each
lease has its full time again. A lease leaves the table only when the deletion of its key is
durable; from the moment that this deletion is *evaluated* its renewals are refused, also where the
step then fails and is tried again.

Pure: all times are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

from sexton_runtime.kv.types import Lease, Renewal

NS_PER_MS = 1_000_000
MAX_COUNTED_NS = 250 * NS_PER_MS
"""The most that counts between two looks at the clock. The store looks every 50 ms; who looks
later was stopped or starved itself, and could not have received a renewal."""
_NEVER_NS = 2**63


class AwakeClock:
    """The time during which the store could have answered: it never runs ahead of real time."""

    __slots__ = ("_awake_ns", "_seen_ns")

    def __init__(self, monotonic_ns: int) -> None:
        self._seen_ns = monotonic_ns
        self._awake_ns = 0

    def look(self, monotonic_ns: int) -> int:
        """Counts the time since the last look and gives the awake time since the start, in ns."""
        elapsed = monotonic_ns - self._seen_ns
        if elapsed > 0:
            self._awake_ns += min(elapsed, MAX_COUNTED_NS)
            self._seen_ns = monotonic_ns
        return self._awake_ns


@dataclass(slots=True, kw_only=True)
class _Held:
    holder: str
    token: int
    ttl_ms: int
    value: bytes
    deadline_ns: int
    ending: bool = False


class LeaseTable:
    """The leases whose keys are durable, by name."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._no_deadline_before_ns = _NEVER_NS

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def grant(
        self, name: str, *, holder: str, token: int, ttl_ms: int, value: bytes, awake_ns: int
    ) -> None:
        """Enters a lease whose key has become durable; its full time begins now."""
        deadline_ns = awake_ns + ttl_ms * NS_PER_MS
        self._held[name] = _Held(
            holder=holder, token=token, ttl_ms=ttl_ms, value=value, deadline_ns=deadline_ns
        )
        self._no_deadline_before_ns = min(self._no_deadline_before_ns, deadline_ns)

    def drop(self, name: str, token: int) -> None:
        """Removes a lease whose key's deletion has become durable."""
        held = self._held.get(name)
        if held is not None and held.token == token:
            del self._held[name]

    def renew(self, name: str, token: int, awake_ns: int) -> Renewal:
        """Gives a lease its full time again, unless its end has been evaluated."""
        held = self._held.get(name)
        if held is None or held.token != token or held.ending:
            return Renewal(renewed=False, remaining_ms=0)
        held.deadline_ns = awake_ns + held.ttl_ms * NS_PER_MS
        return Renewal(renewed=True, remaining_ms=held.ttl_ms)

    def end(self, name: str, token: int) -> None:
        """Notes that this lease's deletion is being evaluated: no renewal from here on.

        Where the deletion then finds no space, the lease stands until its time runs out.
        """
        held = self._held.get(name)
        if held is not None and held.token == token:
            held.ending = True

    def due(self, awake_ns: int) -> list[tuple[str, int]]:
        """Lists (name, token) of the leases whose time has run out, in order of name."""
        if awake_ns < self._no_deadline_before_ns:  # renewals only move deadlines further away
            return []
        due = [(name, h.token) for name, h in self._held.items() if h.deadline_ns <= awake_ns]
        deadlines = (held.deadline_ns for held in self._held.values())
        self._no_deadline_before_ns = min(deadlines, default=_NEVER_NS)
        return sorted(due)

    def is_due(self, name: str, token: int, awake_ns: int) -> bool:
        """Tells whether this very lease stands and its time has run out."""
        held = self._held.get(name)
        return held is not None and held.token == token and held.deadline_ns <= awake_ns

    def find(self, name: str, awake_ns: int) -> Lease | None:
        """Gives a lease as it stands."""
        held = self._held.get(name)
        return None if held is None else _as_lease(name, held, awake_ns)

    def list(self, prefix: str, awake_ns: int) -> tuple[Lease, ...]:
        """Lists the leases whose name starts with `prefix`, in order of name."""
        return tuple(
            _as_lease(name, held, awake_ns)
            for name, held in sorted(self._held.items())
            if name.startswith(prefix)
        )


def _as_lease(name: str, held: _Held, awake_ns: int) -> Lease:
    remaining_ms = max(0, held.deadline_ns - awake_ns) // NS_PER_MS
    return Lease(name, held.holder, held.token, held.ttl_ms, held.value, remaining_ms)
