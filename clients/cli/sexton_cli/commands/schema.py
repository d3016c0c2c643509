"""`sexton schema`: the JSON Schema of job files."""

import typer

from sexton_cli.output import print_json


def register(app: typer.Typer) -> None:
    """Registers the command."""
    app.command("schema")(schema)


def schema() -> None:
    """Print the JSON Schema of job files, for editors."""
    from sexton_cli.jobfile import json_schema  # noqa: PLC0415 - heavy

    print_json(json_schema())
