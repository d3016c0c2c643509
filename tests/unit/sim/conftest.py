from __future__ import annotations

from collections.abc import Iterator

import pytest

from sexton_sim.loop import SimLoop


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop()
    yield loop
    loop.close()
    assert loop.unhandled == []
