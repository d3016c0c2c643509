"""The right to act under a lease: one tenure, from a grant to its end.

The holder's own deadline is the time at which it *sent* the last answered renewal + 0.8 of the
lease's time, on the boot clock, which counts suspensions: so it stops acting before the store gives
the lease away. An unanswered renewal extends nothing and ends nothing; a refused one ends it at
once. Every question to a `HeldLease` looks at the clock, so that a process that was suspended
notices before it sends anything. And whatever it should send nevertheless carries the fence, which
the store compares at the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self

from sexton.errors import Fenced
from sexton_runtime.clock import Clock
from sexton_runtime.kv.engine import Engine
from sexton_runtime.kv.types import Compare, Outcome, Txn, TxnResult, fence

ACTING_PART = 0.8
"""The part of a lease's time for which its holder acts after a renewal was sent."""
_RENEWAL_PART = 1 / 3
"""The part of a lease's time after which an answered renewal is followed by the next."""
_RETRY_PART = 1 / 8
"""The part of a lease's time after which an unanswered renewal is followed by another."""
_TOGETHER_PART = 1 / 12
"""Renewals that are due within this part of their lease's time go with the one due now."""

_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000


class LeaseStore(Engine, Protocol):
    """What is needed of a store: `StoreClient`, which asks `only_while` before it sends."""

    async def commit(
        self,
        txns: Sequence[Txn],
        *,
        timeout_s: float | None = None,
        only_while: Callable[[], bool] | None = None,
    ) -> tuple[TxnResult, ...]:
        """Commits; raises `Fenced`, sending nothing, once `only_while` says no."""
        ...


_make = tuple.__new__
"""Makes a named tuple of all its parts; its own constructor costs twice as much."""


class LostBecause(StrEnum):
    """Why a tenure ended."""

    REFUSED = "refused"  # the store has given the lease to nobody or to somebody else
    DEADLINE = "deadline"  # no renewal was answered in time, or the process was suspended
    RELEASED = "released"  # given back
    KEEPER_ENDED = "keeper ended"  # nobody renews it any more


class Keeper(Protocol):
    """Who renews leases and gives them back: `LeaseKeeper`."""

    @property
    def store(self) -> LeaseStore:
        """The store whose leases they are."""
        ...

    @property
    def clock(self) -> Clock:
        """The clocks of this process."""
        ...

    def forget(self, lease: HeldLease) -> None:
        """Stops renewing a lease."""
        ...

    async def give_back(self, lease: HeldLease) -> bool:
        """Tells the store that a tenure has ended."""
        ...


class HeldLease:
    """One tenure of a lease, from a grant to its end. Made by `LeaseKeeper.acquire`."""

    def __init__(
        self, keeper: Keeper, name: str, token: int, ttl_ms: int, deadline_ns: int
    ) -> None:
        self.name = name
        self.token = token
        """The fencing token: higher than that of any tenure before."""
        self.lost = asyncio.Event()
        """Set when the tenure has ended, whatever the reason."""
        self.lost_because: LostBecause | None = None
        self.free_ns = 0
        """When it was first known to be free, by the wall clock; 0: that is not known."""
        self._keeper = keeper
        self._ttl_ns = ttl_ms * _NS_PER_MS
        self._deadline_ns = deadline_ns  # on the boot clock
        self.next_renewal_ns = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.release()

    def still_held(self) -> bool:
        """Tells whether its holder may act. Ask after every wait, before anything is begun."""
        if self.lost_because is None and self._keeper.clock.boot_ns() >= self._deadline_ns:
            self.end(LostBecause.DEADLINE)
        return self.lost_because is None

    def fence(self) -> Compare:
        """Gives the compare that every write under this lease carries; raises `Fenced`."""
        if not self.still_held():
            raise Fenced(f"lease {self.name} (token {self.token}) is lost: {self.lost_because}")
        return fence(self.name, self.token)

    def remaining_s(self) -> float:
        """Tells how long the holder may act if no further renewal is answered."""
        if not self.still_held():
            return 0.0
        return max(0, self._deadline_ns - self._keeper.clock.boot_ns()) / _NS_PER_S

    async def commit(
        self, txns: Sequence[Txn], *, timeout_s: float | None = None
    ) -> tuple[TxnResult, ...]:
        """Commits under this lease: adds the fence to each transaction, as its last compare.

        Raises `Fenced`, with nothing sent, once the lease is not held any more at the moment of
        sending. A result refused by the fence ends the tenure. The fence counts as one of a
        transaction's operations (`Limits.max_ops_per_txn`).
        """
        held = self.fence()
        fenced = [
            _make(Txn, ((*compares, held), then, orelse, not_before_ns, not_after_ns, use_reserve))
            for compares, then, orelse, not_before_ns, not_after_ns, use_reserve in txns
        ]
        results = await self._keeper.store.commit(
            fenced, timeout_s=timeout_s, only_while=self.still_held
        )
        for txn, result in zip(txns, results, strict=True):
            if result.outcome is Outcome.REFUSED and result.failed_compare == len(txn.compares):
                self.end(LostBecause.REFUSED)
        return results

    async def release(self) -> bool:
        """Stops acting and gives the lease back, so that a standby may act at once. Idempotent.

        What was sent under it and is not answered yet must be waited for first. Tells whether the
        store has confirmed; if not, the lease runs out by itself.
        """
        was_held = self.still_held()
        self.end(LostBecause.RELEASED)
        return was_held and await self._keeper.give_back(self)

    # For the keeper ---------------------------------------------------------------------------

    def end(self, why: LostBecause) -> None:
        """Ends the tenure; the first reason stands."""
        if self.lost_because is None:
            self.lost_because = why
            self.lost.set()
            self._keeper.forget(self)

    def extend(self, sent_ns: int) -> None:
        """Takes an answered renewal; a late answer to an early question shortens nothing."""
        if self.still_held():
            self._deadline_ns = max(self._deadline_ns, sent_ns + int(self._ttl_ns * ACTING_PART))
            self.next_renewal_ns = sent_ns + int(self._ttl_ns * _RENEWAL_PART)

    def schedule_first(self, sent_ns: int, *, answered_in_full: bool) -> None:
        """Plans the first renewal: at once where the grant came by a detour."""
        part = _RENEWAL_PART if answered_in_full else 0.0
        self.next_renewal_ns = sent_ns + int(self._ttl_ns * part)

    def schedule_retry(self, now_ns: int) -> None:
        """Plans what follows a renewal that is sent now and may stay unanswered."""
        self.next_renewal_ns = now_ns + int(self._ttl_ns * _RETRY_PART)

    def may_go_along(self, now_ns: int) -> bool:
        """Tells whether it is due soon enough to be renewed with one that is due now."""
        return self.next_renewal_ns <= now_ns + int(self._ttl_ns * _TOGETHER_PART)

    @property
    def next_look_ns(self) -> int:
        """Tells when it must be renewed or is lost."""
        return min(self.next_renewal_ns, self._deadline_ns)
