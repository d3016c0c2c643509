"""What every test starts with: the process's logging as Python and structlog set it.

And the order of the files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import groupby

import pytest
import structlog
from hypothesis import HealthCheck, settings

# How fast inputs are drawn says something about the machine, not about what is tested.
settings.register_profile("sexton", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sexton")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spreads the files that wait for real processes evenly over those that compute.

    Files are given to whoever is free in this order, so that waiting and computing go side by side,
    and what takes longest, the mesh and the simulation, does not come last.
    """
    files = [(str(path), list(tests)) for path, tests in groupby(items, lambda item: item.path)]
    waiting = [tests for path, tests in files if "/tests/integration/" in path]
    computing = [tests for path, tests in files if "/tests/integration/" not in path]
    places = [
        (number / len(group), tests)
        for group in (waiting, computing)
        for number, tests in enumerate(group)
    ]
    places.sort(key=lambda place: place[0])
    items[:] = [item for _, tests in places for item in tests]


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Takes back what a test that runs a command or a service has configured."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)
