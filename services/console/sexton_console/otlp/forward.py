"""Sends on what was received, to another OTLP endpoint, as far as that one can keep up."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
from grpc import aio
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc

MAX_WAITING: Final = 256
"""Requests that wait to be sent on, ..."""
MAX_WAITING_BYTES: Final = 32 * 1024 * 1024
"""... and how large they are together."""
_TIMEOUT_S: Final = 10.0


class Forwarder:
    """Sends requests on, one after the other."""

    def __init__(self, endpoint: str) -> None:
        """`endpoint`: `http://host:port`, or `https://host:port` with the system's authorities."""
        self.sent = 0
        self.dropped = 0
        """Requests that were not sent on: the other side was away, or too slow."""
        self._endpoint = urlsplit(endpoint if "//" in endpoint else f"http://{endpoint}")
        self._waiting: asyncio.Queue[tuple[str, Any, int]] = asyncio.Queue(MAX_WAITING)
        self._waiting_bytes = 0
        self._channel: aio.Channel | None = None
        self._sending: asyncio.Task[None] | None = None

    def offer(self, kind: str, request: Any) -> None:
        """Takes a request of a kind: `traces`, `logs` or `metrics`."""
        size = request.ByteSize()
        if self._waiting.full() or self._waiting_bytes + size > MAX_WAITING_BYTES:
            self.dropped += 1
            return
        self._waiting_bytes += size
        self._waiting.put_nowait((kind, request, size))

    async def start(self) -> None:
        """Begins to send."""
        if self._endpoint.scheme == "https":
            self._channel = aio.secure_channel(
                self._endpoint.netloc, grpc.ssl_channel_credentials()
            )
        else:
            self._channel = aio.insecure_channel(self._endpoint.netloc)
        kinds: dict[str, Any] = {  # generated without types
            "traces": trace_service_pb2_grpc.TraceServiceStub,
            "logs": logs_service_pb2_grpc.LogsServiceStub,
            "metrics": metrics_service_pb2_grpc.MetricsServiceStub,
        }
        stubs = {kind: stub(self._channel) for kind, stub in kinds.items()}
        self._sending = asyncio.create_task(self._send(stubs), name="forward-telemetry")

    async def stop(self) -> None:
        """Ends; what waits is dropped. Idempotent."""
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()

    async def _send(self, stubs: dict[str, Any]) -> None:
        while True:
            kind, request, size = await self._waiting.get()
            try:
                await stubs[kind].Export(request, timeout=_TIMEOUT_S)
                self.sent += 1
            except aio.AioRpcError:
                self.dropped += 1
            finally:
                self._waiting_bytes -= size
