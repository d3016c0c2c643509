"""How a command is given its job file: as the argument, or with -f."""

from __future__ import annotations

from typing import Annotated

import typer

from sexton_cli.errors import UsageError

FileArgument = Annotated[
    str | None, typer.Argument(metavar="FILE", help="A job file; - is standard input.")
]
FileOption = Annotated[
    str | None, typer.Option("-f", "--file", metavar="FILE", help="The job file, likewise.")
]

_MISSING = "FILE is missing: name a job file; - is standard input"


def the_one(argument: str | None, option: str | None, missing: str = _MISSING) -> str:
    """Gives what was said in one of two ways.

    Raises:
        UsageError: in neither, or in both.
    """
    given = argument if option is None else option
    if given is None:
        raise UsageError(missing)
    if argument is not None and option is not None:
        raise UsageError(f"-f {option} and {argument}: name one file, once")
    return given
