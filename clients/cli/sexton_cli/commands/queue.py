"""`sexton queue`: runs a queue replica in the foreground, as `python -m sexton_queue` does."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Adds the command. Its flags, `--help` included, are the queue's own."""
    app.command(
        "queue",
        help="Run a queue replica: sexton queue --store HOST:PORT.",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(queue)


def queue(context: typer.Context) -> None:
    """Passes the command line on and ends with the queue's exit code."""
    from sexton_queue.__main__ import main  # noqa: PLC0415 - half a second that no other needs

    raise typer.Exit(main(context.args, program="sexton queue"))
