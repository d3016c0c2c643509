"""`sexton doctor`: examines the data of a store that is not running."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sexton_cli import logs
from sexton_cli.errors import NotFound, Refused
from sexton_cli.output import Format, Output, print_data, print_line


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("doctor")(doctor)


def doctor(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The store's data folder.")],
    output: Output = Format.TABLE,
) -> None:
    """Check everything about a stopped store that can be checked on its disk.

    Ends with 0 where all is well and with 4 where something was found.
    """
    from sexton_store.doctor import counted, examine_in_child  # noqa: PLC0415 - heavy
    from sexton_store.folder import DATA_FILE, FolderLock, FolderLockedError  # noqa: PLC0415

    logs.to_stderr()
    if not (data / DATA_FILE).is_file():
        raise NotFound(f"{data}: there is no store's data in this folder")
    try:
        lock = FolderLock(data)
    except FolderLockedError as error:
        raise Refused(str(error)) from None
    try:
        diagnosis = examine_in_child(data)
    finally:
        lock.release()
    if not print_data(json.loads(diagnosis.to_json()), output):
        for finding in diagnosis.findings:
            print_line(f"{finding.check}: {finding.message}")
        if diagnosis.findings_total > len(diagnosis.findings):
            print_line(f"... and {diagnosis.findings_total - len(diagnosis.findings)} more")
        print_line(
            f"{counted(diagnosis.findings_total)} in {diagnosis.records} records, "
            f"revision {diagnosis.revision}, {diagnosis.data_bytes} bytes"
        )
    if not diagnosis.healthy:
        raise typer.Exit(Refused.exit_code)
