"""`sexton demo`: the story of a scheduler in seven stages, on a pretend clock."""

from typing import Annotated

import typer

from sexton_cli.errors import UsageError
from sexton_cli.output import print_line


def register(app: typer.Typer) -> None:
    """Registers the command."""
    app.command("demo")(demo)


def demo(
    stage: Annotated[
        str | None, typer.Argument(metavar="[1..7|all|numbers]", help="What to show.")
    ] = None,
) -> None:
    """Tell how a scheduler is built, in seven stages on a pretend clock; without one, list them.

    Each plays an idea, and where it fails, on the real core and services. It needs no mesh, takes
    a few seconds, and prints the same every time.
    """
    from sexton_demos import story  # noqa: PLC0415 - heavy

    known = [str(number) for number in story.STAGES]
    if stage is None:
        _show(story.contents())
        print_line()
        print_line("sexton demo 1 tells the first, all tells all, numbers counts.")
    elif stage == "all":
        for number in story.STAGES:
            _show((*story.page_of(number), ""))
        _show(story.numbers())
    elif stage == "numbers":
        _show(story.numbers())
    elif stage in known:
        _show(story.page_of(int(stage)))
    else:
        raise UsageError(f"stage {stage!r}: expected 1 to {known[-1]}, all or numbers")


def _show(lines: tuple[str, ...]) -> None:
    for line in lines:
        print_line(line)
