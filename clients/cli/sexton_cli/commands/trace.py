"""`sexton runs trace` and `sexton runs logs`: what the console shows of a run, in the terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from sexton_cli.commands._mesh_options import Api, Namespace, RunName, target_of
from sexton_cli.errors import NotFound
from sexton_cli.output import Format, Output

ConsoleUrl = Annotated[
    str | None,
    typer.Option(
        "--console",
        metavar="URL",
        help="The console, http://HOST:PORT; default: SEXTON_CONSOLE, or that of this machine.",
    ),
]


def register(runs: typer.Typer) -> None:
    """Adds the commands to the group `runs`."""
    runs.command("trace")(trace)
    runs.command("logs")(logs)


def trace(
    run: RunName,
    api: Api = None,
    namespace: Namespace = None,
    console: ConsoleUrl = None,
    output: Output = Format.TABLE,
) -> None:
    """Draw where a run's time went: its way, its attempts, and the spans of its task."""
    from sexton_cli.online import tracing  # noqa: PLC0415 - heavy
    from sexton_cli.online.console import find_console  # noqa: PLC0415

    found = tracing.read_run(target_of(api, namespace), run)
    tracing.show_trace(found, find_console(console, api), output)


def logs(  # noqa: PLR0917 - each is an option
    run: RunName,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the run has ended.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only of this attempt.")
    ] = None,
    times: Annotated[
        bool, typer.Option("-t", "--times", help="With the time of each line, in UTC.")
    ] = False,
    api: Api = None,
    namespace: Namespace = None,
    console: ConsoleUrl = None,
) -> None:
    """Print what a run wrote: all of it where there is a console, else the last of each attempt."""
    from sexton_cli.online import tracing  # noqa: PLC0415 - heavy
    from sexton_cli.online.console import find_console  # noqa: PLC0415

    found = tracing.read_run(target_of(api, namespace), run)
    if attempt is not None and not follow and attempt > len(found.attempts):
        had = len(found.attempts)
        raise NotFound(f"run {run} has no attempt {attempt}; it has had {had}")
    tracing.show_logs(
        found, find_console(console, api), follow=follow, attempt=attempt, times=times
    )
