"""Machines for the tests of the worker."""

import pytest
from unit.worker.rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def connected(rig: Rig) -> Rig:
    rig.connect()
    rig.take()
    return rig
