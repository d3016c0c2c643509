"""A process's part in all leases: acquires them, and renews all that it holds in one call.

As a standby it watches a lease that another holds, and asks for it when it is gone. Whether it has
a lease is what the store's answer says and nothing else. What it holds is a `HeldLease`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Self

from sexton.errors import SextonError, Unavailable, WrongIncarnation
from sexton_runtime.clock import Clock
from sexton_runtime.kv._backoff import Backoff
from sexton_runtime.kv.engine import Watching
from sexton_runtime.kv.held_lease import ACTING_PART, HeldLease, LeaseStore, LostBecause
from sexton_runtime.kv.types import EventKind, Lease, LeaseRef, lease_key
from sexton_runtime.kv.watcher import LASTING
from sexton_runtime.randomness import Randomness

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_SHORTEST_PAUSE_S = 0.001
_LONGEST_JITTER_S = 0.05
"""Standbys that see a lease go do not all ask in the same instant."""
_RELEASE_TIMEOUT_S = 2.0
_HOLDER_BYTES = 16
_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000


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
        running, self._running = self._running, None
        await asyncio.gather(*(lease.release() for lease in list(self._held.values())))
        if running is not None:
            running.cancel()
            (ended,) = await asyncio.gather(running, return_exceptions=True)
            if isinstance(ended, Exception):
                raise ended

    def is_running(self) -> bool:
        """Tells whether it renews."""
        return self._running is not None

    async def acquire(self, name: str, *, ttl_s: float, value: bytes = b"") -> HeldLease:
        """Waits until the lease is this process's own, and keeps it from then on.

        While another holds it, watches the key and asks when it is gone. Raises only what trying
        again does not cure (`watcher.LASTING`), and `Unavailable` once the keeper has stopped. If
        the caller is cancelled while a question is under way, a lease that is granted all the same
        runs out by itself.
        """
        assert self.is_running(), "the keeper has not been started"
        assert name not in self._claimed, f"this process holds or awaits {name} already"
        self._claimed.add(name)
        try:
            return await self._contend(name, round(ttl_s * 1000), value)
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

    async def _contend(self, name: str, ttl_ms: int, value: bytes) -> HeldLease:
        backoff = Backoff(self._randomness, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        free_ns = self.clock.wall_ns()
        while self.is_running():
            try:
                found = await self._ask(name, ttl_ms, value)
                if not isinstance(found, HeldLease):
                    backoff.reset()
                    await self._await_end(found)
                    free_ns = self.clock.wall_ns()
                elif self.is_running():
                    found.free_ns = free_ns
                    return found
                else:  # overtaken by the stop: nobody would renew it
                    await found.release()
            except LASTING:
                raise
            except SextonError:
                await asyncio.sleep(backoff.next_s())
        raise Unavailable("the lease keeper has stopped")

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
            deadline_ns = sent_ns + int(counted_ms * _NS_PER_MS * ACTING_PART)
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
        return min(max((next_ns - now_ns) / _NS_PER_S, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)

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
