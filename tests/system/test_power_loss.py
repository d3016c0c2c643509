"""No power loss loses an acknowledged commit or leaves half of one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from system.power_loss import TRACED_CALLS

from sexton_store.doctor import child_environment

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.usefixtures("strace")]


@pytest.mark.parametrize("seed", ["a", "b"])
def test_every_image_holds_what_was_answered(tmp_path: Path, small_disk: Path, seed: str) -> None:
    verdicts = judged(tmp_path, small_disk, seed, steps=40)
    assert verdicts.returncode == 0, verdicts.stderr
    lines = verdicts.stdout.splitlines()
    assert len(lines) > 500
    assert [line for line in lines if not line.endswith(": sound")] == []


@pytest.mark.parametrize(
    ("mutant", "found"),
    [("answered early", "was answered and"), ("pages unsynced", "the doctor: ")],
)
def test_a_store_that_loses_commits_is_found_out(
    tmp_path: Path, small_disk: Path, mutant: str, found: str
) -> None:
    verdicts = judged(tmp_path, small_disk, "m", steps=8, mutant=mutant)
    assert found in verdicts.stdout


def judged(
    tmp_path: Path, scratch: Path, seed: str, steps: int, mutant: str = ""
) -> subprocess.CompletedProcess[str]:
    """Traces a load and has every image of it judged in a child process."""
    trace = tmp_path / "trace"
    load = [sys.executable, "-m", "faults.store_load", str(tmp_path / "data"), seed, str(steps)]
    strace = ["strace", "-f", "-y", "-xx", "-s", "100000000", "-e", f"trace={TRACED_CALLS}"]
    subprocess.run(
        [*strace, "-o", str(trace), *load],
        env=child_environment(),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    judge = [sys.executable, "-m", "system.power_loss", str(trace), seed, str(steps), str(scratch)]
    return subprocess.run(
        [*judge, mutant], env=child_environment(), capture_output=True, text=True, check=False
    )
