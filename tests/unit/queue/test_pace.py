"""How far apart commits are: gathered in a stream of them, not where a run comes by itself."""

from __future__ import annotations

import asyncio

from sexton_queue.tenure import Tenure
from sexton_sim.loop import SimLoop


def test_after_a_quiet_while_a_second_commit_may_follow_at_once() -> None:
    tenure = Tenure.__new__(Tenure)  # of which the time of its last commit is enough
    tenure._committed_s = 0.0

    async def pauses(*, after_s: float) -> list[float]:
        await asyncio.sleep(after_s)
        loop, found = asyncio.get_running_loop(), []
        for _ in range(3):
            begin = loop.time()
            await tenure._pause()
            found.append(round(loop.time() - begin, 4))
        return found

    async def play() -> None:
        assert await pauses(after_s=1) == [0, 0.003, 0.003]
        assert await pauses(after_s=0.01) == [0.003, 0.003, 0.003]
        assert await pauses(after_s=0.03) == [0, 0.003, 0.003]

    SimLoop().run(play())
