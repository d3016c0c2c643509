"""The right to act under a lease, and how to keep it, lose it and give it back.

A `LeaseKeeper` is a process's part in all leases: it acquires them (waiting as a standby while
another holds them) and renews all that it holds, together, in one call. A `HeldLease` is one
tenure: one token, which is lost once and for good.

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
from contextlib import aclosing
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self

from sexton.errors import Fenced, SextonError, WrongIncarnation
from sexton_runtime.clock import Clock
from sexton_runtime.kv._backoff import Backoff
from sexton_runtime.kv.engine import Engine, Watching
from sexton_runtime.kv.types import (
    Compare,
    EventKind,
    Lease,
    LeaseRef,
    Outcome,
    Txn,
    TxnResult,
    fence,
    lease_key,
)
from sexton_runtime.kv.watcher import LASTING
from sexton_runtime.randomness import Randomness

_ACTING_PART = 0.8
"""The part of a lease's time for which its holder acts after a renewal was sent."""
_RENEWAL_PART = 1 / 3
"""The part of a lease's time after which an answered renewal is followed by the next."""
_RETRY_PART = 1 / 8
"""The part of a lease's time after which an unanswered renewal is followed by another."""
_TOGETHER_PART = 1 / 12
"""Renewals that are due within this part of their lease's time go with the one due now."""

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_SHORTEST_PAUSE_S = 0.001
_LONGEST_JITTER_S = 0.05
"""Standbys that see a lease go do not all ask in the same instant."""
_RELEASE_TIMEOUT_S = 2.0
_HOLDER_BYTES = 16
_NS = 1_000_000_000
_MS = 1_000_000


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


class LostBecause(StrEnum):
    """Why a tenure ended."""

    REFUSED = "refused"  # the store has given the lease to nobody or to somebody else
    DEADLINE = "deadline"  # no renewal was answered in time, or the process was suspended
    RELEASED = "released"  # given back
    KEEPER_ENDED = "keeper ended"  # nobody renews it any more


class HeldLease:
    """One tenure of a lease, from a grant to its end. Made by `LeaseKeeper.acquire`."""

    def __init__(
        self, keeper: LeaseKeeper, name: str, token: int, ttl_ms: int, deadline_ns: int
    ) -> None:
        self.name = name
        self.token = token
        """The fencing token: higher than that of any tenure before."""
        self.lost = asyncio.Event()
        """Set when the tenure has ended, whatever the reason."""
        self.lost_because: LostBecause | None = None
        self._keeper = keeper
        self._ttl_ns = ttl_ms * _MS
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
        return max(0, self._deadline_ns - self._keeper.clock.boot_ns()) / _NS

    async def commit(
        self, txns: Sequence[Txn], *, timeout_s: float | None = None
    ) -> tuple[TxnResult, ...]:
        """Commits under this lease: adds the fence to each transaction, as its last compare.

        Raises `Fenced`, with nothing sent, once the lease is not held any more at the moment of
        sending. A result refused by the fence ends the tenure.
        """
        held = self.fence()
        fenced = [txn._replace(compares=(*txn.compares, held)) for txn in txns]
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
            self._deadline_ns = max(self._deadline_ns, sent_ns + int(self._ttl_ns * _ACTING_PART))
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


