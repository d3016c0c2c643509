"""A long life at the limit of the room: only growing may be refused, and nothing is half there."""

from __future__ import annotations

import random

from sexton_store.disk import Disk, DiskFullError, Record, Row, WriteBatch

KEYS = 3_000
MAX_STEP_BYTES = 300_000
STEPS_PER_MOOD = 100
"""The load fills, then settles, then empties, and so on."""


async def live_at_the_limit(disk: Disk, seed: int, steps: int) -> int:
    """Puts, settles and deletes at random; gives how many ordinary steps were refused.

    Raises what a settlement or a delete raises, and `AssertionError` where the disk does not hold
    exactly what it accepted.
    """
    rng = random.Random(seed)
    model: dict[bytes, Record] = {}
    refused = 0
    for number in range(steps):
        filling, emptying = number // STEPS_PER_MOOD % 3 == 0, number // STEPS_PER_MOOD % 3 == 2
        chance = rng.random()
        if chance < (0.75 if filling else 0.4) or not model:
            puts = _puts(rng)
            try:
                await disk.write(WriteBatch(_rows(puts), (), b"c"), use_reserve=False)
                model |= puts
            except DiskFullError:
                refused += 1
        elif chance < 0.85:
            key, done = rng.choice(sorted(model)), Record(b"done" * 15, 1, 1, 1)
            settled = {b"ended/" + key[-6:]: done}
            model.pop(key)
            freed = [] if key in settled else [key]
            await disk.write(WriteBatch(_rows(settled), freed, b"c"), use_reserve=True)
            model |= settled
        else:
            number_of_keys = rng.choice((100, 500) if emptying else (1, 10, 100))
            gone = rng.sample(sorted(model), min(len(model), number_of_keys))
            await disk.write(WriteBatch((), gone, b"c"), use_reserve=True)
            for key in gone:
                model.pop(key)
    with disk.view() as view:
        assert {kv.key: Record(*kv[1:]) for kv in view.scan(b"", b"")} == model
    return refused


def _puts(rng: random.Random) -> dict[bytes, Record]:
    value_bytes = rng.choice((10, 200, 3_000, 20_000))
    number = min(rng.choice((1, 5, 50, 200)), MAX_STEP_BYTES // value_bytes)
    keys = [b"k%05d" % rng.randrange(KEYS) for _ in range(number)]
    return {key: Record(bytes(value_bytes), 1, 1, 1) for key in keys}


def _rows(records: dict[bytes, Record]) -> list[Row]:
    return [(key, *record) for key, record in records.items()]
