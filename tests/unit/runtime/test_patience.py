"""What is not urgent waits a moment, once."""

from __future__ import annotations

import asyncio

from sexton_runtime.patience import Patience
from sexton_sim.loop import SimLoop


def test_it_waits_one_moment_from_the_first_time_it_is_asked_and_then_no_more() -> None:
    loop = SimLoop()

    async def scenario() -> None:
        woken: list[float] = []
        patience = Patience(1.0, lambda: woken.append(loop.time()))
        began = loop.time()
        assert patience.wait()
        await asyncio.sleep(0.5)
        assert patience.wait()
        await asyncio.sleep(0.6)
        assert [at - began for at in woken] == [1.0]
        assert not patience.wait()

        patience.end()
        assert patience.wait()
        patience.end()
        await asyncio.sleep(5)
        assert len(woken) == 1

    loop.run(scenario())
