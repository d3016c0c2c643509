"""Where a server may listen: on loopback, or further with secrets."""

from __future__ import annotations

import ipaddress

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


def check_listen(listen: str, field: str, *, secured: bool, insecure: bool) -> None:
    """Allows a server to listen, or raises `ConfigError`."""
    host, _ = parse_address(listen, field)
    if not secured and not insecure and not is_loopback(host):
        raise ConfigError(
            f"{field}: {listen!r} can be reached from other machines, and there are no secrets to "
            f"know callers by; set SEXTON_SECRETS_DIR, or listen on 127.0.0.1, or accept with "
            f"--insecure that everybody may do everything"
        )
