"""How often the leader looks for starts to be written before they are due."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from sexton_coordinator.leader.ahead import Ahead
from sexton_coordinator.leader.firing import BATCH
from sexton_core.instants import SECOND
from sexton_core.policy import AHEAD_NS
from sexton_sim.loop import SimLoop


class Looking(Ahead):
    """Finds so many at each look, as long as it is told to."""

    def __init__(self, found: list[int]) -> None:
        now = lambda: int(asyncio.get_running_loop().time() * SECOND)  # noqa: E731
        horizon = SimpleNamespace(next_due=lambda: now() + AHEAD_NS)
        any_: Any = SimpleNamespace(now=now, horizon=horizon)
        super().__init__(mesh=any_, machine=any_, firing=any_, counters=any_)
        self.times: list[float] = []
        self._found = found

    async def _look(self) -> int:
        await asyncio.sleep(0.001)
        self.times.append(round(asyncio.get_running_loop().time(), 1))
        return self._found.pop(0) if self._found else 3


def times_of(*found: int) -> list[float]:
    looking = Looking(list(found))

    async def play() -> None:
        begin = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(0.55):
                await looking.run()
        except TimeoutError:
            looking.times = [round(time - begin, 1) for time in looking.times]

    SimLoop().run(play())
    return looking.times


def test_where_there_are_always_a_few_more_they_are_gathered_for_a_tenth_of_a_second() -> None:
    assert times_of() == [0.1, 0.2, 0.3, 0.4, 0.5]


def test_after_a_full_batch_the_next_one_is_looked_for_at_once() -> None:
    assert times_of(BATCH, BATCH, 0) == [0.1, 0.1, 0.1, 0.2, 0.3, 0.4, 0.5]
