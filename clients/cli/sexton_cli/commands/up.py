"""`sexton up`: the whole mesh on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from sexton_cli.commands._job_file import FileArgument, the_one


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("up")(up)


def up(  # noqa: PLR0917 - each is an option
    file: FileArgument = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar="SEXTON_DATA",
            help="Folder of everything that lasts; default: where clients look for a mesh.",
        ),
    ] = None,
    apply: Annotated[
        str | None,
        typer.Option(
            *("--apply", "-f", "--file"),
            metavar="FILE",
            help="The job file, likewise; it is applied once the mesh is up.",
        ),
    ] = None,
    app: Annotated[
        str, typer.Option(metavar="MODULE", help="Python module with the workers' tasks.")
    ] = "",
    port_base: Annotated[
        int,
        typer.Option(min=1024, max=65_400, help="The API's port; the others follow it."),
    ] = 7400,
    coordinators: Annotated[int, typer.Option(min=1, max=8, help="Coordinators; one leads.")] = 2,
    queues: Annotated[int, typer.Option(min=1, max=8, help="Queues; one owns the line.")] = 2,
    workers: Annotated[int, typer.Option(min=0, max=64, help="Workers.")] = 1,
    drain: Annotated[
        float,
        typer.Option(min=0, max=3_600, metavar="SECONDS", help="For running jobs at the stop."),
    ] = 30.0,
    history: Annotated[
        bool, typer.Option("--history", help="Write one line per commit, for sexton verify.")
    ] = False,
    console: Annotated[
        bool, typer.Option(help="Run the console too, and trace every run for it.")
    ] = True,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the logs of all processes.")
    ] = False,
) -> None:
    """Run the whole mesh on this machine, as processes that are kept running.

    Ctrl-C stops it and lets running jobs end; a second one ends everything at once. Clients on this
    machine find it by themselves: try `sexton jobs list` in another terminal.
    """
    from sexton_cli.up.plan import UpConfig  # noqa: PLC0415 - heavy
    from sexton_cli.up.run import default_data  # noqa: PLC0415
    from sexton_cli.up.run import up as run  # noqa: PLC0415

    config = UpConfig(
        data=(data or default_data()).absolute(),
        app=app,
        port_base=port_base,
        coordinators=coordinators,
        queues=queues,
        workers=workers,
        drain_s=drain,
        history=history,
        console=console,
    )
    jobs = None if file is None and apply is None else the_one(file, apply)
    raise typer.Exit(run(config, jobs=jobs, verbose=verbose))
