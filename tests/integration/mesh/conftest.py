from __future__ import annotations

from collections.abc import Iterator

import pytest
from integration.mesh.load import SteadyLoad
from integration.mesh.mesh_process import MeshProcess


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcess]:
    """A mesh with two of each of its services, but the store, as real processes."""
    flags = ("--workers", "2", "--drain", "10", "--history")
    mesh = MeshProcess(tmp_path_factory.mktemp("mesh"), *flags)
    try:
        yield mesh.start()
    finally:
        mesh.stop()


@pytest.fixture(scope="module")
def load(mesh: MeshProcess) -> SteadyLoad:
    """Jobs that fire every second for as long as the mesh runs, one per catch-up policy."""
    return SteadyLoad(mesh).start()
