"""Connections between a channel and a server, and the calls that share one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import grpc

from sexton_sim._wire import Head, Metadatum, Status
from sexton_sim.network import Endpoint, Link, Network, Pipe

if TYPE_CHECKING:
    from sexton_sim._server import SimServer


class Owner(Protocol):
    """Who made a connection."""

    @property
    def address(self) -> str:
        """Gives the address to which it was made."""
        ...

    def on_lost(self) -> None:
        """Learns that the connection is gone."""
        ...

    def on_goaway(self) -> None:
        """Learns that no new calls are taken on it."""
        ...


class ClientEnd(Protocol):
    """A call as its caller has it."""

    def on_headers(self, metadata: tuple[Metadatum, ...]) -> None:
        """Takes the initial metadata."""
        ...

    def on_message(self, payload: bytes) -> None:
        """Takes a response."""
        ...

    def on_status(self, status: Status) -> None:
        """Takes the end, once all responses have been read."""
        ...

    def on_lost(self, status: Status) -> None:
        """Takes the end at once: what has not been read is gone."""
        ...

    def on_window(self, size: int) -> None:
        """Learns that the server has read so many bytes."""
        ...

    def on_unprocessed(self) -> None:
        """Learns that the server stops and has not begun it: it may go elsewhere."""
        ...


class ServerEnd(Protocol):
    """A call as its handler has it."""

    def on_message(self, payload: bytes) -> None:
        """Takes a request of a stream."""
        ...

    def on_half_close(self) -> None:
        """Learns that no more requests come."""
        ...

    def on_cancel(self) -> None:
        """Learns that the caller is gone."""
        ...

    def on_window(self, size: int) -> None:
        """Learns that the client has read so many bytes."""
        ...


class Connection:
    """One TCP connection. Its ends learn of its death separately."""

    def __init__(self, network: Network, client: Endpoint, server: SimServer, owner: Owner) -> None:
        self.network = network
        self.client = client
        self.server = server
        self.address = owner.address
        self.server_name = server.endpoint.name
        self.out = network.link(client.name, self.server_name)
        self.back = network.link(self.server_name, client.name)
        self.client_open = True
        self.server_open = True
        self.going_away = False
        self.vanished = False
        """Half open: it carries nothing any more, and neither end has been told."""
        self.exchanges: dict[int, Exchange] = {}
        self._owner = owner
        self._number = network.number()
        self._out_pipe = Pipe()
        self._back_pipe = Pipe()
        network.connections[self._number] = self

    def silent(self) -> bool:
        """Tells whether a ping sent now would stay unanswered."""
        if self.vanished or self.out.cut or self.back.cut:
            return True
        if self.server_open:
            return not self.server.endpoint.responsive
        return self.network.is_dark(self.address)

    def client_silent(self) -> bool:
        """Tells whether a ping of the server's would stay unanswered."""
        if self.vanished or self.out.cut or self.back.cut:
            return True
        if self.client_open:
            return not self.client.responsive
        return self.network.is_off(self.client.name)

    def ping_client(self) -> None:
        """Asks the client for a sign of life, as `ping` does the server."""
        if not self.client_open and not self.client_silent():
            self.fail_server()

    def ping(self) -> None:
        """Asks for a sign of life: a machine that has forgotten the connection resets it."""
        if not self.server_open and not self.silent():
            self.fail_client("connection reset by peer")

    def fail_client(self, details: str) -> None:
        """The client's end breaks: its calls end as UNAVAILABLE, the server is told."""
        if not self.client_open:
            return
        self.client_open = False
        self.network.observe("lost", self.out, details)
        lost = Status(grpc.StatusCode.UNAVAILABLE, details)
        for exchange in list(self.exchanges.values()):
            if exchange.client is not None:
                if self.going_away and exchange.server is None:
                    exchange.client.on_unprocessed()
                else:
                    exchange.client.on_lost(lost)
        self._owner.on_lost()
        self._control(self.out, self._out_pipe, self.fail_server)
        self._forget()

    def fail_server(self) -> None:
        """The server's end breaks: its handlers are cancelled, the client is told."""
        if not self.server_open:
            return
        self.server_open = False
        for exchange in list(self.exchanges.values()):
            if exchange.server is not None:
                exchange.server.on_cancel()
        self._control(self.back, self._back_pipe, self.fail_client, "connection reset by peer")
        self._forget()

    def go_away(self) -> None:
        """The server stops: calls under way go on, new ones go elsewhere."""
        self.going_away = True
        self._control(self.back, self._back_pipe, self._owner.on_goaway)

    def power_off_server(self) -> None:
        """The server's machine is gone without a word: the client finds out by itself."""
        self.server_open = False

    def power_off_client(self) -> None:
        """The client's machine is gone without a word: the server finds out by itself."""
        self.client_open = False

    def refuse(self) -> None:
        """Answers a frame for a connection that the server's machine does not know, if it is up."""
        if not self.network.is_dark(self.address):
            self._control(self.back, self._back_pipe, self.fail_client, "connection reset by peer")

    def refuse_reply(self) -> None:
        """Answers a frame for a connection that the client's machine does not know, if it is up."""
        if not self.network.is_off(self.client.name):
            self._control(self.out, self._out_pipe, self.fail_server)

    def done(self, exchange: Exchange) -> None:
        """Forgets a call that both ends have finished."""
        self.exchanges.pop(exchange.number, None)

    def _control(self, link: Link, pipe: Pipe, action: Callable[..., None], *args: object) -> None:
        if not self.vanished:
            self.network.send(link, pipe, action, args, lambda: False)

    def _forget(self) -> None:
        if not self.client_open and not self.server_open:
            self.network.connections.pop(self._number, None)


