"""`sexton top`: how the mesh is now."""

from __future__ import annotations

from typing import Annotated

import typer

from sexton_cli.commands._mesh_options import Api, target_of
from sexton_cli.commands.trace import ConsoleUrl


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("top")(top)


def top(
    every: Annotated[
        float, typer.Option(min=0.5, max=3_600, metavar="SECONDS", help="Between two looks.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    api: Api = None,
    console: ConsoleUrl = None,
) -> None:
    """Show queues, runs in flight, rates and failures, again and again until Ctrl-C."""
    from sexton_cli.online.console import find_console  # noqa: PLC0415 - heavy
    from sexton_cli.online.top import show_top  # noqa: PLC0415

    show_top(target_of(api, None), find_console(console, api), every_s=every, once=once)
