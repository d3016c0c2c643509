"""Reads what is durable and pending: starts that wait, backfills, and jobs that were deleted.

At takeover, whenever a push stream opens, and every few seconds. Settlement notices only make it
quick: a lost one costs the time until the next look, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from sexton.internal.v1 import records_pb2 as pb
from sexton_coordinator.jobs_store import get_all, scan_all
from sexton_coordinator.leader.counters import Counters
from sexton_coordinator.leader.filling import Filling
from sexton_coordinator.leader.firing import Queues
from sexton_coordinator.leader.machine import Machine
from sexton_coordinator.leader.steps import Planner
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.writes import decision_ops
from sexton_core.policy import Buffered, JobState, delete
from sexton_core.words import Ask
from sexton_records import keys
from sexton_records.state import decode_buffered, handle_of
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.kv.types import Delete, KeyValue, Op, Txn, prefix_end, unchanged
from sexton_runtime.kv.watcher import LASTING

INTERVAL_S: Final = 5.0
"""The longest time between two looks."""
_LEAST_INTERVAL_S: Final = 0.2
"""The shortest: many things may ask for a look at once."""
_PAGE: Final = 200
"""Deleted jobs worked off together."""
_DROPPED_PER_TXN: Final = 40
"""Waiting starts that a transaction drops: two operations each, of at most 100."""

_log = structlog.get_logger(__name__)


class Lookout:
    """The reading of what is pending, for one tenure."""

    def __init__(
        self,
        *,
        mesh: Mesh,
        lease: HeldLease,
        shard: int,
        machine: Machine,
        filling: Filling,
        planner: Planner,
        queues: Queues,
        counters: Counters,
    ) -> None:
        self._mesh = mesh
        self._lease = lease
        self._shard = shard
        self._machine = machine
        self._filling = filling
        self._planner = planner
        self._queues = queues
        self._counters = counters
        self._wanted = asyncio.Event()

    def want(self) -> None:
        """Has a look taken soon."""
        self._wanted.set()

    async def run(self) -> None:
        """Looks again and again, until cancelled."""
        while True:
            await asyncio.sleep(_LEAST_INTERVAL_S)
            try:
                async with asyncio.timeout(INTERVAL_S - _LEAST_INTERVAL_S):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            try:
                await self.run_once()
            except LASTING:
                raise
            except Exception as error:  # noqa: BLE001 - one bad record must not end the leading
                _log.warning(
                    "What is pending could not be read; it will be tried again.",
                    action="look_out",
                    error=repr(error),
                )

    async def run_once(self) -> int:
        """Looks once; gives how many jobs have something pending."""
        waiting = await self.find_waiting()
        for uid in waiting:
            self._machine.look(uid)
        return len(waiting) + await self._filling.look() + await self._work_off_deleted()

    async def find_waiting(self) -> set[str]:
        """Finds the jobs with starts in the buffer."""
        prefix = keys.buffered_prefix(self._shard)
        start, end = prefix, prefix_end(prefix)
        found: set[str] = set()
        while True:
            page = await self._mesh.store.scan(start, end, keys_only=True)
            found.update(keys.parse_buffered_key(kv.key)[0] for kv in page.kvs)
            if not page.next_token:
                break
            last, _ = keys.parse_buffered_key(page.kvs[-1].key)
            start = prefix_end(keys.buffered_prefix(self._shard, last))
        self._machine.waiting |= found
        return found

    async def _work_off_deleted(self) -> int:
        prefix = keys.deleted_prefix(self._shard)
        token, pending = b"", 0
        while True:
            page = await self._mesh.store.scan(
                prefix, prefix_end(prefix), limit=_PAGE, page_token=token
            )
            pending += len(page.kvs)
            await self._work_off(page.kvs)
            token = page.next_token
            if not token:
                return pending

    async def _work_off(self, kvs: Sequence[KeyValue]) -> None:
        """Asks for the end of what is live, drops what waits; what has neither is done with."""
        deleted = [(kv, _uid(kv), pb.DeletedRecord.FromString(kv.value)) for kv in kvs]
        handles = [(uid, handle_of(name)) for _, uid, record in deleted for name in record.live]
        wanted = [self._planner.handle_key(uid, handle) for uid, handle in handles]
        found = await get_all(self._mesh.store, wanted, keys_only=True)
        live: set[str] = set()
        for (uid, handle), kv in zip(handles, found, strict=True):
            if kv.create_revision:
                live.add(uid)
                reason = "the job was deleted"
                self._queues.ask(*self._planner.end_request(uid, handle, Ask.CANCEL, reason))
        txns: list[Txn] = []
        finished = 0
        for kv, uid, record in deleted:
            waiting: list[KeyValue] = []
            if uid in self._machine.waiting or uid not in live:
                prefix = keys.buffered_prefix(self._shard, uid)
                waiting = await scan_all(self._mesh.store, prefix)
            if waiting:
                txns += [
                    Txn((unchanged(kv),), tuple(_drop(uid, record, part)), use_reserve=True)
                    for part in _parts(waiting)
                ]
            elif uid not in live:
                txns.append(Txn((unchanged(kv),), (Delete(kv.key),), use_reserve=True))
                finished += 1
        if txns:
            await self._lease.commit(txns)
        self._counters.deleted_jobs += finished
        if len(txns) > finished:
            self.want()


def _uid(kv: KeyValue) -> str:
    return kv.key.rpartition(b"/")[2].decode()


def _parts(kvs: Sequence[KeyValue]) -> list[Sequence[KeyValue]]:
    return [kvs[first : first + _DROPPED_PER_TXN] for first in range(0, len(kvs), _DROPPED_PER_TXN)]


def _drop(uid: str, record: pb.DeletedRecord, waiting: Sequence[KeyValue]) -> list[Op]:
    """Returns what records that starts were dropped, and takes them out of the buffer."""
    starts: list[Buffered] = [
        decode_buffered(pb.BufferedRecord.FromString(kv.value)) for kv in waiting
    ]
    state = JobState(cursor=0, armed=None, rules=(), buffered=tuple(starts))
    deletion = delete(state, record.delete_time_ns)
    return [*decision_ops(uid, deletion.ranges), *(Delete(kv.key) for kv in waiting)]
