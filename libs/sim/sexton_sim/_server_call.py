"""A call as its handler has it, in the shape of `grpc.aio.ServicerContext`."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Never

import grpc
from grpc import aio

from sexton_sim._wire import (
    WINDOW_BYTES,
    CallDetails,
    Metadatum,
    Status,
    metadata_of,
    too_large,
)

if TYPE_CHECKING:
    from sexton_sim._connection import Exchange
    from sexton_sim._server import SimServer

_LOG = logging.getLogger(__name__)
_UNIMPLEMENTED = Status(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


class ServerCall:
    """Runs one call's handler and carries its messages."""

    def __init__(self, server: SimServer, exchange: Exchange) -> None:
        self.head = exchange.head
        self.exchange = exchange
        self.endpoint = server.endpoint
        self.callbacks: list[Callable[[Any], None]] = []
        self.context: SimServicerContext | None = None
        self.finished = False
        self.cancelled = False
        self.window = WINDOW_BYTES
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._inbox: deque[bytes] = deque()
        self._half_closed = self.head.message is not None
        self._waiters: list[asyncio.Future[None]] = []

    def begin(self, task: asyncio.Task[None]) -> None:
        """Learns its task; the deadline runs on the server's clock from here on."""
        self._task = task
        if self.head.timeout_s is not None:
            self._timer = self.endpoint.later(self.head.timeout_s, self.on_cancel)

    # What the connection tells

    def on_message(self, payload: bytes) -> None:
        """Takes a request of a stream."""
        refused = too_large("SERVER", len(payload), self._server.max_message_bytes)
        if refused is not None:
            self.on_cancel()
            self.finish(refused)
            return
        self._inbox.append(payload)
        self._wake()

    def on_half_close(self) -> None:
        """Learns that no more requests come."""
        self._half_closed = True
        self._wake()

    def on_cancel(self) -> None:
        """Learns that nobody waits for the answer any more: the handler is cancelled."""
        if self._task is not None and not self.finished and not self.cancelled:
            self.cancelled = True
            self.endpoint.soon(self._task.cancel)

    def on_window(self, size: int) -> None:
        """Learns that the client has read so many bytes."""
        self.window += size
        self._wake()

    # What the handler does

    async def receive(self) -> bytes | None:
        """Gives the next request; None at the end."""
        while not self._inbox and not self._half_closed:
            await self._wait()
        if not self._inbox:
            return None
        payload = self._inbox.popleft()
        self.exchange.read_by_server(len(payload))
        return payload

    async def send(self, payload: bytes) -> None:
        """Sends a response of a stream; waits while the client has too many unread."""
        while self.window < 0:
            await self._wait()
        self.window -= len(payload)
        self.exchange.reply_message(payload)
        await asyncio.sleep(0)

    def finish(self, status: Status, payload: bytes | None = None) -> None:
        """Ends the call, once."""
        if self.finished:
            return
        self.finished = True
        if self._timer is not None:
            self._timer.cancel()
        if payload is None:
            self.exchange.reply_status(status)
        else:
            self.exchange.reply_unary(payload, status)

    def run_callbacks(self) -> None:
        """Runs what the handler asked to be run at the end."""
        if self._timer is not None:
            self._timer.cancel()
        for callback in self.callbacks:
            callback(self.context)

    async def run(self) -> None:
        """Finds the handler, runs it, and answers for its errors as gRPC does."""
        try:
            await self._run()
        except aio.AbortError:
            return
        except asyncio.CancelledError:
            _LOG.debug("call of %s was cancelled", self.head.method)
        except Exception as error:  # noqa: BLE001 - as gRPC does
            if not self.endpoint.alive:
                return  # its process was killed: what its `finally` blocks meet is nobody's fault
            _LOG.exception("unexpected error in %s", self.head.method)
            code = grpc.StatusCode.UNKNOWN
            if self.context is not None and self.context.code() is not grpc.StatusCode.OK:
                code = self.context.code()
            trailing = () if self.context is None else self.context.trailing
            self.finish(Status(code, f"Unexpected {type(error)}: {error}", trailing))

    async def _run(self) -> None:
        details = CallDetails(self.head.method, self.head.metadata)
        handler: Any = await self._server.resolve(details)
        if handler is None:
            self.finish(_UNIMPLEMENTED)
            return
        context = self.context = SimServicerContext(self, handler)
        request: Any
        if handler.request_streaming:
            request = _Requests(context)
        elif self.head.message is None:
            payload = await self.receive()
            if payload is None:
                return
            request = context.deserialize(payload)
        else:
            request = context.deserialize(self.head.message)
        if handler.response_streaming:
            method = handler.stream_stream if handler.request_streaming else handler.unary_stream
            await _stream(method, request, context)
            context.raise_for_abort()
            self.finish(context.status())
        else:
            method = handler.stream_unary if handler.request_streaming else handler.unary_unary
            response = await method(request, context)
            context.raise_for_abort()
            status = context.status()
            ok = status.code is grpc.StatusCode.OK
            self.finish(status, context.serialize(response) if ok else None)

    async def _wait(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        await future

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class SimServicerContext(aio.ServicerContext[Any, Any]):
    """What a handler is given."""

    def __init__(self, call: ServerCall, handler: Any) -> None:
        self._call = call
        self.serialize: Callable[[Any], bytes] = handler.response_serializer or _same
        self.deserialize: Callable[[bytes], Any] = handler.request_deserializer or _same
        self.trailing: tuple[Metadatum, ...] = ()
        self._code = grpc.StatusCode.OK
        self._details = ""
        self._abort: aio.AbortError | None = None
        self._headers_sent = False
        self._deadline_wall_s: float | None = None
        timeout_s = call.head.timeout_s
        if timeout_s is not None:
            self._deadline_wall_s = self._wall_s() + timeout_s

    async def read(self) -> Any:
        """Gives the next request, or `grpc.aio.EOF`."""
        self._raise_if_over()
        payload = await self._call.receive()
        self._raise_if_over()
        return aio.EOF if payload is None else self.deserialize(payload)

    async def write(self, message: Any) -> None:
        """Sends a response of a stream."""
        self._raise_if_over()
        self._headers_sent = True
        await self._call.send(self.serialize(message))

    async def send_initial_metadata(self, initial_metadata: Iterable[Any]) -> None:
        """Sends the initial metadata, once, before any response."""
        self._raise_if_over()
        if self._headers_sent:
            raise aio.UsageError("Send initial metadata failed: already sent")
        self._headers_sent = True
        self._call.exchange.reply_headers(metadata_of(initial_metadata))
        await asyncio.sleep(0)

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Iterable[Any] = ()
    ) -> Never:
        """Ends the call with an error and raises `AbortError`."""
        if self._abort is not None:
            raise aio.UsageError("Abort already called!")
        self._abort = aio.AbortError("Locally aborted.")
        self._code = code
        self._details = details or self._details
        self.trailing = metadata_of(trailing_metadata) or self.trailing
        self._call.finish(self.status())
        await asyncio.sleep(0)
        raise self._abort

    async def abort_with_status(self, status: grpc.Status) -> Never:
        """Ends the call with a rich error and raises `AbortError`."""
        rich: Any = status
        await self.abort(rich.code, rich.details, rich.trailing_metadata)

    def set_trailing_metadata(self, trailing_metadata: Iterable[Any]) -> None:
        """Sets what is sent with the end."""
        self.trailing = metadata_of(trailing_metadata)

    def trailing_metadata(self) -> Any:
        """Gives what is sent with the end."""
        return self.trailing

    def invocation_metadata(self) -> Any:
        """Gives the caller's metadata."""
        return self._call.head.metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        """Sets the code of the end."""
        self._code = code

    def code(self) -> grpc.StatusCode:
        """Gives the code of the end."""
        return self._code

    def set_details(self, details: str) -> None:
        """Sets the details of the end."""
        self._details = details

    def details(self) -> str:
        """Gives the details of the end."""
        return self._details

    def set_compression(self, compression: grpc.Compression) -> None:
        """Does nothing: nothing is compressed."""

    def disable_next_message_compression(self) -> None:
        """Does nothing: nothing is compressed."""

    def peer(self) -> str:
        """Names the caller."""
        return self._call.exchange.peer

    def peer_identities(self) -> None:
        """Gives None: there is no TLS."""

    def peer_identity_key(self) -> None:
        """Gives None: there is no TLS."""

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """Gives nothing: there is no TLS."""
        return {}

    def time_remaining(self) -> Any:
        """Gives the seconds until the deadline, or None; by the wall clock, as gRPC does."""
        if self._deadline_wall_s is None:
            return None
        return max(0.0, self._deadline_wall_s - self._wall_s())

    def add_done_callback(self, callback: Any) -> None:
        """Calls back with this context when the handler has ended."""
        self._call.callbacks.append(callback)

    def done(self) -> bool:
        """Tells whether the end has been sent."""
        return self._call.finished

    def cancelled(self) -> bool:
        """Tells whether it ended as CANCELLED."""
        return self._call.cancelled or self._code is grpc.StatusCode.CANCELLED

    def status(self) -> Status:
        """Gives the end as it stands."""
        return Status(self._code, self._details, self.trailing)

    def raise_for_abort(self) -> None:
        """Raises what the handler swallowed."""
        if self._abort is not None:
            raise self._abort

    def _raise_if_over(self) -> None:
        self.raise_for_abort()
        if self._call.finished:
            raise aio.UsageError("RPC already finished.")

    def _wall_s(self) -> float:
        process = self._call.endpoint.process
        if process is None:
            return asyncio.get_running_loop().time()
        return process.clock.wall_ns() / 1e9


class _Requests:
    """The request iterator that a handler is given."""

    def __init__(self, context: SimServicerContext) -> None:
        self._context = context

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        message = await self._context.read()
        if message is aio.EOF:
            raise StopAsyncIteration
        return message


async def _stream(method: Any, request: Any, context: SimServicerContext) -> None:
    if inspect.iscoroutinefunction(method):
        await method(request, context)
        return
    async for message in method(request, context):
        context.raise_for_abort()
        await context.write(message)


def _same(payload: Any) -> Any:
    return payload
