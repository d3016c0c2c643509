"""An in-memory channel in the shape of `grpc.aio.Channel`: which connection takes a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from types import TracebackType
from typing import Any, Self

import grpc
from grpc import ChannelConnectivity as Connectivity
from grpc import aio

from sexton_sim._client_call import ClientCall
from sexton_sim._client_kinds import (
    StreamRequest,
    StreamStreamCall,
    StreamUnaryCall,
    UnaryStreamCall,
    UnaryUnaryCall,
)
from sexton_sim._connection import Connection, Exchange
from sexton_sim._subchannel import ChannelSettings, Subchannel
from sexton_sim._wire import Status
from sexton_sim.network import Endpoint, Network


class SimChannel(aio.Channel):
    """A channel over the in-memory network; made by `SimTransport`."""

    def __init__(self, network: Network, target: str, settings: ChannelSettings) -> None:
        addresses = target.removeprefix("ipv4:").removeprefix("dns:///").split(",")
        self.network = network
        self.settings = settings
        self.endpoint = Endpoint.of_caller()
        self.closed = False
        self._subchannels = [Subchannel(self, address.strip()) for address in addresses]
        self._next = 0
        self._waiting: dict[ClientCall, bool] = {}
        self._calls: dict[ClientCall, Connection | None] = {}
        self._watchers: list[asyncio.Future[None]] = []
        if self.endpoint.process is not None:
            self.endpoint.process.on_death(self._die)

    # Calls

    def start_call(self, call: ClientCall, *, wait_for_ready: bool) -> None:
        """Sends a call over a connection, or lets it wait for one."""
        if self.closed:
            raise aio.UsageError("Channel is closed.")
        self._calls[call] = None
        if call.head.timeout_s is not None and call.head.timeout_s <= 0:
            return
        self._waiting[call] = wait_for_ready
        self._place()

    def place_again(self, call: ClientCall) -> None:
        """Sends a call over another connection: the server's GOAWAY says it was not begun."""
        if not self.closed and call in self._calls:
            self._waiting[call] = True
            self.endpoint.soon(self._place)

    def forget(self, call: ClientCall) -> None:
        """Drops a call that has ended."""
        self._calls.pop(call, None)
        self._waiting.pop(call, None)

    def on_state(self) -> None:
        """Looks again after a subchannel's change: for calls and for watchers."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)
        if self._waiting:
            self.endpoint.soon(self._place)

    def _place(self) -> None:
        if self.closed or not self._waiting:
            return
        ready = [sub for sub in self._subchannels if sub.connection is not None]
        if ready:
            waiting, self._waiting = self._waiting, {}
            for call in waiting:
                self._next += 1
                connection = ready[self._next % len(ready)].connection
                if connection is None or not connection.client_open:
                    self._waiting[call] = waiting[call]
                    continue
                self._calls[call] = connection
                call.attach(Exchange(connection, call, call.head))
            return
        for sub in self._subchannels:
            sub.connect()
        if any(sub.state is not Connectivity.TRANSIENT_FAILURE for sub in self._subchannels):
            return
        failure = f"failed to connect to all addresses; last error: {self._subchannels[-1].failure}"
        for call in [call for call, patient in self._waiting.items() if not patient]:
            call.on_lost(Status(grpc.StatusCode.UNAVAILABLE, failure))
        if self._waiting:
            for sub in self._subchannels:
                sub.retry_later()

    # Channel

    def get_state(self, try_to_connect: bool = False) -> Connectivity:  # noqa: FBT001
        """Gives the best state of its addresses."""
        if self.closed:
            return Connectivity.SHUTDOWN
        if try_to_connect:
            for sub in self._subchannels:
                sub.connect()
                sub.retry_later()
        states = {sub.state for sub in self._subchannels}
        order = (Connectivity.READY, Connectivity.CONNECTING, Connectivity.IDLE)
        return next((s for s in order if s in states), Connectivity.TRANSIENT_FAILURE)

    async def wait_for_state_change(self, last_observed_state: Connectivity) -> None:
        """Waits until the state is another one."""
        while self.get_state() is last_observed_state:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            await watcher

    async def channel_ready(self) -> None:
        """Waits until it is connected."""
        while (state := self.get_state(try_to_connect=True)) is not Connectivity.READY:
            await self.wait_for_state_change(state)

    async def close(self, grace: float | None = None) -> None:
        """Ends its calls (after `grace` seconds) and its connections; idempotent."""
        if self.closed:
            return
        self.closed = True
        if grace and self._calls:
            ends = [asyncio.ensure_future(call.code()) for call in self._calls]
            await asyncio.wait(ends, timeout=grace)
            for end in ends:
                end.cancel()
        for call in list(self._calls):
            call.cancel()
        self._hang_up("channel closed")
        self.on_state()

    async def __aenter__(self) -> Self:
        """Gives itself."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Closes."""
        await self.close()

    def _die(self) -> None:
        self.closed = True
        self._hang_up("process killed")

    def _hang_up(self, details: str) -> None:
        for connection in list(self.network.connections.values()):
            if connection.client is self.endpoint:
                connection.fail_client(details)

    # Multicallables: what a stub asks for

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,  # noqa: FBT001 - gRPC's signature
    ) -> Any:
        """Makes a one-request, one-response method."""
        return _Method(
            self, method, (request_serializer, response_deserializer), UnaryUnaryCall
        ).call_unary

    def unary_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,  # noqa: FBT001
    ) -> Any:
        """Makes a one-request, many-responses method."""
        return _Method(
            self, method, (request_serializer, response_deserializer), UnaryStreamCall
        ).call_unary

    def stream_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,  # noqa: FBT001
    ) -> Any:
        """Makes a many-requests, one-response method."""
        return _Method(
            self, method, (request_serializer, response_deserializer), StreamUnaryCall
        ).call_stream

    def stream_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,  # noqa: FBT001
    ) -> Any:
        """Makes a method with streams both ways."""
        return _Method(
            self, method, (request_serializer, response_deserializer), StreamStreamCall
        ).call_stream


