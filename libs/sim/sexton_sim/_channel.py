"""An in-memory channel in the shape of `grpc.aio.Channel`: addresses, connecting, back-off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

import grpc
from grpc import ChannelConnectivity as Connectivity
from grpc import aio

from sexton_sim._client_call import (
    ClientCall,
    StreamRequest,
    StreamStreamCall,
    StreamUnaryCall,
    UnaryStreamCall,
    UnaryUnaryCall,
)
from sexton_sim._connection import Connection, Exchange
from sexton_sim._wire import Status
from sexton_sim.network import Endpoint, Network, Pipe

if TYPE_CHECKING:
    from sexton_sim._server import SimServer


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSettings:
    """What gRPC's channel arguments would set; seconds and bytes."""

    connect_timeout_s: float = 1.0
    """An attempt that is not answered fails (`min_reconnect_backoff_ms`)."""
    initial_backoff_s: float = 0.1
    max_backoff_s: float = 2.0
    backoff_factor: float = 1.6
    keepalive_time_s: float = 10.0
    """A connection that carries calls is pinged so often."""
    keepalive_timeout_s: float = 5.0
    """A ping without an answer for so long ends the connection."""
    max_message_bytes: int = 4 * 1024 * 1024
    """Largest message that is received."""


class _Subchannel:
    """The connection to one address: connecting, keeping it alive, backing off."""

    def __init__(self, channel: SimChannel, address: str) -> None:
        self.state = Connectivity.IDLE
        self.connection: Connection | None = None
        self.failure = ""
        self._channel = channel
        self.address = address
        self._attempt = 0
        self._failures = 0
        self._retry_at = 0.0
        self._retry_armed = False

    def connect(self) -> None:
        """Begins an attempt unless one is under way, it is connected, or it backs off."""
        if self.state in {Connectivity.CONNECTING, Connectivity.READY}:
            return
        if self._channel.endpoint.now() < self._retry_at:
            return
        channel = self._channel
        network = channel.network
        self._attempt += 1
        self._set(Connectivity.CONNECTING)
        attempt = self._attempt
        channel.endpoint.later(
            channel.settings.connect_timeout_s,
            self._failed,
            attempt,
            "connection attempt timed out",
        )
        listener = network.listener(self.address)
        if listener is None:
            if not network.is_dark(self.address):
                network.later(network.profile.latency_s, self._refused, attempt)
            return
        server = cast("SimServer", listener)
        out = network.link(channel.endpoint.name, listener.endpoint.name)
        network.observe("connect", out, self.address)
        network.send(out, Pipe(), self._at_server, (attempt, server), lambda: False)

    def retry_later(self) -> None:
        """Tries again when the back-off is over: somebody waits for it."""
        if self.state is Connectivity.TRANSIENT_FAILURE and not self._retry_armed:
            self._retry_armed = True
            delay_s = self._retry_at - self._channel.endpoint.now()
            self._channel.endpoint.later(max(0.0, delay_s), self._retry)

    def _retry(self) -> None:
        self._retry_armed = False
        self._retry_at = 0.0
        self.connect()

    def _at_server(self, attempt: int, server: SimServer) -> None:
        if not server.endpoint.alive or not server.listening:
            self._channel.endpoint.soon(self._refused, attempt)
        else:
            # gRPC waits for the server's first frame: a suspended one does not send it.
            server.endpoint.soon(self._accept, attempt, server)

    def _accept(self, attempt: int, server: SimServer) -> None:
        network, name = self._channel.network, self._channel.endpoint.name
        back = network.link(server.endpoint.name, name)
        network.send(back, Pipe(), self._accepted, (attempt, server), lambda: False)

    def _accepted(self, attempt: int, server: SimServer) -> None:
        if attempt != self._attempt or self.state is not Connectivity.CONNECTING:
            return
        if not self._channel.endpoint.alive or self._channel.closed:
            return
        if not server.endpoint.alive or not server.listening:
            self._refused(attempt)
            return
        channel = self._channel
        connection = Connection(channel.network, channel.endpoint, server, self)
        server.accept(connection)
        self.connection = connection
        self._failures = 0
        self._retry_at = 0.0
        self._set(Connectivity.READY)
        self._watch(connection)

    def _refused(self, attempt: int) -> None:
        self._failed(attempt, f"failed to connect to {self.address}: connection refused")

    def _failed(self, attempt: int, failure: str) -> None:
        if attempt != self._attempt or self.state is not Connectivity.CONNECTING:
            return
        settings = self._channel.settings
        backoff_s = settings.initial_backoff_s * settings.backoff_factor**self._failures
        backoff_s = min(backoff_s, settings.max_backoff_s)
        backoff_s *= self._channel.network.random.uniform(0.8, 1.2)
        self._failures += 1
        self._retry_at = self._channel.endpoint.now() + backoff_s
        self.failure = failure
        self._set(Connectivity.TRANSIENT_FAILURE)

    def on_lost(self) -> None:
        """Learns that the connection is gone: the next call connects again."""
        self.connection = None
        if not self._channel.closed:
            self._set(Connectivity.IDLE)

    def on_goaway(self) -> None:
        """Learns that the server stops: new calls need another connection."""
        self.connection = None
        if self.state is Connectivity.READY:
            self._set(Connectivity.IDLE)

    def _watch(self, connection: Connection) -> None:
        settings = self._channel.settings
        if connection.exchanges:
            connection.ping()
        if connection.client_open:
            if connection.exchanges and connection.silent():
                self._channel.endpoint.later(settings.keepalive_timeout_s, self._ping, connection)
            else:
                self._channel.endpoint.later(settings.keepalive_time_s, self._watch, connection)

    def _ping(self, connection: Connection) -> None:
        if connection.client_open and connection.silent():
            connection.fail_client("ping timeout")
        else:
            self._watch(connection)

    def _set(self, state: Connectivity) -> None:
        self.state = state
        self._channel.on_state()


class SimChannel(aio.Channel):
    """A channel over the in-memory network; made by `SimTransport`."""

    def __init__(self, network: Network, target: str, settings: ChannelSettings) -> None:
        addresses = target.removeprefix("ipv4:").removeprefix("dns:///").split(",")
        self.network = network
        self.settings = settings
        self.endpoint = Endpoint.of_caller()
        self.closed = False
        self._subchannels = [_Subchannel(self, address.strip()) for address in addresses]
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
