"""The part of asyncio's loop that reaches into the real world: refused, loudly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

from sexton_sim.errors import SimulationError


def refuse(name: str) -> Callable[..., NoReturn]:
    """Makes a method that refuses to be called."""

    def refused(*_args: object, **_kwargs: object) -> NoReturn:
        raise SimulationError(
            f"loop.{name}() needs the real world (threads, sockets, signals); simulated code "
            "uses the Clock, Randomness, Transport and Disk that it is given"
        )

    refused.__name__ = name
    return refused


class RefusingLoop(asyncio.AbstractEventLoop):
    """A loop without threads, sockets, child processes and signals."""


for _name in (
    "run_in_executor",
    "set_default_executor",
    "getaddrinfo",
    "getnameinfo",
    "create_connection",
    "create_server",
    "start_tls",
    "sendfile",
    "create_unix_connection",
    "create_unix_server",
    "connect_accepted_socket",
    "create_datagram_endpoint",
    "connect_read_pipe",
    "connect_write_pipe",
    "subprocess_shell",
    "subprocess_exec",
    "add_reader",
    "remove_reader",
    "add_writer",
    "remove_writer",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_recvfrom_into",
    "sock_sendall",
    "sock_sendto",
    "sock_connect",
    "sock_accept",
    "sock_sendfile",
    "add_signal_handler",
    "remove_signal_handler",
):
    setattr(RefusingLoop, _name, refuse(_name))
