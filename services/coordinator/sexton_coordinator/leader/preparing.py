"""Plans the steps of jobs shortly before they are due, while the leader has nothing else to do.

Of a thousand jobs that are due together the last would otherwise wait until the others are decided.
Nothing is written ahead of its time: a prepared step waits beside its job, and at the due time the
look at that job takes it if it still stands (`Step.stands`), or plans anew.
"""

from __future__ import annotations

import asyncio
from typing import Final

from sexton_coordinator.leader.counters import Counters
from sexton_coordinator.leader.machine import Known, Machine
from sexton_coordinator.leader.steps import Planner
from sexton_coordinator.mesh import Mesh
from sexton_core.instants import MILLISECOND, SECOND, Duration, Instant

AHEAD_NS: Final[Duration] = 500 * MILLISECOND
"""How long before their due time steps are planned. Not sooner: more may change meanwhile."""
MOST_PREPARED: Final = 2_000
"""Steps that wait, at about 2.5 KiB each; of more jobs due together the first are planned."""
_LEAST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 1.0
"""Between two passes."""
_TURN: Final = 32
"""Steps planned before others get their turn."""


class Preparing:
    """The planning ahead, for one tenure."""

    def __init__(
        self, *, mesh: Mesh, machine: Machine, planner: Planner, counters: Counters
    ) -> None:
        self._mesh = mesh
        self._machine = machine
        self._planner = planner
        self._counters = counters

    async def run(self) -> None:
        """Plans ahead again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._pause_s())
            await self.run_once()

    async def run_once(self) -> None:
        """Plans ahead for what is due soon, until something is due."""
        horizon, planned = self._machine.horizon, 0
        for due, uid in horizon.within(self._mesh.now() + AHEAD_NS, MOST_PREPARED):
            known = self._machine.get(uid)
            if known is None or not self._is_wanted(known, due):
                continue
            self._plan(known, due)
            planned += 1
            if planned % _TURN == 0:
                await asyncio.sleep(0)
            if planned % _TURN == 0 and self._is_due():
                return

    def _pause_s(self) -> float:
        due = self._machine.horizon.next_due()
        if due is None:
            return _LONGEST_PAUSE_S
        left_s = (due - AHEAD_NS - self._mesh.now()) / SECOND
        return min(max(left_s, _LEAST_PAUSE_S), _LONGEST_PAUSE_S)

    def _is_due(self) -> bool:
        due = self._machine.horizon.next_due()
        return due is not None and due <= self._mesh.now()

    def _is_wanted(self, known: Known, due: Instant) -> bool:
        """Tells whether a job is read, is due by its own timer, and has nothing else to do."""
        loaded, machine = known.loaded, self._machine
        return (
            loaded is not None
            and loaded.timer == due
            and (known.prepared is None or known.prepared.loaded is not loaded)
            and not (known.in_flight or known.asked or known.verify or known.force)
            and known.uid not in machine.waiting
            and known.uid not in machine.filling
        )

    def _plan(self, known: Known, due: Instant) -> None:
        assert known.loaded is not None, "it is wanted"
        try:
            known.prepared = self._planner.plan(known.loaded, due, known.ended)
        except Exception:  # noqa: BLE001 - what can't be decided is said when it is due
            return
        self._counters.prepared += 1
