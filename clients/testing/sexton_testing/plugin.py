"""The pytest fixture `rehearsal`: a `Rehearsal` of its own for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sexton_testing.rehearsal import Rehearsal


@pytest.fixture
def rehearsal() -> Rehearsal:
    """A mesh on a pretend clock that stands at 2030-01-01T00:00:00Z; see `sexton_testing`."""
    from sexton_testing.rehearsal import Rehearsal  # noqa: PLC0415 - only for who uses it

    return Rehearsal()
