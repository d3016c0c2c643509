from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SMALL_DISK_MIB = 8


def _need(what: str, *, there: bool) -> None:
    """Skips where something is missing, unless this run must not (as in CI)."""
    if not there:
        if os.environ.get("SEXTON_REQUIRE_SYSTEM"):
            pytest.fail(f"{what} is missing")
        pytest.skip(f"needs {what}")


@pytest.fixture
def strace() -> None:
    """Is there strace?"""
    _need("strace", there=shutil.which("strace") is not None)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own with little room."""
    _need("root, to mount a tmpfs", there=os.geteuid() == 0)
    mounted = tmp_path / "disk"
    mounted.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={SMALL_DISK_MIB}m", "tmpfs"]
    subprocess.run(["mount", *options, str(mounted)], check=True)
    yield mounted
    # A test that failed may have left files open there.
    subprocess.run(["umount", "--lazy", str(mounted)], check=True)
