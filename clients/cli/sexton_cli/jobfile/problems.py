"""What is wrong with a job file: all of it, with lines."""

from typing import NamedTuple

_MOST_SHOWN = 20
"""Problems that a message repeats; whoever has more has one cause."""


class Problem(NamedTuple):
    """One thing to correct. Line and column count from 1; `where` is empty for the whole file."""

    line: int
    column: int
    where: str
    message: str


class JobFileError(Exception):
    """A job file that can't be used; its text names each line, value and what would be right."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self.source = source
        self.problems = tuple(sorted(problems))
        lines = [
            f"{source}:{line}:{column}: {where}: {message}"
            if where
            else f"{source}:{line}:{column}: {message}"
            for line, column, where, message in self.problems[:_MOST_SHOWN]
        ]
        if len(self.problems) > _MOST_SHOWN:
            lines.append(f"... and {len(self.problems) - _MOST_SHOWN} more")
        super().__init__("\n".join(lines))
