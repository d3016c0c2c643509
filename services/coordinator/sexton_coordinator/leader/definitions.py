"""Follows the definitions: every change that the API makes to a job rewrites its record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from google.protobuf.message import DecodeError

from sexton.errors import Compacted, SextonError
from sexton.internal.v1 import records_pb2 as pb
from sexton_coordinator.jobs_store import JobRef
from sexton_coordinator.leader.machine import Machine
from sexton_coordinator.mesh import Mesh
from sexton_records import keys
from sexton_runtime.kv.types import Event, EventKind
from sexton_runtime.kv.watcher import LASTING

_PAUSE_S: Final = 0.1
"""After a watch that broke."""


class Definitions:
    """Tells the machine of every change since a revision."""

    def __init__(
        self, *, mesh: Mesh, shard: int, machine: Machine, removed: Callable[[], object]
    ) -> None:
        """`removed` hears that some definition has gone."""
        self._mesh = mesh
        self._shard = shard
        self._machine = machine
        self._removed = removed

    async def follow(self, revision: int) -> None:
        """Follows what changes after a revision; raises `Compacted` once that is lost."""
        while True:
            watch = self._mesh.store.watch(keys.JOBS, revision + 1)
            try:
                async with aclosing(watch) as batches:
                    async for batch in batches:
                        for change in batch.revisions:
                            for event in change.events:
                                self._take(event)
                        revision = max(revision, batch.progress_revision)
            except (Compacted, *LASTING):
                raise
            except SextonError:
                await asyncio.sleep(_PAUSE_S)

    def _take(self, event: Event) -> None:
        namespace, job = keys.parse_job_key(event.kv.key)
        if event.kind is EventKind.DELETE:
            self._machine.removed(namespace, job, event.kv.mod_revision)
            self._removed()
            return
        try:
            record = pb.JobRecord.FromString(event.kv.value)
        except DecodeError:
            return  # whoever looks at the job says so
        uid = record.uid
        if keys.shard_of(uid, self._mesh.coordinator_shards) == self._shard:
            timer = record.timer_ns if record.HasField("timer_ns") else None
            self._machine.changed(JobRef(uid, namespace, job), event.kv.mod_revision, timer)
