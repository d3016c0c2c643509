"""What waits for a durable step: transactions, and the leases' own.

A request is evaluated (perhaps more than once: a step that found no space is evaluated anew), then
settled once its step is durable. Only settling changes memory and answers the caller.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import IntEnum
from typing import Generic, TypeVar

from sexton.errors import NoSpace
from sexton_runtime.kv.columns import Run
from sexton_runtime.kv.types import (
    Acquired,
    Delete,
    Lease,
    Outcome,
    Put,
    Txn,
    TxnResult,
    absent,
    fence,
    lease_key,
)
from sexton_store.cluster import decode_lease, encode_lease
from sexton_store.contract import KIB, EngineCounters
from sexton_store.leases import LeaseTable
from sexton_store.machine import Result, Space, Step
from sexton_store.timekeeper import Timekeeper

T = TypeVar("T")

SMALL_TXNS = 16
SMALL_BYTES = 64 * KIB
"""A Commit up to this size is not made to wait behind bulk ones."""
BREATH_OPS = 2_000
"""Operations of one step evaluated before others may run: one millisecond, or some where they are
evaluated one by one."""
OP_OVERHEAD_BYTES = 256
"""What a compare or write takes in memory beside its key and value."""


class Lane(IntEnum):
    """Where a request waits; the fewer, the sooner."""

    URGENT = 0  # leases and the clock: few, small, and others' right to act hangs on them
    SMALL = 1
    BULK = 2


class Request(ABC, Generic[T]):
    """Something that waits for a step."""

    __slots__ = ("deadline_s", "future", "lane", "ops", "txns", "weight_bytes")

    def __init__(self, lane: Lane, *, txns: int, ops: int, size_bytes: int) -> None:
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.lane = lane
        self.txns = txns
        self.ops = ops
        self.weight_bytes = size_bytes + OP_OVERHEAD_BYTES * (ops + txns)
        self.deadline_s: float | None = None
        """On the loop's clock: not begun by then, it is dropped."""

    @abstractmethod
    def evaluate(self, step: Step) -> bool:
        """Finds out what the request does, on top of the step so far.

        False: it is a long one; call again when others have had their turn.
        """

    @abstractmethod
    def settle(self) -> None:
        """Makes it so in memory and answers: the step is durable."""

    def refuse(self, error: Exception) -> None:
        """Answers with an error."""
        if not self.future.done():
            self.future.set_exception(error)

    def answer(self, result: T) -> None:
        """Answers, if anybody still waits."""
        if not self.future.done():
            self.future.set_result(result)


class CommitRequest(Request[list[Result]]):
    """Independent transactions of one caller."""

    __slots__ = ("_next", "_pieces", "_results")

    def __init__(self, runs: Sequence[Run], *, ops: int, size_bytes: int) -> None:
        txns = sum([run.txns for run in runs])
        small = txns <= SMALL_TXNS and size_bytes <= SMALL_BYTES
        super().__init__(
            Lane.SMALL if small else Lane.BULK, txns=txns, ops=ops, size_bytes=size_bytes
        )
        self._pieces = [piece for run in runs for piece in run.pieces(BREATH_OPS)]
        self._next = 0
        self._results: list[Result] = []

    def evaluate(self, step: Step) -> bool:
        """Evaluates the transactions in their order, so many operations at a time."""
        if self._next in (0, len(self._pieces)):
            self._next = 0
            self._results = []
        breath = BREATH_OPS
        while self._next < len(self._pieces) and breath > 0:
            piece = self._pieces[self._next]
            step.run(piece, self._results)
            breath -= piece.ops
            self._next += 1
        return self._next == len(self._pieces)

    def settle(self) -> None:
        """Answers."""
        self.answer(self._results)


class PersistRequest(Request[None]):
    """Writes nothing but the cluster record, and with it the mesh clock."""

    __slots__ = ("_fits",)

    def __init__(self) -> None:
        super().__init__(Lane.URGENT, txns=0, ops=0, size_bytes=0)
        self._fits = False

    def evaluate(self, step: Step) -> bool:
        """Makes the step write."""
        self._fits = step.must_write = step.space is not Space.NONE
        return True

    def settle(self) -> None:
        """Answers."""
        if self._fits:
            self.answer(None)
        else:
            self.refuse(NoSpace())


