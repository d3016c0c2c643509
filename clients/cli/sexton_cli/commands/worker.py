"""`sexton worker`: runs a worker in the foreground, exactly as `python -m sexton_worker` does."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Adds the command. Its flags, `--help` included, are the worker's own."""
    app.command(
        "worker",
        help="Run a worker: sexton worker --queue HOST:PORT --app MODULE.",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(worker)


def worker(context: typer.Context) -> None:
    """Passes the command line on and ends with the worker's exit code."""
    from sexton_worker.__main__ import main  # noqa: PLC0415 - half a second that no other needs

    raise typer.Exit(main(context.args, program="sexton worker"))
