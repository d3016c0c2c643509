"""No power loss loses an acknowledged commit or leaves half of one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from system.power_loss import TRACED_CALLS

from sexton_store.doctor import child_environment

pytestmark = [pytest.mark.system, pytest.mark.slow]

STEPS = 40


@pytest.mark.parametrize("seed", ["a", "b"])
def test_every_image_holds_what_was_answered(tmp_path: Path, seed: str) -> None:
    trace = tmp_path / "trace"
    load = [sys.executable, "-m", "faults.store_load", str(tmp_path / "data"), seed, str(STEPS)]
    strace = ["strace", "-f", "-y", "-xx", "-s", "100000000", "-e", f"trace={TRACED_CALLS}"]
    subprocess.run([*strace, "-o", str(trace), *load], env=child_environment(), check=True)

    scratch = tmp_path / "images"
    scratch.mkdir()
    judge = [sys.executable, "-m", "system.power_loss", str(trace), seed, str(STEPS), str(scratch)]
    verdicts = subprocess.run(
        judge, env=child_environment(), capture_output=True, text=True, check=False
    )

    assert verdicts.returncode == 0, verdicts.stderr + verdicts.stdout[-200:]
    lines = verdicts.stdout.splitlines()
    assert len(lines) > 500
    assert [line for line in lines if not line.endswith(": sound")] == []
