"""Where a mesh on this machine says how it is reached.

Whoever starts a mesh (`sexton up`) writes a small file, whoever calls it finds it: first in the
folder that `SEXTON_DATA` names, then in `$XDG_STATE_HOME/sexton` (`~/.local/state/sexton`). The
file holds addresses and the *path* of the client secret, never a secret.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILE_NAME = "mesh.json"
_LARGEST_FILE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMesh:
    """How a mesh on this machine is reached."""

    api: tuple[str, ...]
    """`host:port` of each replica of the API."""
    client_secret_file: Path
    """Holds the client secret, readable by its owner alone."""
    console: str = ""
    """Address of the console, `http://host:port`; empty: there is none."""


def folders(environment: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Gives the folders in which the file may be, in the order in which they are looked at."""
    given = os.environ if environment is None else environment
    state = given.get("XDG_STATE_HOME")
    found = (
        Path(given["SEXTON_DATA"]) if given.get("SEXTON_DATA") else None,
        (Path(state) if state else Path.home() / ".local" / "state") / "sexton",
    )
    return tuple(folder for folder in found if folder is not None)


def find(environment: Mapping[str, str] | None = None) -> LocalMesh | None:
    """Gives the mesh of this machine; None where no file is found or none can be understood."""
    read = (_read(folder / FILE_NAME) for folder in folders(environment))
    return next((mesh for mesh in read if mesh is not None), None)


def announce(mesh: LocalMesh, folder: Path) -> None:
    """Writes the file into a folder, whole or not at all.

    Raises:
        OSError: it can't be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".{FILE_NAME}.{os.getpid()}"
    text = {"api": list(mesh.api), "client_secret_file": str(mesh.client_secret_file.absolute())}
    if mesh.console:
        text["console"] = mesh.console
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(text, file)
    draft.replace(folder / FILE_NAME)


def withdraw(mesh: LocalMesh, folder: Path) -> None:
    """Removes the file, unless another mesh has written its own meanwhile. Idempotent."""
    written = _read(folder / FILE_NAME)
    if written is not None and written.api == mesh.api:
        (folder / FILE_NAME).unlink(missing_ok=True)


def _read(path: Path) -> LocalMesh | None:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_LARGEST_FILE_BYTES))
        api, secret = found["api"], found["client_secret_file"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(secret, str) or not isinstance(api, list) or not api:
        return None
    if not all(isinstance(address, str) for address in api):
        return None
    console = found.get("console")
    return LocalMesh(
        api=tuple(api),
        client_secret_file=Path(secret),
        console=console if isinstance(console, str) else "",
    )
