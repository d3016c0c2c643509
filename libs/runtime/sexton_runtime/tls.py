"""TLS between the members of a mesh, and towards its clients: by files, renewed while they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import grpc
from pydantic import Field

from sexton.errors import InvalidArgument
from sexton.tls import Material, Tls, TlsFiles
from sexton_runtime.config import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The section `tls`: the same for every process of a mesh, but for its own certificate."""

    ca: Annotated[
        Path | None,
        Field(description="authorities of the mesh's certificates, PEM; not set: no TLS"),
    ] = None
    cert: Annotated[Path | None, Field(description="this process's certificate with its chain")] = (
        None
    )
    key: Annotated[Path | None, Field(description="the certificate's private key")] = None
    server_name: Annotated[
        str,
        Field(description="name in the mesh's certificates, where it is not the address called"),
    ] = ""
    require_client_cert: Annotated[
        bool, Field(description="callers have to show a certificate of the same authorities")
    ] = False


class MeshTls:
    """What channels and servers of this process are made with."""

    def __init__(self, files: TlsFiles, *, require_client_cert: bool = False) -> None:
        self.files = files
        self._require_client_cert = require_client_cert
        self._served: Material | None = None

    def server_credentials(self) -> grpc.ServerCredentials:
        """Gives what a port is bound with; the files are looked at again at each handshake."""
        # The stub knows no None, which is the word for "as before".
        renewed = cast("Callable[[], grpc.ServerCertificateConfiguration]", self._renewed)
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(self.files.material), renewed, self._require_client_cert
        )

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        now = self.files.material
        return None if now is self._served else self._configuration(now)

    def _configuration(self, material: Material) -> grpc.ServerCertificateConfiguration:
        assert material.key is not None, "whoever serves has a certificate"
        assert material.chain is not None, "whoever serves has a certificate"
        self._served = material
        pair = (material.key, material.chain)
        return grpc.ssl_server_certificate_configuration([pair], material.ca)


def load_tls(config: TlsConfig, *, serves: bool) -> MeshTls | None:
    """Reads the files; None: this mesh speaks in the clear.

    Raises:
        ConfigError: one is missing or can't be used; a process that `serves` needs a certificate.
    """
    if config.ca is None:
        for name in ("cert", "key", "server_name", "require_client_cert"):
            if getattr(config, name):
                raise ConfigError(
                    f"tls.{name}: is of no use alone; set tls.ca too, the authorities by which "
                    f"members of the mesh know each other"
                )
        return None
    if serves and config.cert is None:
        raise ConfigError("tls.cert: is missing; whoever listens shows one: set it, and tls.key")
    tls = Tls(ca=config.ca, cert=config.cert, key=config.key, server_name=config.server_name)
    try:
        files = TlsFiles(tls)
    except InvalidArgument as error:
        raise ConfigError(str(error)) from None
    return MeshTls(files, require_client_cert=config.require_client_cert)
