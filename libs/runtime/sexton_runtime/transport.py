"""How services reach each other, as a Protocol in the shape of `grpc.aio`.

The generated stubs and servicers work on any `grpc.aio.Channel` and `grpc.aio.Server`. Over the
network these are gRPC's own; under simulation they are in-memory objects of the same shape
(``sexton_sim``). So the same code runs in both, and contract tests over real gRPC
(``tests/conformance/transport``) keep the twins' behaviour the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from grpc import aio


class Transport(Protocol):
    """Makes channels and servers."""

    def channel(self, target: str) -> aio.Channel:
        """Opens a channel to `host:port`, or several separated by commas; sends nothing."""
        ...

    def server(self, interceptors: Sequence[aio.ServerInterceptor] = ()) -> aio.Server:
        """Makes a server that does not listen yet."""
        ...

    def bind(self, server: aio.Server, address: str) -> int:
        """Binds the server to `host:port` (port 0: any) and gives the port.

        Raises `OSError` where the address is taken.
        """
        ...
