"""The transport of real processes: gRPC, with every setting that experience asks for."""

from __future__ import annotations

import errno
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass

from grpc import aio

from sexton.tls import TlsFiles
from sexton_runtime.rpc.renewed_channel import RenewedChannel
from sexton_runtime.rpc.wire import MAX_CARRIED_BYTES, MAX_SERVER_METADATA_BYTES
from sexton_runtime.tls import MeshTls

LEADER = "leader"
"""The health service that only a leading replica reports as SERVING."""

_LEADER_ROUTING = json.dumps(
    {
        "loadBalancingConfig": [{"round_robin": {}}],
        "healthCheckConfig": {"serviceName": LEADER},
    }
)
_Options = Sequence[tuple[str, int | str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcSettings:
    """How soon a silent peer is noticed and how connections are made; milliseconds."""

    keepalive_time_ms: int = 10_000
    keepalive_timeout_ms: int = 5_000
    """Bounds the wait for a ping's answer; gRPC heeds it only down to its own ping time-out,
    60 s unless set, which is therefore set to the same."""
    shortest_ping_interval_ms: int = 5_000
    """A server sends clients away that ping more often (gRPC's own default: 5 minutes)."""
    first_reconnect_ms: int = 100
    shortest_reconnect_ms: int = 1_000
    """Also how long a peer that accepts and never speaks is given."""
    longest_reconnect_ms: int = 2_000
    """gRPC's own back-off would grow to 120 s."""
    shortest_resolve_ms: int = 1_000
    """A name is not looked up more often. gRPC's own 30 s would be waited for after a container was
    made anew with another address."""
    max_concurrent_streams: int = 1_000
    """Calls open at once on one connection; further ones wait at the client."""

    def client_options(self) -> _Options:
        """Gives the channel arguments of a client."""
        return (
            ("grpc.keepalive_time_ms", self.keepalive_time_ms),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.http2.ping_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", self.first_reconnect_ms),
            ("grpc.min_reconnect_backoff_ms", self.shortest_reconnect_ms),
            ("grpc.max_reconnect_backoff_ms", self.longest_reconnect_ms),
            ("grpc.dns_min_time_between_resolutions_ms", self.shortest_resolve_ms),
            # A broken connection does not tell whether the call was executed: whether it may be
            # repeated is known to its caller only.
            ("grpc.enable_retries", 0),
            ("grpc.max_receive_message_length", MAX_CARRIED_BYTES),
            ("grpc.max_send_message_length", MAX_CARRIED_BYTES),
            # A proxy that the machine has for the web does not lead to the mesh.
            ("grpc.enable_http_proxy", 0),
        )

    def server_options(self) -> _Options:
        """Gives the channel arguments of a server."""
        return (
            # On by default: a second server would bind the same port and take half the calls.
            ("grpc.so_reuseport", 0),
            ("grpc.keepalive_time_ms", self.keepalive_time_ms),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.http2.ping_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.http2.min_ping_interval_without_data_ms", self.shortest_ping_interval_ms),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.max_concurrent_streams", self.max_concurrent_streams),
            ("grpc.max_receive_message_length", MAX_CARRIED_BYTES),
            ("grpc.max_send_message_length", MAX_CARRIED_BYTES),
            ("grpc.max_metadata_size", MAX_SERVER_METADATA_BYTES),
            ("grpc.absolute_max_metadata_size", MAX_SERVER_METADATA_BYTES),
        )


class GrpcTransport:
    """Makes gRPC channels and servers. See `sexton_runtime.transport.Transport`.

    The caller keeps a reference to every server that it makes: one that nobody refers to is
    collected, and its clients wait for nothing.
    """

    def __init__(self, settings: GrpcSettings | None = None, *, tls: MeshTls | None = None) -> None:
        """Without `tls` everything goes in the clear."""
        self._settings = settings or GrpcSettings()
        self._tls = tls

    def channel(self, target: str) -> aio.Channel:
        """Opens a channel; with several addresses calls go to the one that leads.

        Raises `ValueError` where several addresses are not all IP addresses with a port.
        """
        addresses = [part.strip() for part in target.split(",")]
        if len(addresses) > 1:
            target = _addresses_target(addresses)
            if self._tls is not None and not self._tls.files.server_name:
                raise ValueError(
                    "one channel to several addresses needs one name for all: set tls.server_name"
                )
        if self._tls is None:
            return self._open(target, None)
        return RenewedChannel(target, self._open, self._tls.files)

    def _open(self, target: str, tls: TlsFiles | None) -> aio.Channel:
        options = list(self._settings.client_options())
        if "," in target:
            options.append(("grpc.service_config", _LEADER_ROUTING))
        if tls is None:
            return aio.insecure_channel(target, options)
        options += tls.channel_options()
        return aio.secure_channel(target, tls.channel_credentials(), options)

    def server(self, interceptors: Sequence[aio.ServerInterceptor] = ()) -> aio.Server:
        """Makes a server that does not listen yet. Keep it."""
        return aio.server(interceptors=interceptors, options=self._settings.server_options())

    def bind(self, server: aio.Server, address: str) -> int:
        """Binds the server to `host:port` (port 0: any); raises `OSError` where it is taken."""
        try:
            if self._tls is not None:
                return server.add_secure_port(address, self._tls.server_credentials())
            return server.add_insecure_port(address)
        except RuntimeError as error:
            message = f"can't listen on {address}: the address is taken or is not this machine's"
            raise OSError(errno.EADDRINUSE, message) from error


def _addresses_target(addresses: Sequence[str]) -> str:
    versions = set()
    for address in addresses:
        host = address.rpartition(":")[0].strip("[]")
        try:
            versions.add(ipaddress.ip_address(host).version)
        except ValueError:
            raise ValueError(
                f"{address!r} can't be one of several addresses: give IP addresses with ports, "
                f"or one DNS name that stands for all replicas"
            ) from None
    if len(versions) != 1:
        raise ValueError(f"{','.join(addresses)!r} mixes IPv4 and IPv6 addresses; use one kind")
    return f"ipv{versions.pop()}:{','.join(addresses)}"
