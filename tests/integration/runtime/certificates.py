"""Certificates as files, from authorities that live as long as a test."""

from __future__ import annotations

from pathlib import Path

import trustme

from sexton.tls import Tls


class Authority:
    """An authority, and the folder for what it issues."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.ca = folder / "ca.pem"
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(str(self.ca))

    def issue(self, name: str, *identities: str) -> Tls:
        """Issues a certificate into files of this name, replacing what they held."""
        issued = self._authority.issue_cert(*identities)
        cert, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        draft = self.folder / "draft"
        draft.write_bytes(issued.private_key_pem.bytes())
        draft.replace(key)
        draft.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        draft.replace(cert)
        return Tls(ca=self.ca, cert=cert, key=key)
