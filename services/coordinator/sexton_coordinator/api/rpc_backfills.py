"""The servicer of backfills."""
# ruff: noqa: N802 - the methods' names are the protos'

from __future__ import annotations

from typing import Any, Final

from sexton.v1 import backfill_pb2 as api
from sexton.v1 import backfill_pb2_grpc as grpc_services
from sexton_coordinator.api.backfills import Backfiller
from sexton_coordinator.api.peers import time_left_s
from sexton_coordinator.mesh import Mesh

BACKFILL_SERVICE: Final = "sexton.v1.BackfillService"


class BackfillServicer(grpc_services.BackfillServiceServicer):
    """Serves `sexton.v1.BackfillService`."""

    def __init__(self, mesh: Mesh) -> None:
        self._backfills = Backfiller(mesh)

    async def CreateBackfill(
        self, request: api.CreateBackfillRequest, context: Any
    ) -> api.CreateBackfillResponse:
        """Starts a backfill."""
        return await self._backfills.create(request, timeout_s=time_left_s(context))

    async def GetBackfill(
        self, request: api.GetBackfillRequest, _context: Any
    ) -> api.GetBackfillResponse:
        """Reads a backfill."""
        return await self._backfills.get(request)

    async def ListBackfills(
        self, request: api.ListBackfillsRequest, _context: Any
    ) -> api.ListBackfillsResponse:
        """Lists backfills."""
        return await self._backfills.page(request)

    async def CancelBackfill(
        self, request: api.CancelBackfillRequest, context: Any
    ) -> api.CancelBackfillResponse:
        """Starts no further run of a backfill."""
        return await self._backfills.cancel(request, timeout_s=time_left_s(context))
