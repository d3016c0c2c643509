"""Sends spans and log lines in bulk, off the hot path: what is added waits in memory, bounded.

Adding costs an append. What is added is encoded later, some at a time, so that the loop stays free;
what the other side can't take in time is dropped and counted, and nobody ever waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

import grpc
from grpc import aio

from sexton_runtime import otlp

Item = TypeVar("Item")

MAX_WAITING: Final = 20_000
"""Items of one kind that wait to be sent: five seconds of what a mesh can carry."""
EVERY_S: Final = 0.5
_AT_ONCE: Final = 100
"""Items that are encoded before the loop has its turn again."""
_REQUEST_BYTES: Final = 1024 * 1024
_TIMEOUT_S: Final = 2.0
_AWAY: Final = 20
"""So many times a request is sent again while nobody answers: about ten seconds."""
_LAST_S: Final = 2.0
"""What is left is given this when a process stops."""

_SERVICES: Final = {
    "spans": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "lines": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}


def is_sampled(run_id: str, part: float) -> bool:
    """Decides whether a run's way is traced: the same answer for the same run, everywhere."""
    if part <= 0 or part >= 1:
        return part >= 1
    digest = blake2b(run_id.encode(), digest_size=4, person=b"sexton-trace").digest()
    return int.from_bytes(digest) < part * 2**32


class Sink(Generic[Item]):
    """Takes items of one kind, from any thread."""

    __slots__ = ("_encode", "_items", "_scope", "dropped", "kind")

    def __init__(self, kind: str, encode: Callable[[Item], Sequence[bytes]], scope: bytes) -> None:
        self.kind = kind
        self._scope = scope
        self.dropped = 0
        self._encode = encode
        self._items: deque[Item] = deque()

    def add(self, item: Item) -> None:
        """Takes an item, or drops it where too many wait."""
        if len(self._items) >= MAX_WAITING:
            self.dropped += 1
        else:
            self._items.append(item)

    def __len__(self) -> int:
        return len(self._items)

    def take(self, most: int) -> list[bytes]:
        """Encodes the oldest items: as a group each where they have a scope, else as one group."""
        taken = [self._encode(self._items.popleft()) for _ in range(min(most, len(self._items)))]
        if self._scope:
            return [otlp.scope(each, self._scope) for each in taken if each]
        found = [item for each in taken for item in each]
        return [otlp.scope(found)] if found else []


class Exporter:
    """Sends what sinks have taken to an OTLP/gRPC endpoint; its telemetry starts and stops it."""

    def __init__(self, endpoint: str, sender: dict[str, str]) -> None:
        """`endpoint`: `http://host:port`, or `https://host:port` with the system's authorities."""
        self.sinks: list[Sink[Any]] = []
        self._endpoint = urlsplit(endpoint if "//" in endpoint else f"http://{endpoint}")
        self._sender = otlp.resource(sender)
        self._channel: aio.Channel | None = None
        self._unsent: deque[tuple[Sink[Any], bytes, int]] = deque()
        self._away = 0
        self._sending: asyncio.Task[None] | None = None

    def sink(
        self, kind: str, encode: Callable[[Item], Sequence[bytes]], scope: str = ""
    ) -> Sink[Item]:
        """Makes a sink of `spans` or `lines`; `encode` is called later, in the loop.

        With a `scope` what one item becomes stays together, under that name.
        """
        made = Sink(kind, encode, scope.encode())
        self.sinks.append(made)
        return made

    def dropped(self) -> dict[str, int]:
        """Tells how many items were not sent, by kind."""
        found: dict[str, int] = {}
        for sink in self.sinks:
            found[sink.kind] = found.get(sink.kind, 0) + sink.dropped
        return found

    async def start(self) -> None:
        """Begins to send, in the background."""
        self._sending = asyncio.create_task(self._send(), name="export-telemetry")

    async def stop(self) -> None:
        """Sends what is left, for a moment, and ends. Idempotent."""
        sending, self._sending = self._sending, None
        if sending is None:
            return
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        try:
            async with asyncio.timeout(_LAST_S):
                await self.run_once()
        except TimeoutError:
            pass
        if self._channel is not None:
            await self._channel.close()

    async def run_once(self) -> None:
        """Sends what waits now."""
        for sink in self.sinks:
            while len(sink):
                await self._encode(sink)
        while self._unsent and await self._deliver(*self._unsent[0]):
            self._unsent.popleft()

    async def _encode(self, sink: Sink[Any]) -> None:
        """Puts one request together."""
        items: list[bytes] = []
        size = count = 0
        began = time.monotonic()
        while len(sink) and size < _REQUEST_BYTES:
            before = len(sink)
            some = sink.take(_AT_ONCE)
            count += before - len(sink)
            items += some
            size += sum(map(len, some))
            if time.monotonic() - began > 0.002:
                await asyncio.sleep(0)
                began = time.monotonic()
        if not items:
            return
        waiting = sum(len(body) for _, body, _ in self._unsent)
        if waiting > 8 * _REQUEST_BYTES:
            sink.dropped += count
        else:
            self._unsent.append((sink, otlp.request(self._sender, items), count))

    async def _deliver(self, sink: Sink[Any], body: bytes, count: int) -> bool:
        """Sends a request; tells whether it is done with, taken or dropped."""
        if self._channel is None:
            self._channel = self._open()
        call: Any = self._channel.unary_unary(_SERVICES[sink.kind])
        try:
            await call(body, timeout=_TIMEOUT_S)
        except aio.AioRpcError as error:
            self._away += 1
            if error.code() is grpc.StatusCode.UNAVAILABLE and self._away <= _AWAY:
                return False
            sink.dropped += count
            return True
        self._away = 0
        return True

    def _open(self) -> aio.Channel:
        options = (
            ("grpc.initial_reconnect_backoff_ms", 500),
            ("grpc.max_reconnect_backoff_ms", 2_000),
            ("grpc.enable_retries", 0),
        )
        if self._endpoint.scheme == "https":
            credentials = grpc.ssl_channel_credentials()
            return aio.secure_channel(self._endpoint.netloc, credentials, options)
        return aio.insecure_channel(self._endpoint.netloc, options)

    async def _send(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self.run_once()
