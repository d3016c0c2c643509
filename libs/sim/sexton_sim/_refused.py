"""The part of asyncio's loop that reaches into the real world: refused, loudly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

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

    run_in_executor: Any = refuse("run_in_executor")
    set_default_executor: Any = refuse("set_default_executor")
    getaddrinfo: Any = refuse("getaddrinfo")
    getnameinfo: Any = refuse("getnameinfo")
    create_connection: Any = refuse("create_connection")
    create_server: Any = refuse("create_server")
    start_tls: Any = refuse("start_tls")
    sendfile: Any = refuse("sendfile")
    create_unix_connection: Any = refuse("create_unix_connection")
    create_unix_server: Any = refuse("create_unix_server")
    connect_accepted_socket: Any = refuse("connect_accepted_socket")
    create_datagram_endpoint: Any = refuse("create_datagram_endpoint")
    connect_read_pipe: Any = refuse("connect_read_pipe")
    connect_write_pipe: Any = refuse("connect_write_pipe")
    subprocess_shell: Any = refuse("subprocess_shell")
    subprocess_exec: Any = refuse("subprocess_exec")
    add_reader: Any = refuse("add_reader")
    remove_reader: Any = refuse("remove_reader")
    add_writer: Any = refuse("add_writer")
    remove_writer: Any = refuse("remove_writer")
    sock_recv: Any = refuse("sock_recv")
    sock_recv_into: Any = refuse("sock_recv_into")
    sock_recvfrom: Any = refuse("sock_recvfrom")
    sock_recvfrom_into: Any = refuse("sock_recvfrom_into")
    sock_sendall: Any = refuse("sock_sendall")
    sock_sendto: Any = refuse("sock_sendto")
    sock_connect: Any = refuse("sock_connect")
    sock_accept: Any = refuse("sock_accept")
    sock_sendfile: Any = refuse("sock_sendfile")
    add_signal_handler: Any = refuse("add_signal_handler")
    remove_signal_handler: Any = refuse("remove_signal_handler")
