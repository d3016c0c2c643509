"""The four kinds of call as their callers have them: one request or many, one response or many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable
from typing import Any

from grpc import aio

from sexton_sim._client_call import ClientCall
from sexton_sim._wire import Status

_STYLE_ERROR = "The iterator and read/write APIs may not be mixed on a single RPC."


class UnaryResponse(ClientCall):
    """Awaiting it gives the response or raises."""

    _response: Any = None

    def on_status(self, status: Status) -> None:
        """Takes the end: with the response, which is read when it is awaited."""
        self._finish(status, keep_inbox=True)

    def __await__(self) -> Generator[Any, None, Any]:
        """Waits for the response."""
        return self._outcome().__await__()

    async def _outcome(self) -> Any:
        try:
            await self._ended()
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._raise_for_status()
        if self._inbox:
            self._response = self._deserialize(self._inbox.popleft())
        return self._response


class StreamResponse(ClientCall):
    """Iterate over it or `read()` it."""

    _style = ""
    _iterator: AsyncIterator[Any] | None = None

    def __aiter__(self) -> AsyncIterator[Any]:
        """Iterates over the responses, then raises the call's error, if any."""
        self._use("iterator")
        if self._iterator is None:
            self._iterator = _Responses(self)
        return self._iterator

    async def read(self) -> Any:
        """Gives the next response, or `grpc.aio.EOF`."""
        if self._status is not None:
            self._raise_for_status()
            return aio.EOF
        self._use("read")
        payload = await self._receive()
        if payload is None:
            self._raise_for_status()
            return aio.EOF
        return self._deserialize(payload)

    async def next_response(self) -> Any:
        """Gives the next response of an iteration."""
        payload = await self._receive()
        if payload is None:
            self._raise_for_status()
            raise StopAsyncIteration
        return self._deserialize(payload)

    def _use(self, style: str) -> None:
        if self._style not in {"", style}:
            raise aio.UsageError(_STYLE_ERROR)
        self._style = style


class StreamRequest(ClientCall):
    """Its requests come from an iterator or from `write()`."""

    _poller: asyncio.Task[None] | None = None

    def feed(self, requests: AsyncIterable[Any] | Iterable[Any]) -> None:
        """Sends what an iterator gives."""
        self._poller = self._loop.create_task(self._consume(requests))

    def cancel(self) -> bool:
        """Ends the call and its iterator."""
        if super().cancel():
            if self._poller is not None:
                self._poller.cancel()
            return True
        return False

    async def write(self, request: Any) -> None:
        """Sends a request; waits while the server has too many unread."""
        self._refuse_mixing()
        await self._write(request)

    async def done_writing(self) -> None:
        """Says that no more requests come; idempotent."""
        self._refuse_mixing()
        self._half_close()

    def _refuse_mixing(self) -> None:
        if self._poller is not None:
            raise aio.UsageError(_STYLE_ERROR)

    async def _write(self, request: Any) -> None:
        if self._status is not None:
            raise asyncio.InvalidStateError("RPC already finished.")
        if self._half_closed:
            raise asyncio.InvalidStateError('RPC is half closed after calling "done_writing".')
        payload = self._serialize(request)
        try:
            while self._status is None and (self._exchange is None or self._window < 0):
                await self._wait()
            if self._status is None:
                self._window -= len(payload)
                assert self._exchange is not None
                self._exchange.send_message(payload)
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._raise_for_status()

    def _half_close(self) -> None:
        if self._status is None and not self._half_closed:
            self._half_closed = True
            if self._exchange is not None:
                self._exchange.half_close()

    async def _consume(self, requests: AsyncIterable[Any] | Iterable[Any]) -> None:
        try:
            if isinstance(requests, AsyncIterable):
                async for request in requests:
                    await self._write(request)
            else:
                for request in requests:
                    await self._write(request)
            self._half_close()
        except (aio.AioRpcError, asyncio.InvalidStateError):
            return
        except BaseException:  # noqa: BLE001 - as grpc.aio: the iterator's error ends the call
            self.cancel()


class UnaryUnaryCall(UnaryResponse, aio.UnaryUnaryCall[Any, Any]):
    """One request, one response."""


class UnaryStreamCall(StreamResponse, aio.UnaryStreamCall[Any, Any]):
    """One request, a stream of responses."""


class StreamUnaryCall(StreamRequest, UnaryResponse, aio.StreamUnaryCall[Any, Any]):
    """A stream of requests, one response."""


class StreamStreamCall(StreamRequest, StreamResponse, aio.StreamStreamCall[Any, Any]):
    """A stream each way."""


class _Responses:
    def __init__(self, call: StreamResponse) -> None:
        self._call = call
        self._over = False

    def __aiter__(self) -> _Responses:
        return self

    async def __anext__(self) -> Any:
        if self._over:
            raise StopAsyncIteration
        try:
            return await self._call.next_response()
        except BaseException:
            self._over = True
            raise
