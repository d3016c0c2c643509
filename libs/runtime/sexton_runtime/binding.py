"""Where a server may listen: on loopback, or further with secrets; and how it is then reached."""

from __future__ import annotations

import ipaddress
import socket

from sexton_runtime.config import ConfigError


def parse_address(text: str, field: str) -> tuple[str, int]:
    """Splits `host:port` or `[ipv6]:port`; raises `ConfigError` naming the field."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(
            f"{field}: {text!r} is no address; give host:port with a port from 0 (any) to 65535, "
            f"as in 127.0.0.1:7600"
        )
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Tells whether an address is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def advertised(listening: str, advertise: str) -> str:
    """Gives `host:port` at which others reach a server that listens at an address.

    That is `advertise` where it is given, and this machine's name where the server listens at all
    of its addresses: of a container's network every member resolves it, and it stays right when the
    container gets another address.
    """
    if advertise:
        return advertise
    host, port = parse_address(listening, "listen")
    try:
        everywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        everywhere = False
    return f"{socket.gethostname()}:{port}" if everywhere else listening


def check_listen(listen: str, field: str, *, secured: bool, insecure: bool) -> None:
    """Allows a server to listen, or raises `ConfigError`."""
    host, _ = parse_address(listen, field)
    if not secured and not insecure and not is_loopback(host):
        raise ConfigError(
            f"{field}: {listen!r} can be reached from other machines, and there are no secrets to "
            f"know callers by; set SEXTON_SECRETS_DIR, or listen on 127.0.0.1, or accept with "
            f"--insecure that everybody may do everything"
        )
