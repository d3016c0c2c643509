"""S4 and S5 from the outside: holders as real processes, suspended and killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from integration.kv.processes import RestartableStore, client_of, holder, python


class Write(NamedTuple):
    """A write that a holder was told is durable."""

    pid: int
    token: int
    revision: int
    number: int


@pytest.mark.slow
async def test_holders_that_are_suspended_and_killed_never_write_under_an_old_token(
    store: RestartableStore, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with ExitStack() as stack:

        def start() -> subprocess.Popen[str]:
            return stack.enter_context(python(*holder(store, log)))

        holders = {process.pid: process for process in (start(), start(), start())}
        holding = await higher(log, 0)
        for fault in (signal.SIGSTOP, signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL):
            victim = holders[holding.pid]
            victim.send_signal(fault)
            successor = await higher(log, holding.token)
            assert successor.pid != victim.pid
            if fault is signal.SIGSTOP:
                victim.send_signal(signal.SIGCONT)
            else:
                replacement = start()
                holders[replacement.pid] = replacement
            holding = successor
        for process in holders.values():
            process.terminate()
        for process in holders.values():
            ended = process.wait(10)  # by SIGTERM: before it was ready to be asked
            assert ended in {0, -signal.SIGKILL, -signal.SIGTERM}, process.communicate()[1]
    written = sorted(writes(log), key=lambda write: write.revision)
    tokens = [write.token for write in written]
    assert tokens == sorted(tokens), "by revision, tokens only rise"
    assert len(set(tokens)) >= 5
    numbers = [write.number for write in written]
    assert numbers == sorted(set(numbers)), "no write was done twice or undone"
    async with client_of(store) as client:
        (kv,) = (await client.get([b"counter"])).kvs
        assert int(kv.value) == kv.version, "every write counted on the one before"
        assert await client.list_leases() == (), "the last one was given back"


async def higher(log: Path, token: int) -> Write:
    """Waits for a write under a higher token; polls, as others write the log.

    Lines come in any order: a process may note after its suspension what was durable before.
    """
    async with asyncio.timeout(30):
        while True:
            newest = max(writes(log), key=lambda write: write.token, default=None)
            if newest is not None and newest.token > token:
                return newest
            await asyncio.sleep(0.02)


def writes(log: Path) -> list[Write]:
    """Reads what has been written so far; a line that is being written is left out."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [Write(*map(int, line.split())) for line in lines if line.endswith("\n")]
