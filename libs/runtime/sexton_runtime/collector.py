"""When Python's collector of reference cycles works: where it disturbs nobody.

Batches of messages make hundreds of thousands of objects that live for milliseconds and are in no
cycle. By its own rules the collector looks at them in the middle of the work, whenever there are
so many more than at the last look: a tenth to a fifth of a service's time, in pauses of 20 to
250 ms. What does form cycles, errors with their tracebacks, is small and can wait until there is
little to look at.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Final

LOOK_S: Final = 1.0
"""Between two looks at whether to collect."""
FEW: Final = 20_000
"""So many new objects are looked at within some milliseconds."""
MANY: Final = 2_000_000
"""So many are looked at whatever else there is to do: they may be what fills the memory."""
SOON_S: Final = 10.0
"""With few new objects they are looked at this long after the last time."""
LATE_S: Final = 120.0
"""With more, after this time."""
FULL_S: Final = 1_800.0
"""All objects made since the start are looked at this long after the last time."""

_THRESHOLDS: Final = (20_000, 20, 50)
_YOUNG: Final = 0
_FULL: Final = 2


def due(new_objects: int, young_s: float, full_s: float) -> int | None:
    """Tells which generation is to be collected now; None: none.

    Args:
        new_objects: how many there are more than at the last collection.
        young_s: seconds since the last collection of any kind.
        full_s: seconds since the last one of everything.

    """
    if new_objects >= MANY or young_s >= LATE_S or (new_objects < FEW and young_s >= SOON_S):
        return _FULL if full_s >= FULL_S else _YOUNG
    return None


def collect_less_often() -> None:
    """Keeps the collector's own rules, with fewer looks, for a process that runs others' code.

    A few objects of theirs may be what fills the memory, so it can't wait for a quiet moment.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


async def collect_at_leisure() -> None:
    """Takes the collector over, until cancelled; then it works by its own rules again.

    What has been made before, modules above all, is never looked at again.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    loop = asyncio.get_running_loop()
    young_at = full_at = loop.time()
    try:
        while True:
            await asyncio.sleep(LOOK_S)
            now = loop.time()
            generation = due(gc.get_count()[0], now - young_at, now - full_at)
            if generation is not None:
                gc.collect(generation)
                young_at = loop.time()
                full_at = young_at if generation == _FULL else full_at
    finally:
        gc.enable()