class Exchange:
    """One call on a connection (or a ghost of one, which has neither connection nor client)."""

    __slots__ = (
        "_back_pipe",
        "_connection",
        "_head",
        "_out_pipe",
        "client",
        "number",
        "server",
    )

    def __init__(self, connection: Connection | None, client: ClientEnd | None, head: Head) -> None:
        self._connection = connection
        self._head = head
        self.client = client
        self.server: ServerEnd | None = None
        self._out_pipe = Pipe()
        self._back_pipe = Pipe()
        self.number = 0
        if connection is not None:
            self.number = connection.network.number()
            connection.exchanges[self.number] = self

    @property
    def peer(self) -> str:
        """Names the caller."""
        return "sim:ghost" if self._connection is None else f"sim:{self._connection.client.name}"

    def open(self) -> None:
        """Sends the call's head; a unary request may come again as a ghost."""
        connection = self._connection
        if connection is None:
            return
        message = self._head.message
        ghost = None if message is None else self._haunt
        self._send_out("open", message or b"", ghost)

    def send_message(self, payload: bytes) -> None:
        """Sends a request of a stream."""
        self._send_out("message", payload, None, payload)

    def refuse(self) -> None:
        """Says that the call has not been begun and may go elsewhere."""
        self._send_back("refused", b"")

    def half_close(self) -> None:
        """Says that no more requests come."""
        self._send_out("half_close", b"", None)

    def reset(self) -> None:
        """Says that the caller is gone."""
        self._send_out("reset", b"", None)
        if self._connection is not None:
            self.client = None

    def reply_headers(self, metadata: tuple[Metadatum, ...]) -> None:
        """Sends the initial metadata."""
        self._send_back("headers", b"", metadata)

    def reply_message(self, payload: bytes) -> None:
        """Sends a response."""
        self._send_back("message", payload, payload)

    def reply_status(self, status: Status) -> None:
        """Ends the call."""
        self._send_back(status.code.name, b"", status)

    def reply_unary(self, payload: bytes, status: Status) -> None:
        """Sends the one response and ends the call."""
        self._send_back("reply", payload, payload, status)

    def read_by_server(self, size: int) -> None:
        """Opens the client's window again (outside of simulated time: it decides nothing)."""
        if self.client is not None:
            self.client.on_window(size)

    def read_by_client(self, size: int) -> None:
        """Opens the server's window again."""
        if self.server is not None:
            self.server.on_window(size)

    def _send_out(
        self, what: str, payload: bytes, ghost: Callable[[], None] | None, *args: Any
    ) -> None:
        connection = self._connection
        if connection is None or not connection.client_open or not connection.client.alive:
            return
        network = connection.network
        network.observe(what, connection.out, self._head.method, payload)
        if not connection.vanished:
            network.send(
                connection.out,
                self._out_pipe,
                self._at_server,
                (what, args),
                self._given_up,
                ghost,
                lambda: connection.server_open,
            )

    def _haunt(self) -> None:
        """Delivers the request to whoever has the address now; its reply goes nowhere."""
        if self._connection is not None:
            listener = self._connection.network.listener(self._connection.address)
            if listener is not None:
                listener.open(Exchange(None, None, self._head))

    def _given_up(self) -> bool:
        return self._connection is None or not self._connection.client_open

    def _at_server(self, what: str, args: tuple[Any, ...]) -> None:
        connection = self._connection
        if connection is None:
            return
        if not connection.server_open:
            if connection.client_open and what != "reset":
                connection.refuse()
            return
        if connection.vanished:
            return
        if self._breaks(connection, connection.out):
            connection.fail_server()
            return
        if what == "open":
            connection.server.open(self)
        elif self.server is not None:
            if what == "message":
                self.server.on_message(*args)
            elif what == "half_close":
                self.server.on_half_close()
            else:
                self.server.on_cancel()
                connection.done(self)

    def _send_back(self, what: str, payload: bytes, *args: Any) -> None:
        connection = self._connection
        if connection is None or not connection.server_open:
            return
        if not connection.server.endpoint.alive:
            return
        network = connection.network
        network.observe(what, connection.back, self._head.method, payload)
        if not connection.vanished:
            network.send(
                connection.back,
                self._back_pipe,
                self._at_client,
                (what, args),
                lambda: not connection.server_open,
                None,
                lambda: connection.client_open,
            )

    def _at_client(self, what: str, args: tuple[Any, ...]) -> None:
        connection, client = self._connection, self.client
        if connection is None:
            return
        if not connection.client_open:
            if connection.server_open:
                connection.refuse_reply()
            return
        if what not in {"headers", "message"}:
            connection.done(self)
        if client is None or not connection.client.alive or connection.vanished:
            return
        if self._breaks(connection, connection.back, what):
            client.on_lost(Status(grpc.StatusCode.UNAVAILABLE, "connection reset by peer"))
            connection.fail_client("connection reset by peer")
        elif what == "refused":
            client.on_unprocessed()
        elif what == "headers":
            client.on_headers(*args)
        elif what == "message":
            client.on_message(*args)
        elif what == "reply":
            client.on_message(args[0])
            client.on_status(args[1])
        else:
            client.on_status(*args)

    def _breaks(self, connection: Connection, link: Link, reply: str = "") -> bool:
        if link.breaks is not None and reply:
            strike, link.breaks = link.breaks, None
            strike()
            return True
        reset_p = link.profile.reset_p
        if reset_p == 0.0 or reset_p <= connection.network.random.random():
            return False
        connection.network.injected["reset"] += 1
        return True

    @property
    def head(self) -> Head:
        """What opened the call."""
        return self._head
