from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SMALL_DISK_MIB = 8


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own with little room."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={SMALL_DISK_MIB}m", "tmpfs"]
    subprocess.run(["mount", *options, str(mounted)], check=True)
    yield mounted
    # A test that failed may have left files open there.
    subprocess.run(["umount", "--lazy", str(mounted)], check=True)
