"""S4 and S5 from the outside: holders as real processes, suspended and killed at random."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from integration.kv.processes import RestartableStore, client_of, holder, python

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.slow
async def test_holders_that_are_suspended_and_killed_never_write_under_an_old_token(
    store: RestartableStore, tmp_path: Path
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    log = tmp_path / "log"
    with ExitStack() as stack:

        def start() -> subprocess.Popen[str]:
            return stack.enter_context(python(*holder(store, log)))

        holders = [start() for _ in range(3)]
        await lines(log, 1)
        for _ in range(6):
            victim = chance.choice(holders)
            if chance.random() < 0.7:
                victim.send_signal(signal.SIGSTOP)
                await asyncio.sleep(chance.uniform(0.1, 0.8))
                victim.send_signal(signal.SIGCONT)
            else:
                victim.kill()
                holders[holders.index(victim)] = start()
            await asyncio.sleep(chance.uniform(0.05, 0.3))
        await lines(log, count(log) + 5)
        for process in holders:
            process.terminate()
        for process in holders:
            assert process.wait(10) == 0, process.communicate()[1]
    written = sorted(
        (int(revision), int(token), int(number))
        for token, revision, number in (line.split() for line in log.read_text().splitlines())
    )
    tokens = [token for _, token, _ in written]
    numbers = [number for *_, number in written]
    assert tokens == sorted(tokens), "by revision, tokens only rise"
    assert len(set(tokens)) >= 3
    assert numbers == sorted(set(numbers)), "no write was done twice or undone"
    async with client_of(store) as client:
        (kv,) = (await client.get([b"counter"])).kvs
        assert int(kv.value) == kv.version, "every write counted on the one before"
        assert await client.list_leases() == (), "all were given back"


async def lines(log: Path, number: int) -> None:
    """Waits until so many writes have been acknowledged (to other processes: so it polls)."""
    async with asyncio.timeout(30):
        while count(log) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def count(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.mark.slow
def test_the_demo_goes_as_told() -> None:
    with python(str(REPOSITORY / "demos" / "lease_takeover.py")) as demo:
        told, complaints = demo.communicate(timeout=60)
        assert demo.returncode == 0, complaints
    assert told.splitlines()[1:3] == [
        "The first process acquired the lease 'demo/bell'. Its fencing token is 1:",
        "the revision of the commit that created the lease. The second process stands by.",
    ]
    assert told.splitlines()[-1] == "The store has stopped. Nothing is left behind."
    assert sys.executable not in told
