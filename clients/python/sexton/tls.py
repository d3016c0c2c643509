"""TLS by files: which authorities are trusted, and what one shows of oneself.

The files are looked at again while they are used: what has been replaced, by a tool that renews
certificates, counts from the next connection on. Replace each by renaming.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from sexton._watched_files import WatchedFiles
from sexton.errors import InvalidArgument

if TYPE_CHECKING:
    import grpc

Channel = TypeVar("Channel")
Options: TypeAlias = tuple[tuple[str, Any], ...]

PREFIX: Final = "SEXTON_TLS_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How to speak to a mesh that speaks TLS. All files are PEM.

    >>> Tls(ca="mesh-ca.pem", server_name="sexton.example")
    Tls(ca='mesh-ca.pem', cert=None, key=None, server_name='sexton.example')
    """

    ca: str | os.PathLike[str]
    """The authorities of which one must have signed the other side's certificate."""
    cert: str | os.PathLike[str] | None = None
    """One's own certificate, with its chain: where the mesh asks for one (mTLS)."""
    key: str | os.PathLike[str] | None = None
    """Its private key, not encrypted."""
    server_name: str = ""
    """The name that the mesh's certificates hold, where that is not the address that is called."""

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Tls | None:
        """Gives what `SEXTON_TLS_CA`, `_CERT`, `_KEY` and `_SERVER_NAME` say; None: no TLS.

        Raises:
            InvalidArgument: the others are set without `SEXTON_TLS_CA`.
        """
        given = {
            name: environment.get(PREFIX + name.upper(), "")
            for name in ("ca", "cert", "key", "server_name")
        }
        if not any(given.values()):
            return None
        if not given["ca"]:
            raise InvalidArgument(
                f"{PREFIX}CA", "", "the file of the authorities that the mesh's certificates are of"
            )
        return cls(
            ca=given["ca"],
            cert=given["cert"] or None,
            key=given["key"] or None,
            server_name=given["server_name"],
        )


class Material(NamedTuple):
    """What the files hold."""

    ca: bytes
    key: bytes | None
    chain: bytes | None


class TlsFiles:
    """The files of a `Tls`, read again when they have changed. Safe to use from any thread."""

    def __init__(self, tls: Tls) -> None:
        """Raises `InvalidArgument` where a file can't be read or used."""
        if (tls.cert is None) != (tls.key is None):
            raise InvalidArgument("tls", "one of cert and key", "both, or neither")
        self.server_name = tls.server_name
        self._paths = tuple(Path(path) for path in (tls.ca, tls.key, tls.cert) if path is not None)
        self._files = WatchedFiles(
            "TLS files", self._paths, self._read, refusals=(InvalidArgument,)
        )

    @property
    def material(self) -> Material:
        """Gives what the files hold: the same object until they have changed.

        What has been replaced by something that can't be used is not taken, and said in the log.
        """
        return self._files.held

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Gives what a channel is opened with now."""
        import grpc  # noqa: PLC0415 - heavy

        now = self.material
        return grpc.ssl_channel_credentials(now.ca, now.key, now.chain)

    def channel_options(self) -> Options:
        """Gives the channel arguments that belong to it."""
        name = self.server_name
        return (("grpc.ssl_target_name_override", name),) if name else ()

    def _read(self) -> Material:
        ca, *own = self._paths
        try:
            ca_pem, *own_pem = [path.read_bytes() for path in self._paths]
        except OSError as error:
            file, why = str(error.filename), error.strerror
            raise InvalidArgument("tls", file, f"a file that can be read ({why})") from None
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=ca_pem.decode())
        except (ssl.SSLError, ValueError) as error:
            raise InvalidArgument("tls.ca", str(ca), f"certificates in PEM ({error})") from None
        if not own:
            return Material(ca_pem, None, None)
        key, cert = own
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_cert_chain(cert, key, password=lambda: "")
        except (ssl.SSLError, ValueError, OSError) as error:
            expected = f"a certificate in PEM and the key in {key} that belongs to it ({error})"
            raise InvalidArgument("tls.cert", str(cert), expected) from None
        return Material(ca_pem, *own_pem)


class Channels(Generic[Channel]):
    """One channel for each address, opened anew where TLS files have changed.

    A channel that is replaced is only let go: calls that it carries go on, and with the last of
    them its connection ends.
    """

    def __init__(
        self, open_channel: Callable[[str, TlsFiles | None], Channel], tls: TlsFiles | None = None
    ) -> None:
        self._open = open_channel
        self._tls = tls
        self._channels: dict[str, tuple[Material | None, Channel]] = {}

    def get(self, address: str) -> Channel:
        """Gives the channel to an address."""
        now = self._tls.material if self._tls is not None else None
        known = self._channels.get(address)
        if known is None or known[0] is not now:
            # Of two threads that come here at once one's channel is dropped unused.
            known = self._channels[address] = now, self._open(address, self._tls)
        return known[1]

    def take_all(self) -> list[Channel]:
        """Gives all channels, to be closed, and forgets them."""
        channels, self._channels = self._channels, {}
        return [channel for _, channel in channels.values()]