class AcquireRequest(Request[Acquired]):
    """Creates a lease, perhaps after releasing the one that it replaces."""

    __slots__ = ("_leases", "_outcome", "_replaced", "_standing", "_time", "_wanted", "replaces")

    def __init__(
        self, wanted: Lease, *, replaces: int, leases: LeaseTable, time: Timekeeper
    ) -> None:
        super().__init__(Lane.URGENT, txns=1, ops=2, size_bytes=len(wanted.value))
        self.replaces = replaces
        self._wanted = wanted
        self._leases = leases
        self._time = time
        self._outcome = Outcome.REFUSED
        self._replaced = False
        self._standing: Lease | None = None

    def evaluate(self, step: Step) -> bool:
        """Releases what is replaced, then creates the key if it is absent."""
        name, holder, _, ttl_ms, value, _ = self._wanted
        key = lease_key(name)
        release = Txn((fence(name, self.replaces),), (Delete(key),), use_reserve=True)
        self._replaced = False
        if self.replaces:
            released = step.evaluate(release)
            self._replaced = released.outcome is Outcome.COMMITTED
            if released.outcome is not Outcome.REFUSED:
                self._leases.end(name, self.replaces)
        record = Put(key, encode_lease(holder, ttl_ms, value))
        created = step.evaluate(Txn((absent(key),), (record,), use_reserve=True))
        self._outcome = created.outcome
        self._standing = None
        if created.outcome is Outcome.COMMITTED:
            self._standing = self._wanted._replace(token=created.revision, remaining_ms=ttl_ms)
        elif created.outcome is Outcome.REFUSED:
            standing = step.read(key)
            assert standing is not None
            self._standing = _read_lease(name, standing.create_revision, standing.value)
        return True

    def settle(self) -> None:
        """Enters the lease, whose time begins now, or tells which one stands."""
        lease = self._standing
        if lease is None:
            self.refuse(NoSpace())
            return
        awake_ns = self._time.awake_ns()
        if self._replaced:
            self._leases.drop(lease.name, self.replaces)
        granted = self._outcome is Outcome.COMMITTED
        if granted:
            self._leases.grant(
                lease.name,
                holder=lease.holder,
                token=lease.token,
                ttl_ms=lease.ttl_ms,
                value=lease.value,
                awake_ns=awake_ns,
            )
        else:
            lease = self._leases.find(lease.name, awake_ns) or lease
        self.answer(Acquired(granted, lease, self._time.mesh_ns()))


class ReleaseRequest(Request[int]):
    """Deletes a lease's key, if it still is the one with this token."""

    __slots__ = ("_leases", "_name", "_result", "_token")

    def __init__(self, name: str, token: int, *, leases: LeaseTable) -> None:
        super().__init__(Lane.URGENT, txns=1, ops=1, size_bytes=len(name))
        self._name = name
        self._token = token
        self._leases = leases
        self._result = TxnResult(Outcome.REFUSED, 0)

    def evaluate(self, step: Step) -> bool:
        """Deletes the key; from here on the lease is not renewed."""
        deletion = Delete(lease_key(self._name))
        compares = (fence(self._name, self._token),)
        self._result = step.evaluate(Txn(compares, (deletion,), use_reserve=True))
        if self._result.outcome is not Outcome.REFUSED:
            self._leases.end(self._name, self._token)
        return True

    def settle(self) -> None:
        """Removes the lease."""
        if self._result.outcome is Outcome.NO_SPACE:
            self.refuse(NoSpace())
            return
        if self._result.outcome is Outcome.COMMITTED:
            self._leases.drop(self._name, self._token)
            self.answer(self._result.revision)
        self.answer(0)


class ExpireRequest(ReleaseRequest):
    """Ends a lease whose time has run out. Nobody waits for it; without space it is due again."""

    __slots__ = ("_counters", "_time")

    def __init__(
        self,
        name: str,
        token: int,
        *,
        leases: LeaseTable,
        time: Timekeeper,
        counters: EngineCounters,
    ) -> None:
        super().__init__(name, token, leases=leases)
        self._time = time
        self._counters = counters

    def evaluate(self, step: Step) -> bool:
        """Deletes the key, unless a renewal came while others of the step were evaluated."""
        if self._leases.is_due(self._name, self._token, self._time.awake_ns()):
            return super().evaluate(step)
        self._result = TxnResult(Outcome.REFUSED, 0)
        return True

    def settle(self) -> None:
        """Removes the lease and counts it."""
        if self._result.outcome is Outcome.COMMITTED:
            self._leases.drop(self._name, self._token)
            self._counters.expired_leases += 1

    def refuse(self, error: Exception) -> None:
        """Has nobody to answer."""


def _read_lease(name: str, token: int, data: bytes) -> Lease:
    holder, ttl_ms, value = decode_lease(data)
    return Lease(name, holder, token, ttl_ms, value, 0)
