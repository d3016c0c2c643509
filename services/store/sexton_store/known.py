"""What the store knows by heart of keys that were written a moment ago.

A job's state, its timer and its run in flight are compared and rewritten within seconds of being
written. Their numbers were in hand then; to look each up again in a snapshot, and to check the
record's checksum, took a quarter of the evaluation. The store is the only writer of its folder, so
what it wrote last is what the next snapshot shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

KEPT: Final = 20_000
"""Keys of each of two generations; some megabytes in all."""

Numbers = tuple[int, int, int]
"""Create revision, mod revision, version; zeros where the key has been deleted."""


class KnownHeads:
    """The numbers of the keys written last, as of the last durable step."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._young: dict[bytes, Numbers] = {}
        self._old: dict[bytes, Numbers] = {}

    def get(self, key: bytes) -> Numbers | None:
        """Gives a key's numbers; None: look it up."""
        return self._young.get(key) or self._old.get(key)

    def note(
        self, entries: Sequence[tuple[int, int, Sequence[tuple[bytes, object, int, int, int]]]]
    ) -> None:
        """Takes in the changes of a step that has become durable, in order."""
        if len(self._young) > self._kept:
            self._old, self._young = self._young, {}
        self._young.update(
            {change[0]: change[2:] for _, _, changes in entries for change in changes}
        )
