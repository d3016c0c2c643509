"""`sexton secrets`: makes the secrets of a mesh before its first process starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sexton_cli import logs
from sexton_cli.errors import Refused, UsageError
from sexton_cli.output import print_line


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
) -> None:
    """Make what is missing of a mesh's secrets, each readable by its owner alone.

    What is there stays. A process needs no more than the secret of its role: give workers a folder
    with the worker secret, and callers one with the client secret.
    """
    from sexton_runtime.config import ConfigError  # noqa: PLC0415 - heavy
    from sexton_runtime.randomness import SystemRandomness  # noqa: PLC0415
    from sexton_runtime.secrets import (  # noqa: PLC0415
        Role,
        SecretsConfig,
        copy_secret,
        load_or_create_secrets,
    )

    logs.to_stderr()
    copies = [_parsed(text) for text in copy or ()]
    there = {role for role in Role if (folder / role).exists()}
    randomness = SystemRandomness()
    try:
        made = load_or_create_secrets(SecretsConfig(dir=folder), Role, randomness)
        for role in Role:
            print_line(f"{folder / role}: {'kept' if role in there else 'made'}")
        for name, target in copies:
            changed = copy_secret(made[Role(name)], target / name, randomness)
            print_line(f"{target / name}: {'copied' if changed else 'kept'}")
    except ConfigError as error:
        raise Refused(str(error)) from None


def _parsed(text: str) -> tuple[str, Path]:
    from sexton_runtime.secrets import Role  # noqa: PLC0415 - heavy

    role, _, folder = text.partition("=")
    if role not in list(Role) or not folder:
        raise UsageError(f"--copy {text!r}: give ROLE=DIR with one of {', '.join(Role)}")
    return role, Path(folder)
