"""`sexton simulate`: what a job file would do, outages and long runs included."""

from typing import Annotated

import typer

from sexton_cli.commands._job_file import FileArgument, FileOption, the_one
from sexton_cli.output import Format, Output


def register(app: typer.Typer) -> None:
    """Registers the command."""
    app.command("simulate")(simulate)


def simulate(  # noqa: PLR0917 - each is an option
    from_: Annotated[
        str, typer.Option("--from", metavar="TIME", help="When the jobs are created.")
    ],
    to: Annotated[str, typer.Option("--to", metavar="TIME", help="The last time looked at.")],
    argument: FileArgument = None,
    file: FileOption = None,
    outage: Annotated[
        list[str] | None,
        typer.Option(metavar="A..B", help="The mesh is down from A to B. Repeatable."),
    ] = None,
    run_time: Annotated[
        list[str] | None,
        typer.Option(metavar="JOB=DURATION", help="How long its runs take. Repeatable."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, help="Rows shown of runs and of what did not run, each.")
    ] = 50,
    output: Output = Format.TABLE,
) -> None:
    """Show which times of a job file run, and which are skipped, missed or dropped, and why.

    Runs take no time unless --run-time says how long; all of them succeed.
    """
    from sexton_cli.offline.simulate import Question, run  # noqa: PLC0415 - heavy

    question = Question(
        file=the_one(argument, file),
        begin=from_,
        end=to,
        outages=tuple(outage or ()),
        run_times=tuple(run_time or ()),
        limit=limit,
    )
    run(question, output)
