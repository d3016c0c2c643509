"""Results on stdout: aligned tables for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any


class Format(StrEnum):
    """What `-o` chooses."""

    TABLE = "table"
    JSON = "json"


def print_line(text: str = "") -> None:
    """Prints a line, with what could steer a terminal made visible."""
    sys.stdout.write(visible(text) + "\n")


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
