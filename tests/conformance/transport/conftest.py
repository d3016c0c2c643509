from __future__ import annotations

import pytest
from conformance.transport.worlds import GrpcWorld, SimWorld, World


@pytest.fixture(params=["grpc", "simulated"])
def world(request: pytest.FixtureRequest) -> World:
    return GrpcWorld() if request.param == "grpc" else SimWorld()
