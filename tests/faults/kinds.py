"""The kinds of mesh that this machine can run, by name."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from faults.mesh import FaultMesh
from faults.process_mesh import ProcessMesh
from faults.scenarios import CONTAINERS, PROCESSES

MakeMesh: TypeAlias = Callable[[Path], FaultMesh]

_DOCKER_S: Final = 20.0


def kinds() -> Mapping[str, MakeMesh]:
    """Gives how each kind is made, of those that can be had here."""
    found: dict[str, MakeMesh] = {PROCESSES: ProcessMesh}
    if _has_engine() and importlib.util.find_spec("faults.container_mesh") is not None:
        from faults.container_mesh import ContainerMesh  # noqa: PLC0415 - needs an engine

        found[CONTAINERS] = ContainerMesh
    return found


def lacking(kind: str) -> str:
    """Says what this machine lacks for what the CI plays on a kind of mesh; empty: nothing."""
    if kind == CONTAINERS:
        return "" if CONTAINERS in kinds() else "a Docker engine"
    return "" if os.geteuid() == 0 else "root, to mount a small disk"


def _has_engine() -> bool:
    if shutil.which("docker") is None:
        return False
    try:
        asked = subprocess.run(
            ["docker", "info"], capture_output=True, timeout=_DOCKER_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0
