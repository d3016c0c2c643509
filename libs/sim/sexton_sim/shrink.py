"""Finds few of a seed's faults that still break what all of them break."""

from __future__ import annotations

from collections.abc import Callable, Collection

_MAX_TRIALS = 200


def shrink(rules_of: Callable[[Collection[int]], Collection[str]], faults: set[int]) -> set[int]:
    """Drops halves, quarters, ... of the faults as long as one of the first rules is broken.

    `rules_of` runs the seed with some of its faults and gives the rules that are broken. Where all
    of them break none, all are given back.
    """
    wanted = set(rules_of(faults))
    kept = sorted(faults)
    if not wanted:
        return faults
    size, trials = max(1, len(kept) // 2), 0
    while trials < _MAX_TRIALS:
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            trials += 1
            if wanted & set(rules_of(fewer)):
                kept = fewer
                break
        else:
            if size == 1:
                break
            size //= 2
    return set(kept)
