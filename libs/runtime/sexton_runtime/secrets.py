"""The three secrets of a mesh, and who may call what with which.

A secret is a line of text in a file named after its role, readable by its owner alone. It travels
as `authorization: Bearer <secret>`.
"""

from __future__ import annotations

import hmac
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import Field

from sexton.errors import PermissionDenied, Unauthenticated
from sexton_runtime.config import ConfigError
from sexton_runtime.randomness import Randomness
from sexton_runtime.rpc.wire import service_of

_SCHEME = "Bearer "
_SHORTEST_SECRET = 16
_SECRET_BYTES = 32
_log = structlog.get_logger(__name__)


class Role(StrEnum):
    """Who a secret makes its bearer."""

    MESH = "mesh"  # a service of Sexton's own, and whoever administers the store
    WORKER = "worker"  # a worker that pulls runs
    CLIENT = "client"  # a program or person that defines jobs and reads runs
    READER = "reader"  # one that reads jobs and runs, and changes nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsConfig:
    """Where the secrets come from."""

    dir: Annotated[
        Path | None,
        Field(description="folder of the files mesh, worker, client, reader; missing are created"),
    ] = None
    mesh: Annotated[str, Field(repr=False, description="the mesh secret itself")] = field(
        default="", repr=False
    )
    worker: Annotated[str, Field(repr=False, description="the worker secret itself")] = field(
        default="", repr=False
    )
    client: Annotated[str, Field(repr=False, description="the client secret itself")] = field(
        default="", repr=False
    )
    reader: Annotated[str, Field(repr=False, description="the reader secret itself")] = field(
        default="", repr=False
    )


def load_secret(config: SecretsConfig, role: Role) -> str:
    """Gives the secret with which to call in a role; empty where none is configured.

    Raises `ConfigError` where the configured one can't be used.
    """
    given = str(getattr(config, role.value))
    if given:
        return _checked(given, f"secrets.{role}")
    if config.dir is None or not (config.dir / role.value).exists():
        return ""
    return _read(config.dir / role.value)


def load_or_create_secrets(
    config: SecretsConfig, roles: Iterable[Role], randomness: Randomness
) -> dict[Role, str]:
    """Gives the secrets by which a server knows its callers, making missing files.

    Empty, which is said loudly, where neither a folder nor a secret is configured. Raises
    `ConfigError` where a configured one can't be used, or two roles have the same.
    """
    secrets = {role: load_secret(config, role) for role in roles}
    if config.dir is not None:
        for role in (role for role, secret in secrets.items() if not secret):
            _create(config.dir / role.value, randomness)
            secrets[role] = _read(config.dir / role.value)
    known = {role: secret for role, secret in secrets.items() if secret}
    if not known:
        _log.warning(
            "No secrets are set: WHOEVER REACHES THIS PROCESS MAY DO EVERYTHING; a job is code.",
            action="load_secrets",
        )
    if len(set(known.values())) < len(known):
        raise ConfigError("secrets: two roles have the same secret; give each its own")
    return known


class Access:
    """Which roles may call which services, and by which secrets they are known.

    A service without roles is open to all. READER need not be among a service's roles: it may make
    those calls of it that only read. With no secrets at all everything is: that is the
    insecure mode, which a server allows on loopback or when it is told so.
    """

    def __init__(
        self,
        secrets: Mapping[Role, str],
        services: Mapping[str, frozenset[Role]],
        reads: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        """`reads`: of which services which methods READER may call."""
        self._reads = dict(reads or {})
        self._secrets = tuple((role, secret.encode()) for role, secret in secrets.items())
        self._services = dict(services)

    @property
    def secured(self) -> bool:
        """Tells whether callers are asked for a secret."""
        return bool(self._secrets)

    def check(self, method: str, authorization: str | bytes | None) -> None:
        """Lets a call to `/service/method` pass, or raises Unauthenticated or PermissionDenied."""
        service = service_of(method)
        allowed = self._services.get(service, frozenset())
        if not self._secrets or (not allowed and service in self._services):
            return
        role = self._role(authorization)
        if role not in allowed:
            wanted = " or ".join(sorted(allowed)) or "no"
            if role is Role.READER and service in self._reads:
                name = method.rpartition("/")[2]
                if name in self._reads[service]:
                    return
                raise PermissionDenied(
                    f"the reader secret only reads; {name} takes the {wanted} secret"
                )
            raise PermissionDenied(
                f"the {role} secret does not allow calls to {service}; it takes the {wanted} secret"
            )

    def _role(self, authorization: str | bytes | None) -> Role:
        if not isinstance(authorization, str) or not authorization.startswith(_SCHEME):
            raise Unauthenticated(
                "the call carries no secret; send the metadata `authorization: Bearer <secret>`"
            )
        token = authorization.removeprefix(_SCHEME).strip().encode()
        # Every secret is compared, so that the time taken tells nothing about any.
        roles = [role for role, secret in self._secrets if hmac.compare_digest(secret, token)]
        if not roles:
            raise Unauthenticated("the secret is not one of this mesh's; read it from its file")
        return roles[0]


def _checked(secret: str, where: str) -> str:
    if len(secret) < _SHORTEST_SECRET or not secret.isascii() or not secret.isprintable():
        raise ConfigError(
            f"{where}: a secret is one line of at least {_SHORTEST_SECRET} printable ASCII "
            f"characters; this one has {len(secret)}"
        )
    if " " in secret:
        raise ConfigError(f"{where}: a secret has no spaces")
    return secret


def _read(path: Path) -> str:
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ConfigError(f"secret {path}: can't be read: {error.strerror}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        _log.warning(
            "A secret's file can be read by others than its owner; chmod 600 it.",
            action="check_secret",
            path=str(path),
        )
    return _checked(text.strip(), str(path))


def copy_secret(secret: str, path: Path, randomness: Randomness) -> bool:
    """Has a file hold a secret, readable by its owner alone; tells whether it did not before.

    Raises `ConfigError` where the file can't be written.
    """
    if path.exists() and _read(path) == secret:
        return False
    try:
        _draft(path, secret, randomness).replace(path)
    except OSError as error:
        raise ConfigError(f"secret {path}: can't be written: {error.strerror}") from error
    return True


def _create(path: Path, randomness: Randomness) -> None:
    """Makes the file whole or not at all; of two processes that do so at once one wins."""
    try:
        draft = _draft(path, randomness.token_hex(_SECRET_BYTES), randomness)
        try:
            os.link(draft, path)
        except FileExistsError:
            return
        finally:
            draft.unlink()
    except OSError as error:
        raise ConfigError(f"secret {path}: can't be created: {error.strerror}") from error


def _draft(path: Path, secret: str, randomness: Randomness) -> Path:
    """Writes a secret beside the file that is to hold it."""
    draft = path.with_name(f".{path.name}.{randomness.token_hex(8)}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret + "\n")
        file.flush()
        os.fsync(file.fileno())  # or a power loss leaves a name with nothing behind it
    return draft