class _Method:
    def __init__(
        self,
        channel: SimChannel,
        method: str,
        codec: tuple[Callable[[Any], bytes] | None, Callable[[bytes], Any] | None],
        kind: type[ClientCall],
    ) -> None:
        serializer, deserializer = codec
        self._channel = channel
        self._method = method
        self._codec = (serializer or _same, deserializer or _same)
        self._kind = kind

    def call_unary(
        self,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: Iterable[Any] | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> ClientCall:
        """Starts a call with its one request."""
        del compression
        return self._start(
            self._codec[0](request), timeout, metadata, credentials, bool(wait_for_ready)
        )

    def call_stream(  # noqa: PLR0917 - gRPC's signature
        self,
        request_iterator: AsyncIterable[Any] | Iterable[Any] | None = None,
        timeout: float | None = None,
        metadata: Iterable[Any] | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,  # noqa: FBT001 - gRPC's signature
        compression: grpc.Compression | None = None,
    ) -> ClientCall:
        """Starts a call whose requests come from the iterator or from `write()`."""
        del compression
        call = self._start(None, timeout, metadata, credentials, bool(wait_for_ready))
        if request_iterator is not None:
            assert isinstance(call, StreamRequest)
            call.feed(request_iterator)
        return call

    def _start(
        self,
        message: bytes | None,
        timeout: float | None,
        metadata: Iterable[Any] | None,
        credentials: grpc.CallCredentials | None,
        wait_for_ready: bool,  # noqa: FBT001
    ) -> ClientCall:
        if credentials is not None:
            raise aio.UsageError("Call credentials are only valid on secure channels")
        call = self._kind(self._channel, self._method, self._codec, timeout, metadata, message)
        self._channel.start_call(call, wait_for_ready=wait_for_ready)
        return call


def _same(payload: Any) -> Any:
    return payload
