"""What the store knows by heart of keys that were written a moment ago.

A job's state, its timer and its run in flight are compared and rewritten within seconds of being
written. Their numbers were in hand then; to look each up again in a snapshot, and to check the
record's checksum, took a quarter of the evaluation. The store is the only writer of its folder, so
what it wrote last is what the next snapshot shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KEPT: Final = 40_000
KEPT_BYTES: Final = 32 * 1024 * 1024
"""Keys of each of two generations, and bytes that they take; one step may go beyond either. Most
of it is in memory already, for those who watch."""

Written = tuple[bytes, bytes | None, int, int, int]
"""A change: key, value (None: deleted, and the numbers are 0), create revision, mod revision,
version. A compare's target is the place of its number (`Target`).
"""


class KnownHeads:
    """The last changes of the keys written last, as of the last durable step."""

    def __init__(self, kept: int = KEPT, kept_bytes: int = KEPT_BYTES) -> None:
        self.young: dict[bytes, Written] = {}
        self.old: dict[bytes, Written] = {}
        """What is in neither is to be looked up; what is in both is as in the young one."""
        self._kept = kept
        self._kept_bytes = kept_bytes
        self._young_bytes = 0

    def note(self, last: Mapping[bytes, Written], size_bytes: int) -> None:
        """Takes in the last change of each key of a step that has become durable.

        `size_bytes` is at least what their keys and values take.
        """
        if len(self.young) >= self._kept or self._young_bytes >= self._kept_bytes:
            self.old, self.young = self.young, {}
            self._young_bytes = 0
        self.young.update(last)
        self._young_bytes += size_bytes
