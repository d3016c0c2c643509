"""Gathers everything that is wrong with a request of many parts into one refusal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sexton.errors import InvalidArgument

_MAX_COST: Final = 1_800
"""An error's message travels three times in the trailing metadata, of which clients take 8 KiB."""


class Refusals:
    """What was found wrong so far."""

    def __init__(self, part: str, parts: int) -> None:
        """Names the parts, and how many there are."""
        self._part = part
        self._parts = parts
        self._refused: dict[str, None] = {}
        self._lines: list[str] = []
        self._first_field = ""
        self._cost = 0
        self._left_out = 0

    @contextmanager
    def collecting(self, where: str, name: str) -> Iterator[None]:
        """Notes an `InvalidArgument` that is raised inside, and goes on."""
        try:
            yield
        except InvalidArgument as error:
            self.add(where, name, error)

    def add(self, where: str, name: str, error: InvalidArgument) -> None:
        """Notes what is wrong with a part."""
        self._refused[where] = None
        self._first_field = self._first_field or f"{where}.{error.field}"
        line = f"{where}"
        if error.field != "name":
            line += f" {name}"
        line += f": {error.message}"
        self._cost += _cost(line)
        if self._cost <= _MAX_COST or not self._lines:
            self._lines.append(line)
        else:
            self._left_out += 1

    def refuse(self) -> None:
        """Raises what was gathered, if anything was.

        Raises:
            InvalidArgument: with a line for each, as many as fit.

        """
        if not self._refused:
            return
        head = (
            f"{len(self._refused)} of {self._parts} {self._part}s can't be used; nothing was "
            f"written:"
        )
        tail = [f"and {self._left_out} more"] if self._left_out else []
        raise InvalidArgument.restore(
            "\n".join([head, *self._lines, *tail]), {"field": self._first_field}
        )


def _cost(line: str) -> int:
    """Returns the bytes of a line as gRPC writes it: what is not plain ASCII as %XX."""
    data = line.encode("utf-8", "replace")
    return sum(1 if 0x20 <= byte < 0x7F else 3 for byte in data)
