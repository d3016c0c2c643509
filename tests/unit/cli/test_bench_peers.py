from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "bench" / "peers" / "run.py"


def _run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=folder,
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_server_that_is_not_installed_is_named_with_its_package_before_anything_is_done(
    tmp_path: Path,
) -> None:
    ended = _run("--peers", "dramatiq", folder=tmp_path)
    assert ended.stderr == (
        "redis-server is not installed. On Debian or Ubuntu: apt-get install redis-server\n"
    )
    assert ended.returncode == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_peer_that_is_not_known_is_refused(tmp_path: Path) -> None:
    ended = _run("--peers", "huey,cron", folder=tmp_path)
    assert (ended.returncode, ended.stderr) == (2, "no such peer: cron\n")
