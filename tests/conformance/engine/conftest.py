from __future__ import annotations

from pathlib import Path

import pytest
from conformance.engine.client_worlds import CLIENT_WORLDS
from conformance.engine.worlds import WORLDS, World

ALL_WORLDS = WORLDS | CLIENT_WORLDS


@pytest.fixture(params=list(ALL_WORLDS))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return ALL_WORLDS[request.param](tmp_path)
