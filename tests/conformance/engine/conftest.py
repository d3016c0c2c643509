from __future__ import annotations

from pathlib import Path

import pytest
from conformance.engine.worlds import WORLDS, World


@pytest.fixture(params=list(WORLDS))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return WORLDS[request.param](tmp_path)
