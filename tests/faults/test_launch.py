"""A module's wall clock follows a test's file, also while it runs; no other clock does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import faults.launch as launch

READS_TWICE = """
import time
before = time.time()
print(time.time_ns() / 1e9 - before > 299, flush=True)
input()
print(time.time_ns() / 1e9 - before < -299, abs(time.time() - before) < 200, flush=True)
"""


def test_a_clock_jumps_while_the_module_runs(tmp_path: Path) -> None:
    shift = tmp_path / "shift"
    launch.set_shift(shift, 300)
    (tmp_path / "reads_twice.py").write_text(READS_TWICE)
    with subprocess.Popen(
        [sys.executable, launch.__file__, str(shift), "reads_twice"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(tmp_path)},
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        launch.set_shift(shift, -300)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "True True\n"
    assert process.returncode == 0