class LeaseKeeper:
    """Acquires leases and renews all that are held, in as few calls as the store's limits allow.

    `holder` is random per process start, so that two processes never take themselves for one.
    """

    def __init__(self, store: LeaseStore, *, clock: Clock, randomness: Randomness) -> None:
        self.store = store
        self.clock = clock
        self.holder = randomness.token_hex(_HOLDER_BYTES)
        self.renewals_unanswered = 0
        self._randomness = randomness
        self._held: dict[str, HeldLease] = {}
        self._claimed: set[str] = set()  # names being acquired or held; never iterated
        self._last_token: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def start(self) -> None:
        """Begins to renew. Idempotent."""
        if self._running is None:
            self._running = asyncio.create_task(self._renew_all(), name="lease-keeper")

    async def stop(self) -> None:
        """Gives back everything that is held, together, and ends. Idempotent."""
        await asyncio.gather(*(lease.release() for lease in list(self._held.values())))
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def acquire(self, name: str, *, ttl_s: float, value: bytes = b"") -> HeldLease:
        """Waits until the lease is this process's own, and keeps it from then on.

        While another holds it, watches the key and asks when it is gone. Raises only what trying
        again does not cure (`watcher.LASTING`). If the caller is cancelled while a question is
        under way, a lease that is granted all the same runs out by itself.
        """
        assert self._running is not None, "the keeper has not been started"
        assert name not in self._claimed, f"this process holds or awaits {name} already"
        self._claimed.add(name)
        backoff = Backoff(self._randomness, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        try:
            while True:
                try:
                    found = await self._ask(name, round(ttl_s * 1000), value)
                    if isinstance(found, HeldLease):
                        return found
                    backoff.reset()
                    await self._await_end(found)
                except LASTING:
                    raise
                except SextonError:
                    await asyncio.sleep(backoff.next_s())
        except BaseException:
            self._claimed.discard(name)
            raise

    def forget(self, lease: HeldLease) -> None:
        """Stops renewing a lease whose tenure has ended."""
        if self._held.get(lease.name) is lease:
            del self._held[lease.name]
            self._claimed.discard(lease.name)
        self._changed.set()

    async def give_back(self, lease: HeldLease) -> bool:
        """Tells the store that a tenure has ended; gives whether the store has answered."""
        backoff = Backoff(self._randomness, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        try:
            async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                while True:
                    try:
                        await self.store.release_lease(lease.name, lease.token)
                    except LASTING:
                        return False
                    except SextonError:
                        await asyncio.sleep(backoff.next_s())
                    else:
                        return True
        except TimeoutError:
            return False

    async def _ask(self, name: str, ttl_ms: int, value: bytes) -> HeldLease | Lease:
        """Asks for a lease; gives the tenure, or the lease of the other who holds it."""
        replaces = 0
        while True:
            sent_ns = self.clock.boot_ns()
            answer = await self.store.acquire_lease(
                name, self.holder, ttl_ms, value=value, replaces=replaces
            )
            standing = answer.lease
            if standing.holder != self.holder:
                return standing
            # Not granted and yet our own: an earlier question of ours, whose answer was lost, or
            # an earlier tenure, which must not come back to life: its token is replaced.
            counted_ms = ttl_ms if answer.granted else standing.remaining_ms
            deadline_ns = sent_ns + int(counted_ms * _MS * _ACTING_PART)
            ended = not answer.granted and standing.token == self._last_token.get(name)
            if ended or self.clock.boot_ns() >= deadline_ns:
                replaces = standing.token
                continue
            lease = HeldLease(self, name, standing.token, ttl_ms, deadline_ns)
            lease.schedule_first(sent_ns, answered_in_full=answer.granted)
            self._last_token[name] = standing.token
            self._held[name] = lease
            self._changed.set()
            return lease

    async def _await_end(self, standing: Lease) -> None:
        """Returns soon after a lease of another has gone, or is another one than it was."""
        key = lease_key(standing.name)
        watch = self.store.watch(key, keys_only=True)
        # Should the watch miss its end: ask again when nobody can hold it any more.
        longest_s = (standing.remaining_ms + standing.ttl_ms) / 1000
        try:
            async with asyncio.timeout(longest_s):
                async with aclosing(watch) as batches:
                    await anext(
                        aiter(batches), None
                    )  # the watch stands: nothing after this is missed
                    (kv,) = (await self.store.get([key], keys_only=True)).kvs
                    if kv.create_revision == standing.token:
                        await _deletion(batches, key)
        except TimeoutError:
            pass
        jitter_s = min(_LONGEST_JITTER_S, standing.ttl_ms / 1000 / 20)
        await asyncio.sleep(self._randomness.uniform(0, jitter_s))

    async def _renew_all(self) -> None:
        try:
            async with asyncio.TaskGroup() as calls:
                while True:
                    self._changed.clear()
                    due = self._due()
                    most = self.store.limits.max_leases_per_renew
                    for first in range(0, len(due), most):
                        calls.create_task(self._renew(due[first : first + most]))
                    try:
                        async with asyncio.timeout(self._pause_s()):
                            await self._changed.wait()
                    except TimeoutError:
                        continue
        finally:
            for lease in list(self._held.values()):
                lease.end(LostBecause.KEEPER_ENDED)

    def _due(self) -> list[HeldLease]:
        """Gives the leases to renew now; those that are due soon come along with one that is."""
        now_ns = self.clock.boot_ns()
        held = [lease for lease in list(self._held.values()) if lease.still_held()]
        if all(lease.next_renewal_ns > now_ns for lease in held):
            return []
        due = [lease for lease in held if lease.may_go_along(now_ns)]
        for lease in due:
            lease.schedule_retry(now_ns)
        return due

    def _pause_s(self) -> float | None:
        """Tells how long nothing is to be done; None: until something changes."""
        now_ns = self.clock.boot_ns()
        next_ns = min((lease.next_look_ns for lease in self._held.values()), default=None)
        if next_ns is None:
            return None
        return min(max((next_ns - now_ns) / _NS, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)

    async def _renew(self, due: Sequence[HeldLease]) -> None:
        leases = [lease for lease in due if lease.still_held()]
        if not leases:
            return
        sent_ns = self.clock.boot_ns()
        patience_s = min(lease.remaining_s() for lease in leases)
        try:
            async with asyncio.timeout(patience_s):
                renewals = await self.store.renew_leases(
                    [LeaseRef(lease.name, lease.token) for lease in leases]
                )
        except WrongIncarnation:
            for lease in leases:
                lease.end(LostBecause.REFUSED)
        except (SextonError, TimeoutError):
            self.renewals_unanswered += 1
        else:
            for lease, renewal in zip(leases, renewals, strict=True):
                if renewal.renewed:
                    lease.extend(sent_ns)
                else:
                    lease.end(LostBecause.REFUSED)


async def _deletion(batches: Watching, key: bytes) -> None:
    """Returns once the key has been deleted."""
    async for batch in batches:
        for revision in batch.revisions:
            for event in revision.events:
                if event.kind is EventKind.DELETE and event.kv.key == key:
                    return
