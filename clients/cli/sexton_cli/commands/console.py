"""`sexton console`: runs the console in the foreground, as `python -m sexton_console` does.

`sexton console link` prints an address that logs a browser in.
"""

from __future__ import annotations

import typer

_LINK = "link"


def register(app: typer.Typer) -> None:
    """Adds the command. Its flags, `--help` included, are the console's own."""
    app.command(
        "console",
        help="Run the console: sexton console --data DIR --api HOST:PORT. "
        "With `link`: print an address that logs a browser in to that of a mesh on this machine.",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(console)


def console(context: typer.Context) -> None:
    """Passes the command line on and ends with the console's exit code."""
    if context.args[:1] == [_LINK]:
        from sexton_cli.online.console import print_link  # noqa: PLC0415 - heavy

        print_link(context.args[1:])
        return
    from sexton_console.__main__ import main  # noqa: PLC0415 - half a second that no other needs

    raise typer.Exit(main(context.args, program="sexton console"))
