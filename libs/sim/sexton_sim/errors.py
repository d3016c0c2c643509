"""What ends a simulation before its time."""

from __future__ import annotations


class SimulationError(Exception):
    """The simulated code did what no simulation can follow (a thread, a socket)."""


class LivelockError(SimulationError):
    """Too many callbacks ran without virtual time moving."""


class DeadlockError(SimulationError):
    """Nothing is ready and no timer is set, but the main task has not ended."""
