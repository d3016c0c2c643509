"""Values of the worker's own, struck out of what is kept of an attempt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

_SHORTEST: Final = 8
"""Characters: shorter values are no secrets, and would be struck out of ordinary words."""
_STRUCK: Final = b"***"


def secrets_among(values: Iterable[str]) -> tuple[bytes, ...]:
    """Gives those values that are long enough to be secrets."""
    return tuple(
        value.encode("utf-8", "surrogateescape") for value in values if len(value) >= _SHORTEST
    )


class Strikeout:
    """Strikes values out of what comes in parts, also where a part ends inside of one."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        self._secrets = sorted({each for each in secrets if each}, key=len, reverse=True)
        self._any = re.compile(b"|".join(map(re.escape, self._secrets)))
        self._held = b""

    def take(self, data: bytes) -> bytes:
        """Takes a part; gives what can be shown. The beginning of a value waits for its end."""
        if not self._secrets:
            return data
        data = self._held + data
        safe = min((_begun(data, secret) for secret in self._secrets), default=len(data))
        for match in self._any.finditer(data):
            if match.start() < safe < match.end():
                safe = match.start()
        self._held = data[safe:]
        return self._any.sub(_STRUCK, data[:safe])

    def rest(self) -> bytes:
        """Gives what still waits: nothing comes any more."""
        held, self._held = self._held, b""
        return self._any.sub(_STRUCK, held) if held else b""

    def whole(self, data: bytes) -> bytes:
        """Strikes values out of something that is complete."""
        return self.take(data) + self.rest()


def _begun(data: bytes, secret: bytes) -> int:
    """Tells where at the end of the data a secret begins that goes on behind it."""
    found = (at for at in _places(data, secret) if secret.startswith(data[at:]))
    return next(found, len(data))


def _places(data: bytes, secret: bytes) -> Iterator[int]:
    at = data.find(secret[0], max(0, len(data) - len(secret) + 1))
    while at >= 0:
        yield at
        at = data.find(secret[0], at + 1)
