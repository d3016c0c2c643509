"""A call as its caller has it, in the shape of `grpc.aio`'s four kinds of call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio

from sexton_sim._wire import (
    WINDOW_BYTES,
    Head,
    Metadatum,
    Status,
    metadata_of,
    too_large,
)
from sexton_sim.process import current_process

if TYPE_CHECKING:
    from sexton_sim._channel import SimChannel
    from sexton_sim._connection import Exchange

_CANCELLED = Status(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
_TIMED_OUT = Status(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")


class ClientCall(aio.Call):
    """What all four kinds share: opening, ending, cancelling, metadata."""

    def __init__(  # noqa: PLR0917 - as grpc.aio's own
        self,
        channel: SimChannel,
        method: str,
        codec: tuple[Callable[[Any], bytes], Callable[[bytes], Any]],
        timeout_s: float | None,
        metadata: Iterable[Any] | None,
        message: bytes | None,
    ) -> None:
        self._channel = channel
        self._serialize, self._deserialize = codec
        self._exchange: Exchange | None = None
        self._status: Status | None = None
        self._pending_status: Status | None = None
        self._initial: tuple[Metadatum, ...] = ()
        self._inbox: deque[bytes] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._callbacks: list[Callable[[Any], None]] = []
        self._locally_cancelled = False
        self._half_closed = message is not None
        self._window = WINDOW_BYTES
        self._refusal: aio.InternalError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        self._loop = asyncio.get_running_loop()
        try:
            entries = metadata_of(metadata)
        except aio.InternalError as error:
            self._refusal = error
            entries = ()
        self.head = Head(method, entries, timeout_s, message)
        if timeout_s is not None:
            self._deadline = self._loop.time() + timeout_s
            self._timer = channel.endpoint.later(max(0.0, timeout_s), self._on_deadline)

    # What the connection tells

    def attach(self, exchange: Exchange) -> None:
        """Sends the call, now that there is a connection."""
        self._exchange = exchange
        exchange.open()
        if self.head.message is None and self._half_closed:
            exchange.half_close()
        self._wake()

    def on_headers(self, metadata: tuple[Metadatum, ...]) -> None:
        """Takes the initial metadata."""
        self._initial = metadata
        self._wake()

    def on_message(self, payload: bytes) -> None:
        """Takes a response; one above the limit ends the call."""
        if self._status is not None or self._pending_status is not None:
            return
        refused = too_large("CLIENT", len(payload), self._channel.settings.max_message_bytes)
        if refused is not None:
            exchange = self._exchange
            self.on_status(refused)
            if exchange is not None:
                exchange.reset()
            return
        self._inbox.append(payload)
        self._wake()

    def on_status(self, status: Status) -> None:
        """Takes the end, which shows once all responses have been read."""
        if self._status is None and self._pending_status is None:
            self._pending_status = status
            self._settle()

    def on_lost(self, status: Status) -> None:
        """Takes the end at once."""
        self._finish(status)

    def on_window(self, size: int) -> None:
        """Learns that the server has read so many bytes."""
        self._window += size
        self._wake()

    def on_unprocessed(self) -> None:
        """Goes elsewhere: the server that had it stops and has not begun it."""
        if self._status is None and self.head.message is not None:
            self._exchange = None
            self._channel.place_again(self)
        else:
            self._finish(Status(grpc.StatusCode.UNAVAILABLE, "the server is stopping"))

    # RpcContext

    def cancelled(self) -> bool:
        """Tells whether the call ended as CANCELLED."""
        return self._status is not None and self._status.code is grpc.StatusCode.CANCELLED

    def done(self) -> bool:
        """Tells whether the call has ended."""
        return self._status is not None

    def time_remaining(self) -> float | None:
        """Gives the seconds until the deadline."""
        return None if self._deadline is None else max(0.0, self._deadline - self._loop.time())

    def cancel(self) -> bool:
        """Ends the call here and tells the server; False if it had ended."""
        if self._status is not None:
            return False
        self._locally_cancelled = True
        self._reset_with(_CANCELLED)
        return True

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Calls back with this call when it has ended."""
        if self._status is not None:
            self._channel.endpoint.soon(callback, self)
        else:
            self._callbacks.append(callback)

    # Call

    async def initial_metadata(self) -> aio.Metadata:
        """Waits for the server's initial metadata."""
        while not self._initial and self._status is None and not self._inbox:
            await self._wait()
        return aio.Metadata(*self._initial)

    async def trailing_metadata(self) -> aio.Metadata:
        """Waits for the end and gives its metadata."""
        return aio.Metadata(*(await self._ended()).trailing)

    async def code(self) -> grpc.StatusCode:
        """Waits for the end and gives its code."""
        return (await self._ended()).code

    async def details(self) -> str:
        """Waits for the end and gives its details."""
        return (await self._ended()).details

    async def debug_error_string(self) -> str:
        """Waits for the end and describes it."""
        return repr(await self._ended())

    async def wait_for_connection(self) -> None:
        """Waits until the call has been sent."""
        while self._exchange is None and self._status is None:
            await self._wait()
        self._raise_for_status()

    # Shared by the kinds

    async def _ended(self) -> Status:
        while self._status is None:
            await self._wait()
        return self._status

    async def _wait(self) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(future)
        await future

    async def _receive(self) -> bytes | None:
        """Gives the next response; None at the end."""
        while not self._inbox and self._status is None:
            try:
                await self._wait()
            except asyncio.CancelledError:
                self.cancel()
                raise
        if not self._inbox:
            return None
        payload = self._inbox.popleft()
        if self._exchange is not None:
            self._exchange.read_by_client(len(payload))
        self._settle()
        return payload

    def _raise_for_status(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        if self._locally_cancelled:
            raise asyncio.CancelledError
        status = self._status
        if status is not None and status.code is not grpc.StatusCode.OK:
            raise aio.AioRpcError(
                status.code,
                aio.Metadata(*self._initial),
                aio.Metadata(*status.trailing),
                details=status.details,
                debug_error_string=f"{self.head.method}: {status.details}",
            )

    def _settle(self) -> None:
        if self._pending_status is not None and not self._inbox:
            self._finish(self._pending_status, keep_inbox=True)

    def _reset_with(self, status: Status) -> None:
        exchange = self._exchange
        self._finish(status)
        if exchange is not None:
            exchange.reset()

    def _on_deadline(self) -> None:
        if self._status is None:
            self._reset_with(_TIMED_OUT)

    def _finish(self, status: Status, *, keep_inbox: bool = False) -> None:
        if self._status is not None:
            return
        self._status = status
        if not keep_inbox:
            self._inbox.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._channel.forget(self)
        self._wake()
        callbacks, self._callbacks = self._callbacks, []
        here = self._channel.endpoint.process is current_process()
        for callback in callbacks:
            if here:
                callback(self)
            else:
                self._channel.endpoint.soon(callback, self)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
