"""The secrets of a mesh, and who may call what with which.

A secret is a line of text in a file named after its role, readable by its owner alone. It travels
as `authorization: Bearer <secret>`. A file may have several lines, and be replaced while it is
used: so the old secret counts on until every caller has the new one.
"""

from __future__ import annotations

import hmac
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import structlog
from pydantic import Field

from sexton._watched_files import WatchedFiles
from sexton.errors import PermissionDenied, Unauthenticated
from sexton_runtime.config import ConfigError
from sexton_runtime.randomness import Randomness
from sexton_runtime.rpc.wire import service_of

_SCHEME = "Bearer "
_SHORTEST_SECRET = 16
_SECRET_BYTES = 32
_MOST_LINES = 10
"""Each line of a file is compared with what each caller shows."""
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


class Secret:
    """The secret of a role, as long as it is used: empty where there is none.

    Its first line is what is shown to others, each of its lines is accepted from them. Of a file it
    follows what the file holds.
    """

    def __init__(
        self, lines: Sequence[str] = (), *, file: WatchedFiles[tuple[str, ...]] | None = None
    ) -> None:
        self._lines = tuple(lines)
        self._file = file

    @classmethod
    def of(cls, given: AnySecret) -> Secret:
        """Gives what is a secret already, or is to be one for as long as the process lives."""
        return given if isinstance(given, Secret) else cls((given,) if given else ())

    @property
    def lines(self) -> tuple[str, ...]:
        """Gives what is accepted."""
        return self._lines if self._file is None else self._file.held

    @property
    def shown(self) -> str:
        """Gives what is shown."""
        return next(iter(self.lines), "")

    def look(self) -> tuple[str, ...]:
        """Gives what is accepted, with the file looked at now."""
        return self._lines if self._file is None else self._file.look()

    def __bool__(self) -> bool:
        return bool(self.lines)


AnySecret: TypeAlias = Secret | str
"""A string is a secret that stays as it is."""


def load_secret(config: SecretsConfig, role: Role) -> Secret:
    """Gives the secret with which to call in a role; empty where none is configured.

    Raises `ConfigError` where the configured one can't be used.
    """
    given = str(getattr(config, role.value))
    if given:
        return Secret(_checked(given, f"secrets.{role}"))
    if config.dir is None or not (config.dir / role.value).exists():
        return Secret()
    return _of_file(config.dir / role.value)


def load_or_create_secrets(
    config: SecretsConfig, roles: Iterable[Role], randomness: Randomness
) -> dict[Role, Secret]:
    """Gives the secrets by which a server knows its callers, making missing files.

    Empty, which is said loudly, where neither a folder nor a secret is configured. Raises
    `ConfigError` where a configured one can't be used, or two roles have the same.
    """
    secrets = {role: load_secret(config, role) for role in roles}
    if config.dir is not None:
        for role in (role for role, secret in secrets.items() if not secret):
            _create(config.dir / role.value, randomness)
            secrets[role] = _of_file(config.dir / role.value)
    known = {role: secret for role, secret in secrets.items() if secret}
    if not known:
        _log.warning(
            "No secrets are set: WHOEVER REACHES THIS PROCESS MAY DO EVERYTHING; a job is code.",
            action="load_secrets",
        )
    lines = [line for secret in known.values() for line in secret.lines]
    if len(set(lines)) < len(lines):
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
        secrets: Mapping[Role, AnySecret],
        services: Mapping[str, frozenset[Role]],
        reads: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        """`reads`: of which services which methods READER may call."""
        self._reads = dict(reads or {})
        self._secrets = {role: Secret.of(secret) for role, secret in secrets.items() if secret}
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
        known = {role: secret.lines for role, secret in self._secrets.items()}
        role = _whose(token, known)
        if role is None:  # a caller may have seen a new file before this process has
            role = _whose(token, {role: secret.look() for role, secret in self._secrets.items()})
        if role is None:
            raise Unauthenticated("the secret is not one of this mesh's; read it from its file")
        return role


def _whose(token: bytes, known: Mapping[Role, Iterable[str]]) -> Role | None:
    # Every secret is compared, so that the time taken tells nothing about any.
    roles = [
        role
        for role, lines in known.items()
        for line in lines
        if hmac.compare_digest(line.encode(), token)
    ]
    return roles[0] if roles else None


def _checked(text: str, where: str) -> tuple[str, ...]:
    lines = tuple(dict.fromkeys(line.strip() for line in text.strip().splitlines())) or ("",)
    if len(lines) > _MOST_LINES:
        raise ConfigError(
            f"{where}: has {len(lines)} secrets; take out those that nobody uses any more: "
            f"{_MOST_LINES} may be known at once"
        )
    for line in lines:
        _check_line(line, where)
    return lines


def _check_line(secret: str, where: str) -> None:
    if len(secret) < _SHORTEST_SECRET or not secret.isascii() or not secret.isprintable():
        raise ConfigError(
            f"{where}: a secret is one line of at least {_SHORTEST_SECRET} printable ASCII "
            f"characters; this one has {len(secret)}"
        )
    if " " in secret:
        raise ConfigError(f"{where}: a secret has no spaces")


def _of_file(path: Path) -> Secret:
    file = WatchedFiles("secrets", (path,), lambda: _read(path), refusals=(ConfigError,))
    return Secret(file=file)


def _read(path: Path) -> tuple[str, ...]:
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
    return _checked(text, str(path))


def copy_secret(secret: Secret, path: Path, randomness: Randomness) -> bool:
    """Has a file hold a secret, readable by its owner alone; tells whether it did not before.

    Raises `ConfigError` where the file can't be written.
    """
    if path.exists() and _read(path) == secret.lines:
        return False
    _replace(path, secret.lines, randomness)
    return True


def renew_secret(path: Path, randomness: Randomness) -> None:
    """Puts a new secret above those of a file: it is shown, and they are accepted on.

    Raises `ConfigError` where the file can't be used or written, or holds too many.
    """
    new = randomness.token_hex(_SECRET_BYTES)
    _replace(path, _checked("\n".join((new, *_read(path))), str(path)), randomness)


def retire_secrets(path: Path, randomness: Randomness) -> int:
    """Leaves a file the secret that is shown alone; tells how many went.

    Raises `ConfigError` where the file can't be used or written.
    """
    shown, *others = _read(path)
    if others:
        _replace(path, (shown,), randomness)
    return len(others)


def _replace(path: Path, lines: Sequence[str], randomness: Randomness) -> None:
    try:
        _draft(path, lines, randomness).replace(path)
    except OSError as error:
        raise ConfigError(f"secret {path}: can't be written: {error.strerror}") from error


def _create(path: Path, randomness: Randomness) -> None:
    """Makes the file whole or not at all; of two processes that do so at once one wins."""
    try:
        draft = _draft(path, (randomness.token_hex(_SECRET_BYTES),), randomness)
        try:
            os.link(draft, path)
        except FileExistsError:
            return
        finally:
            draft.unlink()
    except OSError as error:
        raise ConfigError(f"secret {path}: can't be created: {error.strerror}") from error


def _draft(path: Path, lines: Sequence[str], randomness: Randomness) -> Path:
    """Writes secrets beside the file that is to hold them."""
    draft = path.with_name(f".{path.name}.{randomness.token_hex(8)}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())  # or a power loss leaves a name with nothing behind it
    return draft
