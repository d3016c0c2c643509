"""One PostgreSQL for all tests of effects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.effects.databases import postgres


@pytest.fixture(scope="package", name="socket")
def _socket() -> Iterator[Path]:
    """The folder of the server's socket."""
    with postgres() as folder:
        yield folder
