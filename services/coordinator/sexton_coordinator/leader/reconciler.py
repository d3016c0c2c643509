"""Finds active jobs that have lost their timer, or that are due and not decided.

There should be none of either. What has no timer is armed again; both are counted and said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog
from google.protobuf.message import DecodeError

from sexton.errors import SextonError
from sexton.internal.v1 import records_pb2 as pb
from sexton_coordinator.leader.machine import Machine
from sexton_coordinator.mesh import Mesh
from sexton_core.instants import SECOND, Duration
from sexton_records import keys
from sexton_runtime.kv.types import KeyValue, prefix_end
from sexton_runtime.kv.watcher import LASTING

_PAGE: Final = 200
"""States looked at in one pass."""
_INTERVAL_S: Final = 1.0
"""Time between two passes: 10,000 jobs are gone through in less than a minute."""
_REST_S: Final = 30.0
"""Time between two rounds."""
OVERDUE_NS: Final[Duration] = 60 * SECOND
"""What is due for longer than this, while somebody leads, is stuck: the overload of a moment, and
what a takeover finds, are decided within seconds."""

_log = structlog.get_logger(__name__)


class Reconciler:
    """Goes through the states of a shard, again and again, for one tenure."""

    def __init__(self, *, mesh: Mesh, shard: int, machine: Machine) -> None:
        self._mesh = mesh
        self._shard = shard
        self._machine = machine
        self._token = b""
        self._overdue = 0  # as the last whole round found
        self._stuck = 0  # as this round has found so far

    @property
    def overdue(self) -> int:
        """Gives how many jobs are due for a minute and more, and not decided."""
        return max(self._overdue, self._stuck)

    async def run(self) -> None:
        """Goes through them until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S if self._token else _REST_S)
            try:
                await self.run_once()
            except LASTING:
                raise
            except SextonError:
                self._token = b""  # begun anew after the pause
                self._stuck = 0

    async def run_once(self) -> int:
        """Looks at one page of states; gives how many had lost their timer."""
        prefix = keys.state_prefix(self._shard)
        page = await self._mesh.store.scan(
            prefix, prefix_end(prefix), limit=_PAGE, page_token=self._token
        )
        self._token = page.next_token
        self._count_overdue(page.kvs)
        suspects = await self._without_timer(
            [(kv, timer) for kv in page.kvs if (timer := self._timer(kv))]
        )
        lost = 0
        for kv, timer in suspects:
            # Read together: the state may have moved on, and its timer with it.
            state, found = (await self._mesh.store.get([kv.key, timer], keys_only=True)).kvs
            if state.mod_revision == kv.mod_revision and not found.create_revision:
                uid = kv.key.rpartition(b"/")[2].decode()
                _log.warning("A job had lost its timer.", action="rearm", job_uid=uid)
                self._machine.look(uid, force=True)
                lost += 1
        return lost

    def _count_overdue(self, kvs: Sequence[KeyValue]) -> None:
        latest = self._mesh.now() - OVERDUE_NS
        for kv in kvs:
            timer = self._timer(kv)
            if timer is not None and keys.parse_timer_key(timer).due < latest:
                if not self._stuck:
                    uid = kv.key.rpartition(b"/")[2].decode()
                    _log.warning(
                        "A job is due and nobody decides it; others may be.",
                        action="overdue",
                        shard=self._shard,
                        job_uid=uid,
                    )
                self._stuck += 1
        if not self._token:
            self._overdue, self._stuck = self._stuck, 0

    async def _without_timer(
        self, expected: list[tuple[KeyValue, bytes]]
    ) -> list[tuple[KeyValue, bytes]]:
        if not expected:
            return []
        timers = [timer for _, timer in expected]
        found = (await self._mesh.store.get(timers, keys_only=True)).kvs
        return [entry for entry, kv in zip(expected, found, strict=True) if not kv.create_revision]

    def _timer(self, kv: KeyValue) -> bytes | None:
        """Returns the key of the timer that a state must have; None: none."""
        try:
            record = pb.StateRecord.FromString(kv.value)
        except DecodeError:
            return None  # whoever looks at the job says so
        if record.HasField("paused_at_ns") or not record.HasField("armed_ns"):
            return None
        due = record.timer_ns if record.HasField("timer_ns") else record.armed_ns
        return keys.timer_key(self._shard, due, kv.key.rpartition(b"/")[2].decode())
