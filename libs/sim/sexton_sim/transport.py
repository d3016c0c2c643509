"""The in-memory `Transport`: the twin of gRPC on which the generated stubs run unchanged."""

from __future__ import annotations

from collections.abc import Sequence

from grpc import aio

from sexton_sim._channel import SimChannel
from sexton_sim._server import SimServer
from sexton_sim._subchannel import ChannelSettings
from sexton_sim.network import Network

__all__ = ["ChannelSettings", "SimTransport"]


class SimTransport:
    """Makes channels and servers on a network; each belongs to the process that makes it."""

    def __init__(self, network: Network, settings: ChannelSettings | None = None) -> None:
        self._network = network
        self._settings = settings or ChannelSettings()

    def channel(self, target: str) -> aio.Channel:
        """Opens a channel to `host:port`, or several separated by commas; sends nothing."""
        return SimChannel(self._network, target, self._settings)

    def server(self, interceptors: Sequence[aio.ServerInterceptor] = ()) -> aio.Server:
        """Makes a server that does not listen yet."""
        return SimServer(self._network, interceptors, self._settings)

    def bind(self, server: aio.Server, address: str) -> int:
        """Binds the server to `host:port` (port 0: any) and gives the port.

        Raises `OSError` where a living process has the address.
        """
        assert isinstance(server, SimServer), "a server of this transport"
        return self._network.bind(address, server)
