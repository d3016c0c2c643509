"""Results on stdout: aligned tables for people, JSON and YAML for programs, names for the shell."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

READER_GONE: Final = 141
"""128 + SIGPIPE, as shells have it: the exit code of a judgement that nobody has read whole."""


class Format(StrEnum):
    """What `-o` chooses where the result is one thing."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[Format, typer.Option("-o", "--output", help="How to print.")]
"""`-o` of a command whose result is one thing."""


class ListFormat(StrEnum):
    """What `-o` chooses where the results have names."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


@contextmanager
def judgement(code: int) -> Iterator[None]:
    """Prints what stands below it to the end, and ends the command with `code` if that is not 0.

    Where the reader goes away before the end (`| head -1`), a judgement that is no failure has not
    been told: the command ends with `READER_GONE`. Commands that judge nothing end with 0 then.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        fall_silent()
        raise typer.Exit(code or READER_GONE) from None
    if code:
        raise typer.Exit(code)


def fall_silent() -> None:
    """Writes to nobody from here on: the reader has gone, and at exit what is left is flushed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_line(text: str = "") -> None:
    """Prints a line, with what could steer a terminal made visible."""
    sys.stdout.write(visible(text) + "\n")


def print_data(value: Any, output: StrEnum) -> bool:
    """Prints a value if JSON or YAML is asked for; tells whether it did."""
    if output.value == "json":
        print_json(value)
    elif output.value == "yaml":
        from sexton_cli.yaml_text import yaml_text  # noqa: PLC0415 - heavy

        sys.stdout.write(yaml_text(value))
    return output.value in {"json", "yaml"}


def print_json(value: Any) -> None:
    """Prints a value as JSON, readable and in the order in which it was built."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints columns aligned on the left, two spaces apart."""
    lines = [[visible(str(cell)) for cell in row] for row in (headers, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def visible(text: str) -> str:
    """Returns the text with control characters as escapes: names and messages come from outside."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
