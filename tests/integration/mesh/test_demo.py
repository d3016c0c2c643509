"""`make demo` holds what it tells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DEMOS = Path(__file__).parents[3] / "demos"


def shown(tmp_path: Path, *arguments: str) -> list[str]:
    """Runs a demonstration to its end and gives its lines."""
    kept = {name: value for name, value in os.environ.items() if "SEXTON_" not in name}
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=DEMOS.parent, timeout=120, check=False,
        env=kept | {"PYTHONPATH": os.pathsep.join(sys.path), "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.splitlines()


def test_the_mesh_shows_runs_survives_its_leader_and_leaves_nothing(tmp_path: Path):
    lines = shown(tmp_path, "demos/mesh.py", "--seconds", "6")
    text = "\n".join(lines)
    assert "is killed with kill -9" in text
    for job, told in (
        ("report", '{"archives":'),
        ("backup", "wrote "),
        ("sync-orders", "the shop does not answer"),
    ):
        assert any(f"  {job} " in line and told in line for line in lines), text
        assert any(line.startswith(f"{job}: ") and "exactly one run" in line for line in lines)
    assert lines[-1] == "The mesh has stopped. Nothing is left behind."
