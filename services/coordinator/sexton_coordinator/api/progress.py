"""Tells what a running task last said about itself: its queue's owner has it in memory."""

from __future__ import annotations

from typing import Final

from sexton.errors import SextonError
from sexton.internal.v1 import queue_pb2
from sexton.internal.v1.queue_pb2_grpc import QueueServiceStub
from sexton.v1 import run_pb2
from sexton_coordinator.api.run_finding import FoundRun
from sexton_coordinator.mesh import Mesh
from sexton_core.runs.table import WITH_WORKER
from sexton_records import keys
from sexton_records.runs import STATE_OF

_ANSWER_S: Final = 0.5
"""An owner that is slower, or away, leaves the run without its progress."""


class ProgressReader:
    """Asks owners."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh

    async def add(self, run: run_pb2.Run, found: FoundRun) -> None:
        """Adds to a run what its task last said, where it runs and its owner answers."""
        if STATE_OF[run.state] not in WITH_WORKER or not found.handle:
            return
        owner = self._mesh.directory.owner(keys.parse_handle_key(found.handle).shard)
        if owner is None or not owner.address:
            return
        request = queue_pb2.DescribeProgressRequest(handles=[found.handle])
        stub = QueueServiceStub(self._mesh.channel(owner.address))
        try:
            (report,) = (await stub.DescribeProgress(request, timeout=_ANSWER_S)).reports
        except SextonError:
            return
        if report.HasField("progress"):
            run.progress.CopyFrom(report.progress)
