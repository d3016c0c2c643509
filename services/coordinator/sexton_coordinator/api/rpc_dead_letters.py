"""The servicer of dead letters."""
# ruff: noqa: N802 - the methods' names are the protos'

from __future__ import annotations

from typing import Any, Final

from sexton.v1 import dead_letter_pb2 as api
from sexton.v1 import dead_letter_pb2_grpc as grpc_services
from sexton_coordinator.api.dead_letters import DeadLetters
from sexton_coordinator.api.peers import time_left_s
from sexton_coordinator.mesh import Mesh

DEAD_LETTER_SERVICE: Final = "sexton.v1.DeadLetterService"


class DeadLetterServicer(grpc_services.DeadLetterServiceServicer):
    """Serves `sexton.v1.DeadLetterService`."""

    def __init__(self, mesh: Mesh) -> None:
        self._dead_letters = DeadLetters(mesh)

    async def ListDeadLetters(
        self, request: api.ListDeadLettersRequest, _context: Any
    ) -> api.ListDeadLettersResponse:
        """Lists dead letters."""
        return await self._dead_letters.page(request)

    async def RequeueDeadLetters(
        self, request: api.RequeueDeadLettersRequest, context: Any
    ) -> api.RequeueDeadLettersResponse:
        """Runs dead letters again."""
        return await self._dead_letters.requeue(request, timeout_s=time_left_s(context))

    async def PurgeDeadLetters(
        self, request: api.PurgeDeadLettersRequest, context: Any
    ) -> api.PurgeDeadLettersResponse:
        """Takes dead letters off the list."""
        return await self._dead_letters.purge(request, timeout_s=time_left_s(context))
