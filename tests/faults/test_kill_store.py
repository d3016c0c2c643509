"""What was acknowledged survives SIGKILL at any moment, and nothing is half there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from faults.store_load import CONFIG, copied, durable_states, max_revision, records

from sexton_store.doctor import child_environment, examine
from sexton_store.lmdb_disk import LmdbDisk

ENDLESS = 100_000
"""Steps of a load that is killed long before."""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [4])
async def test_what_was_acknowledged_survives_kill(tmp_path: Path, kills: int) -> None:
    folder = tmp_path / "data"
    rng = random.Random("kill")
    for seed in map(str, range(kills)):
        disk = LmdbDisk.open(folder, CONFIG)
        twin = await copied(disk)
        await disk.close()
        answers = killed_after(folder, seed, rng.randint(1, 60))

        assert examine(folder).findings == ()
        states = await durable_states(twin, seed, len(answers) + 3)
        disk = LmdbDisk.open(folder, CONFIG)
        assert max_revision(disk) >= answers[-1]
        assert records(disk) == states[max_revision(disk)]
        await disk.close()


def killed_after(folder: Path, seed: str, answers: int) -> list[int]:
    """Runs the load until it has answered so often, and kills it; gives all that it answered."""
    command = [sys.executable, "-m", "faults.store_load", str(folder), seed, str(ENDLESS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=child_environment()) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(answers + 1)]
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.readlines()
    return [int(line) for line in lines[1:] if line.endswith(b"\n")]
