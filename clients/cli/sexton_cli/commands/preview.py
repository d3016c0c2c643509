"""`sexton preview`: when something will run, before it is applied."""

from typing import Annotated

import typer

from sexton_cli.commands._job_file import FileOption, the_one
from sexton_cli.output import Format, Output

_MISSING = "FILE|EXPR is missing: name a job file, or give an expression such as '0 3 * * *'"


def register(app: typer.Typer) -> None:
    """Registers the command."""
    app.command("preview")(preview)


def preview(  # noqa: PLR0917 - each is an option
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|EXPR",
            help="A job file; or a cron expression, 'every 90s', or an RRULE.",
        ),
    ] = None,
    file: FileOption = None,
    tz: Annotated[str | None, typer.Option(help="IANA time zone.")] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Default: now.")
    ] = None,
    count: Annotated[int, typer.Option(min=0, max=10_000, help="Times per job.")] = 10,
    dst: Annotated[
        str | None, typer.Option(help="vixie, literal, skip or shift; default: vixie.")
    ] = None,
    job: Annotated[str | None, typer.Option(help="Only this job of the file.")] = None,
    run_time: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long a run takes, for warnings.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the next times of a schedule, what is special about them, and what may surprise.

    For a file, --tz and --dst replace what the file says.
    """
    from sexton_cli.offline.preview import Question, run  # noqa: PLC0415 - heavy

    question = Question(
        target=the_one(target, file, _MISSING),
        is_file=file is not None,
        tz=tz,
        after=from_,
        count=count,
        dst=dst,
        job=job,
        run_time=run_time,
    )
    run(question, output)
