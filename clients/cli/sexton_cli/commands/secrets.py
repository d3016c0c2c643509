"""`sexton secrets`: makes the secrets of a mesh before its first process starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sexton_cli import logs
from sexton_cli.errors import Refused, UsageError
from sexton_cli.output import print_line

if TYPE_CHECKING:
    from sexton_runtime.secrets import Role


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("secrets")(secrets)


def secrets(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the secrets.")],
    copy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=DIR",
            help="Keep a copy of one (mesh, worker, client, reader) in a folder of its own.",
        ),
    ] = None,
    renew: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE", help="Use a new one; the old one is accepted on."),
    ] = None,
    retire: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE", help="Accept the old ones no longer."),
    ] = None,
) -> None:
    """Make what is missing of a mesh's secrets, each readable by its owner alone.

    What is there stays, but for the roles that --renew and --retire name; processes follow their
    files without a restart. A process needs no more than the secret of its role: give workers a
    folder with the worker secret, and callers one with the client secret.
    """
    from sexton_runtime.config import ConfigError  # noqa: PLC0415 - heavy
    from sexton_runtime.randomness import SystemRandomness  # noqa: PLC0415
    from sexton_runtime.secrets import (  # noqa: PLC0415
        Role,
        SecretsConfig,
        copy_secret,
        load_or_create_secrets,
        renew_secret,
        retire_secrets,
    )

    logs.to_stderr()
    copies = [_parsed(text) for text in copy or ()]
    renewed = {_role(text, "--renew") for text in renew or ()}
    retired = {_role(text, "--retire") for text in retire or ()}
    there = {role for role in Role if (folder / role).exists()}
    randomness = SystemRandomness()
    try:
        load_or_create_secrets(SecretsConfig(dir=folder), Role, randomness)
        for role in Role:
            done = "kept" if role in there else "made"
            if role in renewed & there:
                renew_secret(folder / role, randomness)
                done = "renewed"
            if role in retired and retire_secrets(folder / role, randomness):
                done = f"{'renewed, ' if done == 'renewed' else ''}the old ones retired"
            print_line(f"{folder / role}: {done}")
        made = load_or_create_secrets(SecretsConfig(dir=folder), Role, randomness)
        for name, target in copies:
            changed = copy_secret(made[name], target / name, randomness)
            print_line(f"{target / name}: {'copied' if changed else 'kept'}")
    except ConfigError as error:
        raise Refused(str(error)) from None


def _parsed(text: str) -> tuple[Role, Path]:
    role, _, folder = text.partition("=")
    if not folder:
        raise UsageError(f"--copy {text!r}: give ROLE=DIR")
    return _role(role, "--copy"), Path(folder)


def _role(text: str, option: str) -> Role:
    from sexton_runtime.secrets import Role  # noqa: PLC0415 - heavy

    try:
        return Role(text)
    except ValueError:
        raise UsageError(f"{option} {text!r}: the roles are {', '.join(Role)}") from None
