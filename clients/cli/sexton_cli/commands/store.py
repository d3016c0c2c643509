"""`sexton store`: runs a store in the foreground, exactly as `python -m sexton_store` does."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Adds the command. Its flags, `--help` included, are the store's own."""
    app.command(
        "store",
        help="Run a store: sexton store --data DIR.",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(store)


def store(context: typer.Context) -> None:
    """Passes the command line on and ends with the store's exit code."""
    from sexton_store.__main__ import main  # noqa: PLC0415 - half a second that no other needs

    raise typer.Exit(main(context.args, program="sexton store"))
