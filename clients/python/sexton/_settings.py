"""Where a client's calls go, and with which secret."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from sexton import local_mesh
from sexton._values import namespace_name
from sexton._watched_files import WatchedFiles
from sexton.errors import InvalidArgument, Unauthenticated
from sexton.tls import Tls

Asked: TypeAlias = Callable[[], str]
"""Gives a secret, as it is when a call is made."""

DEFAULT_ADDRESS: Final = "127.0.0.1:7400"
"""Where `sexton up` serves the API unless told otherwise."""
DEFAULT_TIMEOUT_S: Final = 10.0
DEFAULT_RETRY_FOR_S: Final = 5.0
"""Longer than the two seconds in which another coordinator takes the lead."""

_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_SECRET: Final = re.compile(r"[!-~]{1,1000}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a client calls. Made by `settings`."""

    addresses: tuple[str, ...]
    found_by: str
    """Where the addresses come from, for messages."""
    namespace: str
    timeout_s: float
    retry_for_s: float
    _secret: Asked = field(repr=False)
    _secret_for: tuple[str, ...]
    """The only addresses that are shown the secret; empty: all."""
    tls: Tls | None = None
    """None: the mesh speaks in the clear."""

    def secret_for(self, address: str) -> str:
        """Gives the secret for a call to an address; empty: none."""
        confined = {_with_loopback_as_one(each) for each in self._secret_for}
        return self._secret() if not confined or _with_loopback_as_one(address) in confined else ""


def settings(
    address: str | Sequence[str] | None = None,
    *,
    namespace: str | None = None,
    secret: str | Asked | None = None,
    secret_file: str | os.PathLike[str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    retry_for_s: float = DEFAULT_RETRY_FOR_S,
    tls: Tls | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Finds what is not given: in the environment, then at a mesh of this machine.

    The secret of a mesh of this machine is shown to that mesh's own addresses only.

    Raises:
        InvalidArgument: an address, TLS, the namespace, the secret or a time has a form that can't
            be used.
        Unauthenticated: the secret's file can't be read, or is empty.
    """
    # Written so that NaN, which compares as false, is refused as well.
    if not timeout_s > 0:
        raise InvalidArgument("timeout_s", timeout_s, "more than 0 seconds")
    if not retry_for_s >= 0:
        raise InvalidArgument("retry_for_s", retry_for_s, "0 seconds or more")
    given = os.environ if environment is None else environment
    local = local_mesh.find(given)
    if address is not None:
        addresses, found_by = _addresses(address), "the client"
    elif given.get("SEXTON_API"):
        addresses, found_by = _addresses(given["SEXTON_API"]), "SEXTON_API"
    elif local is not None:
        addresses, found_by = _addresses(local.api), "the mesh of this machine"
    else:
        addresses, found_by = (DEFAULT_ADDRESS,), "the default"
    chosen = namespace if namespace is not None else given.get("SEXTON_NAMESPACE") or "default"
    namespace_name(chosen)
    # What `sexton up` runs speaks in the clear, on loopback.
    of_this_machine = {_with_loopback_as_one(each) for each in (local.api if local else ())}
    in_the_clear = {_with_loopback_as_one(each) for each in addresses} <= of_this_machine
    found, restricted = _secret(secret, secret_file, given, local)
    return Settings(
        addresses=addresses,
        found_by=found_by,
        namespace=chosen,
        timeout_s=timeout_s,
        retry_for_s=retry_for_s,
        _secret=found,
        _secret_for=restricted,
        tls=tls or (None if in_the_clear else Tls.of_environment(given)),
    )


def _addresses(text: str | Sequence[str]) -> tuple[str, ...]:
    parts = text.split(",") if isinstance(text, str) else text
    addresses = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    for address in addresses:
        match = _ADDRESS.fullmatch(address)
        if match is None or not 1 <= int(match[2]) <= 65_535:
            raise InvalidArgument("address", address, "HOST:PORT, such as 127.0.0.1:7400")
    if not addresses:
        raise InvalidArgument("address", text, "HOST:PORT, several separated by commas")
    return addresses


def _with_loopback_as_one(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if host in ("localhost", "[::1]") else address


def _secret(
    secret: str | Asked | None,
    secret_file: str | os.PathLike[str] | None,
    given: Mapping[str, str],
    local: local_mesh.LocalMesh | None,
) -> tuple[Asked, tuple[str, ...]]:
    """Gives the secret, and the addresses to which it is confined."""
    if callable(secret):
        return secret, ()
    if secret is not None:
        return _always(_checked(secret) if secret else ""), ()
    if secret_file is not None:
        return _of_file(Path(secret_file)), ()
    if given.get("SEXTON_CLIENT_SECRET"):
        return _always(_checked(given["SEXTON_CLIENT_SECRET"])), ()
    if given.get("SEXTON_CLIENT_SECRET_FILE"):
        return _of_file(Path(given["SEXTON_CLIENT_SECRET_FILE"])), ()
    if local is not None and local.client_secret_file.exists():
        return _of_file(local.client_secret_file), local.api
    return _always(""), ()


def _always(secret: str) -> Asked:
    return lambda: secret


def _of_file(path: Path) -> Asked:
    """Follows a file: what it holds may change while the client is used."""
    refusals = (Unauthenticated, InvalidArgument)
    file = WatchedFiles("secrets", (path,), lambda: _read(path), refusals=refusals)
    return lambda: file.held


def _read(path: Path) -> str:
    """Gives the first line: those below it are older ones that servers still accept."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise Unauthenticated(
            f"the client secret's file {path} can't be read: {error.strerror}; name another one "
            f"with SEXTON_CLIENT_SECRET_FILE"
        ) from None
    secret = text.strip().partition("\n")[0].strip()
    if not secret:
        raise Unauthenticated(f"the client secret's file {path} is empty")
    return _checked(secret)


def _checked(secret: str) -> str:
    if _SECRET.fullmatch(secret) is None:
        # Its text stays out of the message.
        raise InvalidArgument(
            "secret", f"{len(secret)} characters", "printable ASCII characters without spaces"
        )
    return secret
