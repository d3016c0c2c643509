"""One command's calls to a mesh: the client, and what is said where a call fails."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sexton import errors, local_mesh
from sexton._settings import Settings, settings
from sexton.client import Client
from sexton_cli.errors import CliError, NotFound, Refused, Unavailable, UsageError
from sexton_cli.online.wording import as_typed, short_names

_RETRY_FOR_S = 3.0
"""Longer than another coordinator needs to take the lead; a person waits for it."""
_RETRY_NOBODY_S = 0.2
"""Where nothing says that there is a mesh at all."""

_NEVER_SENT = "failed to connect to all addresses; last error: "
"""How gRPC's own message begins where nobody listens."""

_KINDS: tuple[tuple[type[errors.SextonError], type[CliError]], ...] = (
    (errors.InvalidArgument, UsageError),
    (errors.NotFound, NotFound),
    (errors.Unavailable, Unavailable),
    (errors.DeadlineExceeded, Unavailable),
    (errors.Cancelled, Unavailable),
    (errors.Internal, CliError),
    (errors.Unimplemented, CliError),
    (errors.SextonError, Refused),
)
"""The exit code of each error, the most special first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which mesh, and which namespace of it."""

    api: str | None
    """`HOST:PORT`, several separated by commas; None: found."""
    namespace: str | None
    """None: that of the environment, or `default`."""
    timeout_s: float = 10.0


@contextmanager
def connected(target: Target, flags: Mapping[str, str] | None = None) -> Iterator[Client]:
    """Gives a client; raises `CliError` with an exit code and a way out for what fails inside.

    `flags`: where fields of requests stand on the command line, if otherwise than in most commands.
    """
    logging.getLogger("grpc").setLevel(logging.ERROR)
    try:
        with Client(
            target.api,
            namespace=target.namespace,
            timeout_s=target.timeout_s,
            retry_for_s=_RETRY_FOR_S if _expects_a_mesh(target) else _RETRY_NOBODY_S,
        ) as client:
            try:
                yield client
            except errors.SextonError as error:
                raise explained(error, client.addresses, flags) from None
    except errors.SextonError as error:  # the client can't be made
        raise _unusable(error, target) from None


def settings_of(target: Target) -> Settings:
    """Gives what a client of the mesh is made of; raises `CliError` where it can't be used."""
    try:
        return settings(target.api, namespace=target.namespace, timeout_s=target.timeout_s)
    except errors.SextonError as error:
        raise _unusable(error, target) from None


def _unusable(error: errors.SextonError, target: Target) -> CliError:
    named = {"address": "--api" if target.api else "SEXTON_API"}
    return kind_of(error)(as_typed(error, named))


def _expects_a_mesh(target: Target) -> bool:
    named = target.api or os.environ.get("SEXTON_API")
    return bool(named) or local_mesh.find() is not None


def explained(
    error: errors.SextonError, addresses: tuple[str, ...], flags: Mapping[str, str] | None = None
) -> CliError:
    """Gives the error that ends a command: with its exit code, and with what to do."""
    where, said = ", ".join(addresses), short_names(error.message)
    kind = kind_of(error)
    if isinstance(error, errors.OutcomeUnknown):
        return kind(
            f"the mesh at {where} broke off: {said}\n"
            f"of a change the outcome is not known; look, then try again"
        )
    if isinstance(error, errors.NotLeader):
        return kind(
            f"the mesh at {where} has no leader at this moment: {said}\n"
            f"another coordinator takes over within seconds; try again, and see `sexton members`"
        )
    if isinstance(error, errors.Unavailable):
        _, never_sent, cause = str(error).rpartition(_NEVER_SENT)
        if not never_sent:
            return kind(f"the mesh at {where} can't answer now: {said}\ntry again")
        return kind(
            f"no mesh answers at {where}: {cause.rpartition(': ')[2]}\n"
            f"start one with `sexton up`, or name it with --api HOST:PORT (SEXTON_API)"
        )
    if isinstance(error, errors.DeadlineExceeded):
        return kind(
            f"the mesh at {where} did not answer in time: {said}\n"
            f"of a change the outcome is not known; look, then try again"
        )
    if isinstance(error, errors.Unauthenticated | errors.PermissionDenied):
        return kind(
            f"the mesh at {where} refuses the caller: {said}\n"
            f"set SEXTON_CLIENT_SECRET_FILE to the file secrets/client of its data folder"
        )
    return kind(as_typed(error, flags))


def kind_of(error: errors.SextonError) -> type[CliError]:
    """Gives the class of command errors, and with it the exit code, of an error of the API."""
    return next(ours for theirs, ours in _KINDS if isinstance(error, theirs))
