"""Starts jobs shortly before they are due, where that is certain (`sexton_core.policy.ahead`).

Starts that are spread are gathered for a tenth of a second, so that a commit, and a message to the
queue, carry many. What is due by now goes first.
"""

from __future__ import annotations

import asyncio
from typing import Final

from sexton_coordinator.leader.counters import Counters
from sexton_coordinator.leader.firing import BATCH, TURN, Firing
from sexton_coordinator.leader.machine import Known, Machine
from sexton_coordinator.leader.steps import Step
from sexton_coordinator.mesh import Mesh
from sexton_core.instants import SECOND
from sexton_core.policy import AHEAD_NS

_GATHER_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 1.0
"""Between two looks."""


class Ahead:
    """The loop that looks at what is due soon, for one tenure."""

    def __init__(self, *, mesh: Mesh, machine: Machine, firing: Firing, counters: Counters) -> None:
        self._mesh = mesh
        self._machine = machine
        self._firing = firing
        self._counters = counters

    async def run(self) -> None:
        """Looks again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._pause_s())
            # After a batch that is not full they are gathered again. At once there would be a few
            # more, and each few would be a commit and a message of their own.
            while not self._is_due() and await self._look() == BATCH:
                pass

    async def _look(self) -> int:
        """Looks at some of the jobs that are due soon, each once; gives how many."""
        async with self._firing.slot() as going:
            now = self._mesh.now()
            batch = self._machine.take_ahead(now, BATCH) if going else []
            await self._firing.commit(await self._plan(batch))
        return len(batch)

    async def _plan(self, batch: list[Known]) -> list[tuple[Known, Step]]:
        """Decides about jobs; the look at those about which it can't has ended."""
        steps: list[tuple[Known, Step]] = []
        now = self._mesh.now()
        for number, known in enumerate(batch):
            if number % TURN == TURN - 1:
                await asyncio.sleep(0)
                now = self._mesh.now()
            loaded = known.loaded
            assert loaded is not None, "it is read"
            try:
                step = self._firing.planner.plan_ahead(loaded, now, known.ended)
            except Exception:  # noqa: BLE001 - what can't be decided is said when it is due
                step = None
            if step is not None:
                steps.append((known, step))
                continue
            known.not_ahead = loaded
            self._machine.finish(known, loaded.timer)
        self._counters.ahead += len(steps)
        return steps

    def _pause_s(self) -> float:
        due = self._machine.horizon.next_due()
        if due is None:
            return _LONGEST_PAUSE_S
        left_s = (due - AHEAD_NS - self._mesh.now()) / SECOND
        return min(max(left_s, 0) + _GATHER_S, _LONGEST_PAUSE_S)

    def _is_due(self) -> bool:
        due = self._machine.horizon.next_due()
        return due is not None and due <= self._mesh.now()
