"""What the jobs of the fault tests do: the `--app` of their workers.

Each attempt writes that it began and that it ended, with its token, into its job's own file, and
goes on when the line is on the disk: the truth about executions lies outside the mesh. It needs
nothing but the SDK, for it is imported inside containers too.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path

import sexton
from sexton.history import HistoryFile


class Failed(Exception):  # noqa: N818 - it was told to
    """The attempt was to fail."""


@sexton.task("faults-thread")
def in_thread(context: sexton.Context, folder: str, seconds: float, fails: int = 0) -> None:
    """Lasts so long; the first attempts fail."""
    witness = Witness(context, folder)
    if context.wait_cancelled(seconds):
        witness.end("cancelled")
        return
    witness.end_as_told(fails)


@sexton.task("faults-async")
async def in_loop(context: sexton.Context, folder: str, seconds: float, fails: int = 0) -> None:
    """Likewise, on the loop that all such tasks of a worker share."""
    witness = Witness(context, folder)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        witness.end("cancelled")
        raise
    witness.end_as_told(fails)


@sexton.task("faults-process", isolation="process")
def in_process(context: sexton.Context, folder: str, seconds: float, fails: int = 0) -> None:
    """Likewise, in a process of its own."""
    in_thread(context, folder, seconds, fails)


class Witness:
    """What one attempt writes about itself."""

    def __init__(self, context: sexton.Context, folder: str) -> None:
        """Writes that it began."""
        self._context = context
        self._path = Path(folder) / f"{context.job}.jsonl"
        self._write("started")

    def end(self, how: str) -> None:
        """Writes that it ended."""
        self._write("ended", how=how)

    def end_as_told(self, fails: int) -> None:
        """Writes that it ended; raises `Failed` where it is one of the first so many attempts."""
        failed = self._context.attempt <= fails
        self.end("failed" if failed else "succeeded")
        if failed:
            raise Failed(f"attempt {self._context.attempt} was told to fail")

    def _write(self, what: str, **facts: str) -> None:
        context = self._context
        told = {
            "namespace": context.namespace,
            "job": context.job,
            "run": context.run_id,
            "number": context.attempt,
            "token": context.token,
            **facts,
        }
        with closing(HistoryFile(self._path, sync=True)) as file:
            file.write("exec", what=what, target=os.environ["FAULTS_WORKER"], facts=told)
