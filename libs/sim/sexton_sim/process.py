"""Simulated processes: what `kill -9`, SIGSTOP and SIGCONT do to asyncio code.

A process is found through a context variable: a task or callback belongs to the process in whose
context it was made. Code outside any process (the world that injects faults, the network) belongs
to the loop's `system` process, which is always running and whose clocks are exact.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import warnings
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from sexton_sim.clock import Machine, SimClock

if TYPE_CHECKING:
    from sexton_sim._handles import SimTask
    from sexton_sim.loop import SimLoop

T = TypeVar("T")

PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("sexton_sim_process")
"""The process of the running code."""
_MAX_CLOSES = 100


class State(Enum):
    """What a process is doing."""

    RUNNING = "running"
    SUSPENDED = "suspended"  # SIGSTOP: what is due waits until `resume`
    DEAD = "dead"  # for good; a restart is a new `Process`


class Process:
    """One incarnation of a simulated process."""

    def __init__(self, loop: SimLoop, name: str, machine: Machine, number: int) -> None:
        self.name = name
        self.machine = machine
        self.clock = SimClock(machine)
        self.incarnation = number
        self.state = State.RUNNING
        self.runnable = machine.awake
        self.parked: list[Any] = []
        self.fuse = 0
        """Callbacks that it may still run before what `after` set is done; 0: nothing is set."""
        self.context = contextvars.Context()
        self.context.run(PROCESS.set, self)
        self.loop = loop
        self._tasks: dict[SimTask[Any], None] = {}
        self._prune_at = 64
        self._on_death: list[Callable[[], None]] = []
        self._at_fuse: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<process {self.name}#{self.incarnation} {self.state.value}>"

    @property
    def alive(self) -> bool:
        """Tells whether it has not been killed (it may be suspended)."""
        return self.state is not State.DEAD

    def spawn(self, coro: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Starts a coroutine as a task of this process."""
        return self.loop.create_task(coro, name=name, context=self.context.copy())

    def after(self, callbacks: int, action: Callable[[], None]) -> None:
        """Does something to it once it has run so many callbacks more: between any two awaits."""
        self.fuse = callbacks
        self._at_fuse = action

    def burn(self) -> None:
        """Counts a callback that it has run (called by the loop while `fuse` is set)."""
        self.fuse -= 1
        if self.fuse == 0 and self._at_fuse is not None and self.alive:
            self._at_fuse()

    def on_death(self, callback: Callable[[], None]) -> None:
        """Calls back, once, when the process is killed (outside any process)."""
        self._on_death.append(callback)

    def suspend(self) -> None:
        """SIGSTOP: nothing of it runs until `resume`; its clocks go on. Idempotent."""
        if self.state is State.RUNNING:
            self.state = State.SUSPENDED
            self.runnable = False

    def resume(self) -> None:
        """SIGCONT: what became due meanwhile runs, in its order. Idempotent."""
        if self.state is State.SUSPENDED:
            self.state = State.RUNNING
            self.wake()

    def wake(self) -> None:
        """Lets parked work run if the process and its machine are both awake."""
        if self.state is State.RUNNING and self.machine.awake:
            self.runnable = True
            parked, self.parked = self.parked, []
            self.loop.requeue(parked)

    def crash(self) -> None:
        """Kills it: nothing of it runs any more, from its next await on where it kills itself.

        Its suspended coroutines are closed; what their `finally` blocks try to do has no effect.
        """
        if self.state is State.DEAD:
            return
        self.state = State.DEAD
        self.runnable = False
        self.parked.clear()
        callbacks, self._on_death = self._on_death, []
        for callback in callbacks:
            self.loop.system.context.copy().run(callback)
        if PROCESS.get(None) is self:
            self.loop.call_soon(self._bury, context=self.loop.system.context.copy())
        else:
            self._bury()

    def abandon(self) -> None:
        """Ends with its loop: nobody is told any more."""
        self._on_death.clear()
        self.crash()

    def adopt(self, task: SimTask[Any]) -> None:
        """Keeps a task until it is done, so that a crash finds it."""
        self._tasks[task] = None
        if len(self._tasks) > self._prune_at:
            self._tasks = {task: None for task in self._tasks if not task.done()}
            self._prune_at = 64 + 2 * len(self._tasks)

    def pending(self) -> list[SimTask[Any]]:
        """Lists the tasks that have not ended, oldest first."""
        return [task for task in self._tasks if not task.done()]

    def _bury(self) -> None:
        for task in self.pending():
            task.abandon()
        self._tasks.clear()
        self.parked.clear()


def current_process() -> Process | None:
    """Gives the process of the running code; None outside a simulation."""
    return PROCESS.get(None)


def close_coroutine(coro: Any, context: contextvars.Context) -> None:
    """Closes a suspended coroutine of a dead process, however often its `finally` blocks await."""
    with warnings.catch_warnings():
        # One that never ran drops what it was given: coroutines that nobody awaits any more.
        warnings.simplefilter("ignore", RuntimeWarning)
        for _ in range(_MAX_CLOSES):
            with contextlib.suppress(BaseException):
                context.copy().run(coro.close)
            if getattr(coro, "cr_frame", None) is None:
                return
