"""A channel's connection to one address: connecting, keeping it alive, backing off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from grpc import ChannelConnectivity as Connectivity

from sexton_sim._connection import Connection
from sexton_sim.network import Pipe

if TYPE_CHECKING:
    from sexton_sim._channel import SimChannel
    from sexton_sim._server import SimServer


_MOST_GROWTHS = 100
"""So often a back-off grows at most: beyond, a float could not hold it."""


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


class Subchannel:
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
        factor = settings.backoff_factor ** min(self._failures, _MOST_GROWTHS)
        backoff_s = settings.initial_backoff_s * factor
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
