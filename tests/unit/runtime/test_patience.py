"""What is not urgent waits a moment, once."""

from __future__ import annotations

import asyncio

from sexton_runtime.patience import Pace, Patience
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


def test_the_pause_is_longer_while_items_come_in_a_steady_stream() -> None:
    pace = Pace(0.003, 0.02, 400)
    assert pace.after(1, 10.0) == 0.003
    assert pace.after(1, 10.003) == 0.003  # one in 3 ms is not a stream
    assert pace.after(2, 10.006) == 0.02
    assert pace.after(8, 10.026) == 0.02
    assert pace.after(7, 10.046) == 0.003
    assert pace.after(1, 20.0) == 0.003
    assert pace.after(5_000, 30.0) == 0.02
