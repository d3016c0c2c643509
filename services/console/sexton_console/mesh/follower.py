"""Follows a mesh: reads what has ended since the last look, and counts it.

It reads the list of ended runs and not the stream of all changes: a look costs the mesh one page,
however fast the mesh is. What does not fit into it is estimated, and said to be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from sexton import errors
from sexton.v1 import run_pb2
from sexton_console.mesh.api import MeshApi
from sexton_console.mesh.numbers import FAILED, Numbers, Seen
from sexton_console.words import ENDED_STATES, attempt_state, run_parts, run_state
from sexton_runtime.clock import Clock

LOOKED_AT_S: Final = 1.0
"""Between two looks while somebody watches."""
ALONE_S: Final = 5.0
_SOMEBODY_S: Final = 10.0
"""Whoever has asked for a page less than this ago is watching."""
PAGE: Final = 500
"""Runs that are read at one look: a look costs the mesh some 50 ms, and no more."""
_FIRST_PAGES: Final = 6
"""Read at the start, so that the first view is not empty."""
_OVERLAP: Final = timedelta(seconds=2)
"""Ends may become visible in another order than they happened in, by less than this."""
_HISTORY: Final = timedelta(hours=1)

_log = structlog.get_logger(__name__)


class Follower:
    """A part of the console's lifecycle; `numbers` is what it has counted."""

    def __init__(self, api: MeshApi, clock: Clock) -> None:
        self.numbers = Numbers()
        self.problem = "The console has not reached the mesh yet."
        """Why the numbers may be old; empty: they are not."""
        self.looked_s = 0.0
        """When the mesh was last read, by this machine's clock."""
        self._api = api
        self._clock = clock
        self._latest: datetime | None = None
        self._watched_ns = 0
        self._woken = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def somebody_watches(self) -> None:
        """Takes note that a page was asked for."""
        self._watched_ns = self._clock.monotonic_ns()
        self._woken.set()

    async def start(self) -> None:
        """Begins to follow, in the background."""
        self._running = asyncio.create_task(self._follow(), name="follower")

    async def stop(self) -> None:
        """Ends. Idempotent."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def run_once(self) -> int:
        """Reads what has ended since the last look; tells how many runs were new."""
        now_s = self._clock.wall_ns() / 1e9
        now = datetime.fromtimestamp(now_s, UTC)
        after = now - _HISTORY if self._latest is None else self._latest - _OVERLAP
        pages = _FIRST_PAGES if self._latest is None else 1
        found: list[run_pb2.Run] = []
        token, complete = "", False
        for _ in range(pages):
            answer = await self._api.runs(states=ENDED_STATES, after=after, size=PAGE, token=token)
            found += answer.runs
            token = answer.next_page_token
            if not token:
                complete = True
                break
        weight = 1.0 if complete or self._latest is None else _weight(found, after)
        new = sum(self.numbers.add(seen_of(run, weight)) for run in found)
        if found:
            newest = max(run.end_time.ToDatetime(UTC) for run in found)
            self._latest = max(newest, self._latest or newest)
        elif self._latest is None:
            self._latest = now
        self.problem = ""
        self.looked_s = now_s
        return new

    async def _follow(self) -> None:
        while True:
            try:
                await self.run_once()
            except errors.SextonError as error:
                if not self.problem:
                    _log.warning(
                        "The mesh can't be followed now.", action="follow", reason=str(error)
                    )
                self.problem = f"The mesh does not answer: {error}"
            except Exception:  # noqa: BLE001 - it goes on: the next answer may be well again
                _log.exception("An answer could not be read.", action="follow")
                self.problem = "The console could not read an answer of the mesh; its log has it."
            await self._pause()

    async def _pause(self) -> None:
        alone_s = (self._clock.monotonic_ns() - self._watched_ns) / 1e9
        if alone_s < _SOMEBODY_S:
            await asyncio.sleep(LOOKED_AT_S)
            return
        self._woken.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(ALONE_S):
                await self._woken.wait()


def seen_of(run: run_pb2.Run, weight: float = 1.0) -> Seen:
    """Gives what is counted of a run that has ended."""
    namespace, job, run_id = run_parts(run.name)
    state = run_state(run.state)
    started = next(
        (a.assign_time for a in run.attempts if attempt_state(a.state) != "returned"), None
    )
    due_ns = run.due_time.ToNanoseconds()
    return Seen(
        job=f"{namespace}/{job}",
        run=run_id,
        state=state,
        due_s=due_ns / 1e9,
        # What is handed out before its time is kept until then.
        started_s=0.0 if started is None else max(started.ToNanoseconds(), due_ns) / 1e9,
        ended_s=run.end_time.ToNanoseconds() / 1e9,
        kind=run.error.kind if state in FAILED else "",
        message=run.error.message if state in FAILED else "",
        weight=weight,
    )


def _weight(found: Sequence[run_pb2.Run], after: datetime) -> float:
    """Tells for how many each run stands, where only the newest of a time were read."""
    ends = [run.end_time.ToNanoseconds() / 1e9 for run in found]
    covered_s = max(ends) - min(ends) if ends else 0.0
    whole_s = max(ends) - after.timestamp() if ends else 0.0
    return max(1.0, whole_s / covered_s) if covered_s > 0 else 1.0
