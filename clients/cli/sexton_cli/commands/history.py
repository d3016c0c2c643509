"""`sexton history`: what a mesh has written about itself, for `sexton verify`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sexton_cli.errors import NotFound, Refused, UsageError
from sexton_cli.output import Format, Output, print_data, print_line


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(
        name="history",
        help="What a mesh has written about itself, for sexton verify.",
        no_args_is_help=True,
    )
    group.callback()(_root)
    group.command("export")(export)
    app.add_typer(group)


def _root() -> None:
    """What a mesh has written about itself, for sexton verify."""


def export(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where it is put; NAME.jsonl.gz is compressed.")
    ],
    source: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="A file or folder of the history. Repeatable; default: the folder of the mesh "
            "that sexton up --history runs.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", envvar="SEXTON_DATA", help="Data folder of that mesh, as of sexton up."
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Gather the history of a mesh into one file that does not exist yet.

    The mesh may be running: what it has written so far is taken.
    """
    from sexton import local_mesh  # noqa: PLC0415 - heavy
    from sexton_sim.export import export as write  # noqa: PLC0415
    from sexton_sim.sources import Sources, UnreadableError  # noqa: PLC0415

    paths = [*(source or ())]
    if not paths or data is not None:
        folder = (data or local_mesh.folders()[0]) / "history"
        if not folder.is_dir():
            raise NotFound(
                f"{folder}: this mesh keeps no history; `sexton up --history` does, and --from "
                f"names the folder of another one"
            )
        paths.append(folder)
    for path in paths:
        if not path.exists():
            raise NotFound(f"{path}: no such file or folder")
    try:
        exported = write(Sources(paths), file)
    except UnreadableError as error:
        raise UsageError(str(error)) from None
    except FileExistsError:
        raise Refused(f"{file}: this file exists; name another one, or remove it first") from None
    except OSError as error:
        raise Refused(f"{error.filename or file}: {error.strerror}") from None
    if not print_data(asdict(exported), output):
        print_line(
            f"{file}: {exported.commits:,} commits, {exported.notes:,} other lines, "
            f"{exported.bytes:,} bytes"
        )
        print_line(f"to judge it: sexton verify {file}")
