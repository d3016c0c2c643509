"""`sexton coordinator`: a coordinator in the foreground, as `python -m sexton_coordinator`."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Adds the command. Its flags, `--help` included, are the coordinator's own."""
    app.command(
        "coordinator",
        help="Run a coordinator: sexton coordinator --store HOST:PORT.",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(coordinator)


def coordinator(context: typer.Context) -> None:
    """Passes the command line on and ends with the coordinator's exit code."""
    from sexton_coordinator.__main__ import main  # noqa: PLC0415 - slow to import

    raise typer.Exit(main(context.args, program="sexton coordinator"))
