"""The standard health service, whose watches end when the server does.

gRPC's own servicer holds every watch open until the server cuts it off, and a client that routes by
health keeps one open for good: each stop would last the whole grace.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from sexton.errors import NotFound

SERVICE = "grpc.health.v1.Health"
OVERALL = ""
"""The name under which a server's health as a whole is asked for."""

_Status = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):
    """Tells for each named service whether it is to be used; all are unknown at first."""

    def __init__(self) -> None:
        self._serving: dict[str, bool] = {}
        self._changed = asyncio.Event()
        self._closed = False

    def set(self, service: str, *, serving: bool) -> None:
        """Says whether a service (`""`: the server) is to be used. No effect once closed."""
        if not self._closed and self._serving.get(service) is not serving:
            self._serving[service] = serving
            self._wake()

    def close(self) -> None:
        """Says for good that nothing is to be used here, and ends the watches. Idempotent."""
        if not self._closed:
            self._serving = dict.fromkeys(self._serving, False)
            self._closed = True
            self._wake()

    async def Check(self, request: Any, _context: Any) -> Any:  # noqa: N802 - the proto's name
        """Answers for one service; raises `NotFound` for one that is not known."""
        if request.service not in self._serving:
            raise NotFound("health service", request.service)
        return _Status(status=self._status(request.service))

    async def Watch(self, request: Any, _context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Answers at once and whenever the answer changes."""
        told = None
        while True:
            changed = self._changed
            status = self._status(request.service)
            if status != told:
                yield _Status(status=status)
                told = status
            if self._closed:
                return
            await changed.wait()

    def _status(self, service: str) -> int:
        serving = self._serving.get(service)
        if serving is None:
            return int(_Status.SERVICE_UNKNOWN)
        return int(_Status.SERVING if serving else _Status.NOT_SERVING)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
