"""The supervisor with real processes that are not Sexton's: kept running, ended, never left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sexton_cli.up.plan import Program
from sexton_cli.up.supervisor import Supervisor

pytestmark = pytest.mark.slow

PATIENCE_S = 20.0

STUBBORN = """
import os, signal, sys, time
if sys.argv[1] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("began", sys.argv[1], flush=True)
if sys.argv[1] == "brief":
    sys.exit("nothing to do")
if sys.argv[1] == "ended":
    print("fake ready as ended", flush=True)
    sys.exit(2)
time.sleep(300)
"""

OUTER = """
import asyncio, sys
from pathlib import Path
from sexton_cli.up.plan import Program
from sexton_cli.up.supervisor import Supervisor
programs = [
    Program(name=n, role="fake", arguments=(n,), port=None, stage=0) for n in ("one", "stubborn")
]
asyncio.run(Supervisor(programs, Path(sys.argv[1]), say=print).run())
"""


@pytest.fixture(autouse=True)
def _fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sexton_fake.py").write_text(STUBBORN)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))


class Supervised:
    """A supervisor with programs of these names, in stages in this order."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.said: list[str] = []
        self.folder = folder
        programs = [
            Program(name=name, role="fake", arguments=(name,), port=None, stage=stage)
            for stage, name in enumerate(names)
        ]
        self.supervisor = Supervisor(programs, folder, say=self.said.append)
        self.running = asyncio.create_task(self.supervisor.run())

    async def pid(self, name: str, *, other_than: int | None = None) -> int:
        """Waits until the program has begun, in another process than this one."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                pid = self.supervisor.pid(name)
                begun = self.supervisor.log(name).last_line() == f"began {name}"
                if pid not in (None, other_than) and begun:
                    return pid
                await asyncio.sleep(0.01)

    async def said_times(self, number: int) -> None:
        """Waits until so much has been said."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if len(self.said) >= number:
                    return
                await asyncio.sleep(0.01)


async def test_a_killed_process_is_replaced_and_the_others_stay(tmp_path):
    mesh = Supervised(tmp_path, "one", "two")
    first, other = await mesh.pid("one"), await mesh.pid("two")
    os.kill(first, signal.SIGKILL)
    second = await mesh.pid("one", other_than=first)
    assert mesh.said == [
        "one ended (killed by SIGKILL); its log ends: began one; starting it again"
    ]
    listed = json.loads((tmp_path / "processes.json").read_text())
    assert listed["pid"] == os.getpid()
    assert [(p["name"], p["pid"], p["starts"]) for p in listed["processes"]] == [
        ("one", second, 2),
        ("two", other, 1),
    ]
    mesh.supervisor.stop(10.0)
    assert await mesh.running == 0
    assert not (tmp_path / "processes.json").exists()
    assert gone(second, other)


async def test_what_ignores_the_request_to_end_is_killed_after_its_limit(tmp_path):
    mesh = Supervised(tmp_path, "stubborn", "two")
    pids = [await mesh.pid(name) for name in ("stubborn", "two")]
    mesh.supervisor.stop(0.1)
    assert await mesh.running == 0
    assert gone(*pids)


async def test_a_second_stop_does_not_wait(tmp_path):
    mesh = Supervised(tmp_path, "stubborn", "two")
    pids = [await mesh.pid(name) for name in ("stubborn", "two")]
    mesh.supervisor.stop(300.0)
    mesh.supervisor.stop(300.0)
    assert await mesh.running == 0
    assert gone(*pids)


async def test_one_that_can_not_run_ends_all_with_the_reason(tmp_path):
    mesh = Supervised(tmp_path, "brief", "two")
    assert await mesh.running == 1
    assert mesh.said[-2:] == [
        "brief ended (exit code 1); its log ends: nothing to do",
        "brief can't run; stopping.",
    ]


async def test_one_that_was_ready_and_is_ended_from_inside_ends_no_other(tmp_path):
    mesh = Supervised(tmp_path, "ended", "two")
    two = await mesh.pid("two")
    await mesh.said_times(3)
    again = "ended ended (exit code 2); its log ends: fake ready as ended; starting it again"
    assert mesh.said[:3] == [again] * 3
    assert mesh.supervisor.pid("two") == two
    mesh.supervisor.stop(10.0)
    assert await mesh.running == 0


async def test_one_that_can_not_even_be_started_ends_all_with_the_reason(tmp_path):
    (tmp_path / "logs" / "one.log").mkdir(parents=True)
    mesh = Supervised(tmp_path, "one", "two")
    assert await mesh.running == 1
    assert mesh.said[-2:] == [
        "one ended (exit code 1); its log ends: it can't be started: Is a directory",
        "one can't run; stopping.",
    ]


@pytest.mark.parametrize("suspended", [False, True], ids=["running", "suspended"])
def test_nothing_is_left_behind_a_killed_supervisor(tmp_path, suspended):
    outer = subprocess.Popen([sys.executable, "-c", OUTER, str(tmp_path)])
    try:
        pids = wait_for_pids(tmp_path)
        if suspended:
            os.kill(pids[0], signal.SIGSTOP)
    finally:
        outer.kill()
        outer.wait()
    deadline = time.monotonic() + PATIENCE_S
    while not gone(*pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_for_pids(folder: Path) -> list[int]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline
        time.sleep(0.02)
        logs = [folder / "logs" / f"{name}.log" for name in ("one", "stubborn")]
        if all(log.exists() and "began" in log.read_text() for log in logs):
            listed = json.loads((folder / "processes.json").read_text())
            return [process["pid"] for process in listed["processes"]]


def gone(*pids: int) -> bool:
    """Tells whether none of them exists, but as an entry that nobody has collected yet."""
    return not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
