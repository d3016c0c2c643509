"""Which services of the API a coordinator offers."""

from __future__ import annotations

from sexton_coordinator.mesh import Mesh
from sexton_runtime.rpc.server import Service


def api_services(_mesh: Mesh) -> tuple[Service, ...]:
    """Returns the services of the API."""
    return ()
