"""What the simulated loop queues: futures, tasks, callbacks and timers, all in one fixed order."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sexton_sim.process import PROCESS, Process, close_coroutine

if TYPE_CHECKING:
    from sexton_sim.loop import SimLoop

T = TypeVar("T")


class SimFuture(asyncio.Future[T]):
    """A future that hashes by its number and knows whose it is."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        sim_loop = cast("SimLoop", loop)
        self._number = next(sim_loop.numbers)
        self.process = PROCESS.get(sim_loop.system)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class SimTask(asyncio.Task[T]):
    """A task that hashes by its number and knows whose it is."""

    def __init__(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        loop: SimLoop,
        name: str | None,
        context: contextvars.Context,
    ) -> None:
        self._number = next(loop.numbers)
        self.process = context.get(PROCESS) or loop.system
        self._sim_context = context
        super().__init__(cast("Any", coro), loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number

    def abandon(self) -> None:
        """Closes the coroutine of a killed process; the task never ends."""
        self._log_destroy_pending = False
        close_coroutine(self.get_coro(), self._sim_context)


class Handle(asyncio.Handle):
    """A callback that is ready, and whose it is."""

    __slots__ = ("process",)

    # Not calling asyncio.Handle.__init__ saves a third of the cost of every callback.
    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        process: Process,
    ) -> None:
        self._context = context
        self._loop = process.loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self.process = process


class Timer(asyncio.TimerHandle):
    """A callback that waits for its process's awake time."""

    __slots__ = ("due_monotonic_ns", "process")

    def __init__(
        self,
        due_monotonic_ns: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        process: Process,
    ) -> None:
        self._context = context
        self._loop = process.loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = due_monotonic_ns / 1e9
        self._scheduled = True
        self.process = process
        self.due_monotonic_ns = due_monotonic_ns
