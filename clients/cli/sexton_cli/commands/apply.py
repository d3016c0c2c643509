"""`sexton apply`: a job file becomes the jobs of a mesh."""

from typing import Annotated

import typer

from sexton_cli.commands._job_file import FileArgument, FileOption, the_one
from sexton_cli.commands._mesh_options import Api, Output, Timeout, target_of
from sexton_cli.errors import UsageError
from sexton_cli.output import ListFormat


def register(app: typer.Typer) -> None:
    """Registers the command."""
    app.command("apply")(apply)


def apply(  # noqa: PLR0917 - each is an option
    argument: FileArgument = None,
    file: FileOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would change, and write nothing.")
    ] = False,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Delete what --source applied before and does not hold any more."
        ),
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Recorded with each job; default: the file's name."),
    ] = None,
    api: Api = None,
    timeout: Timeout = 120.0,
    output: Output = ListFormat.TABLE,
) -> None:
    """Create the jobs of a file, and update those that are there and differ.

    The whole file is checked and refused as one. Applying it again changes nothing. Jobs that are
    not in the file stay as they are, unless --prune says otherwise.
    """
    from sexton_cli.online.applying import How, run  # noqa: PLC0415 - heavy

    if prune and not source:
        raise UsageError(
            "--prune: name the --source too, which says whose jobs may be deleted; it is recorded "
            "with each job that it applies"
        )
    how = How(dry_run=dry_run, prune=prune, source=source)
    run(the_one(argument, file), target_of(api, None, timeout), output, how)
