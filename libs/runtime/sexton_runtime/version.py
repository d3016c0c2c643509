"""Which version of the software this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def software_version() -> str:
    """Gives the version of the installed distribution; `unknown` where it runs from a folder."""
    try:
        return version("sexton")
    except PackageNotFoundError:
        return "unknown"
