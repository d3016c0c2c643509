"""A virtual-time asyncio event loop: no selector, no threads, no real clock.

Time moves only when nothing is ready, straight to the next timer. Everything runs in one fixed
order: ready callbacks first in, first out; timers by (time, sequence). Tasks and futures hash by
their number, so that the sets inside `asyncio.wait` and `TaskGroup` have one order too. Each
process sees its own machine's clock: `loop.time()`, `call_later`, `asyncio.sleep` and
`asyncio.timeout` scale with it.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import itertools
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from sexton_sim._handles import Handle, SimFuture, SimTask, Timer
from sexton_sim._refused import RefusingLoop, refuse
from sexton_sim.clock import DEFAULT_WALL_NS, NEVER_NS, Machine
from sexton_sim.errors import DeadlockError, LivelockError, SimulationError
from sexton_sim.process import PROCESS, Process

T = TypeVar("T")

MAX_STEPS_PER_INSTANT = 200_000
"""Callbacks that may run without virtual time moving: beyond it the simulation is a livelock."""
_COLLECT_EVERY_STEPS = 250_000
_MIN_CANCELLED_TO_PURGE = 100


class SimLoop(RefusingLoop):
    """The loop. `run(main)` runs a whole simulation to the end of `main`."""

    def __init__(self) -> None:
        self._now_ns = 0
        self.steps = 0
        self.numbers = itertools.count(1)
        self.unhandled: list[dict[str, Any]] = []
        self._ready: deque[Handle | Timer] = deque()
        self._timers: list[tuple[int, int, Timer]] = []
        self._timer_numbers = itertools.count()
        self._cancelled_timers = 0
        self._running = False
        self._stopping = False
        self._closed = False
        self._debug = False
        self._incarnations: dict[str, int] = {}
        self._processes: dict[str, Process] = {}
        self._exception_handler: Callable[[Any, dict[str, Any]], object] | None = None
        self.system = Process(self, "system", Machine(self, "system"), 1)

    # Processes and time

    @property
    def now_ns(self) -> int:
        """Virtual time in nanoseconds since the simulation's start."""
        return self._now_ns

    def time(self) -> float:
        """Gives the running process's awake time in seconds."""
        return PROCESS.get(self.system).machine.monotonic_ns() / 1e9

    def machine(self, name: str, *, wall_ns: int | None = None, rate: float = 1.0) -> Machine:
        """Makes a machine whose wall clock shows `wall_ns` now (default: exact time)."""
        now = DEFAULT_WALL_NS + self._now_ns if wall_ns is None else wall_ns
        return Machine(self, name, wall_ns=now, rate=rate)

    def process(self, name: str, machine: Machine | None = None) -> Process:
        """Starts a process; the previous one of that name must be dead (a restart)."""
        previous = self._processes.get(name)
        if previous is not None and previous.alive:
            raise SimulationError(f"{previous!r} runs already")
        if machine is None:
            machine = previous.machine if previous is not None else self.machine(name)
        number = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        process = self._processes[name] = Process(self, name, machine, number)
        return process

    def retime(self) -> None:
        """Computes anew when timers fire, after a machine's clock has changed its pace."""
        self._timers = [
            (timer.process.machine.due_ns(timer.due_monotonic_ns), number, timer)
            for _, number, timer in self._timers
            if not timer.cancelled()
        ]
        self._cancelled_timers = 0
        heapq.heapify(self._timers)
        for process in self._processes.values():
            if not process.machine.awake:
                process.runnable = False
            elif not process.runnable:
                process.wake()

    def requeue(self, handles: list[Handle | Timer]) -> None:
        """Makes parked callbacks ready again, in their order."""
        self._ready.extend(handles)

    # Scheduling

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Queues a callback for the process of its context; dropped if that process is dead."""
        if context is None:
            context = contextvars.copy_context()
        process = context.get(PROCESS) or self.system
        handle = Handle(callback, args, context, process)
        if process.alive:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Runs a callback after `delay` seconds of its process's awake time."""
        if context is None:
            context = contextvars.copy_context()
        process = context.get(PROCESS) or self.system
        due_ns = process.machine.monotonic_ns() + max(0, round(delay * 1e9))
        return self._schedule(due_ns, callback, args, context, process)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Runs a callback once its process's `time()` is at least `when`."""
        if context is None:
            context = contextvars.copy_context()
        process = context.get(PROCESS) or self.system
        due_ns = round(when * 1e9)
        while due_ns / 1e9 < when:
            due_ns += 1
        return self._schedule(due_ns, callback, args, context, process)

    def _schedule(
        self,
        due_ns: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        process: Process,
    ) -> asyncio.TimerHandle:
        timer = Timer(due_ns, callback, args, context, process)
        if process.alive:
            entry = (process.machine.due_ns(due_ns), next(self._timer_numbers), timer)
            heapq.heappush(self._timers, entry)
        return timer

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        self._cancelled_timers += 1
        count = self._cancelled_timers
        if count > _MIN_CANCELLED_TO_PURGE and count * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def create_future(self) -> asyncio.Future[Any]:
        """Makes a future with a hash of its own."""
        return SimFuture(loop=self)

    def create_task(
        self,
        coro: Any,
        *,
        name: object | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        """Makes a task of the context's process; one of a dead process never runs."""
        if context is None:
            context = contextvars.copy_context()
        process = context.get(PROCESS) or self.system
        label = f"{process.name}-{next(self.numbers)}" if name is None else str(name)
        task: SimTask[Any] = SimTask(coro, loop=self, name=label, context=context)
        if process.alive:
            process.adopt(task)
        else:
            task.abandon()
        return task

    # Running

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs `main` as the system's task to its end, then closes the loop.

        Raises `DeadlockError` when it can't end, `LivelockError` when time can't move.
        """
        try:
            return cast("T", self.run_until_complete(main))
        finally:
            self.close()

    def run_until_complete(self, future: Any) -> Any:
        """Runs until the future or coroutine is done and gives its result."""
        if asyncio.iscoroutine(future):
            future = self.create_task(future, context=self.system.context.copy())
        future.add_done_callback(self._stop_when_done, context=self.system.context.copy())
        try:
            with self._installed():
                self._turn(future)
        except BaseException:
            if isinstance(future, SimTask) and not future.done():
                future.abandon()
            raise
        return future.result()

    def _stop_when_done(self, _future: object) -> None:
        self._stopping = True

    def run_forever(self) -> None:
        """Runs until `stop`, or until nothing is left to do."""
        with self._installed():
            self._turn(None)

    def stop(self) -> None:
        """Ends the run after the callbacks that are ready now."""
        self._stopping = True

    def is_running(self) -> bool:
        """Tells whether the loop runs."""
        return self._running

    def is_closed(self) -> bool:
        """Tells whether the loop has been closed."""
        return self._closed

    def close(self) -> None:
        """Kills every process and abandons what is left; idempotent."""
        if self._closed:
            return
        # Coroutines that are closed may start tasks in their `finally`: those are born dead.
        with self._installed():
            self._closed = True
            for process in [*self._processes.values(), self.system]:
                process.abandon()
        self._ready.clear()
        self._timers.clear()

    async def shutdown_asyncgens(self) -> None:
        """Does nothing: abandoned generators are closed with their process."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Does nothing: there is no executor."""

    @contextmanager
    def _installed(self) -> Iterator[None]:
        if self._running or self._closed:
            raise RuntimeError("this loop runs already or has been closed")
        hooks = sys.get_asyncgen_hooks()
        collecting = gc.isenabled()
        self._running, self._stopping = True, False
        # The collector runs finalizers; when it does so must not depend on what ran before.
        gc.disable()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._finalize_asyncgen)
        asyncio.events._set_running_loop(self)  # noqa: SLF001 - how a loop installs itself
        try:
            yield
        finally:
            asyncio.events._set_running_loop(None)  # noqa: SLF001
            sys.set_asyncgen_hooks(*hooks)
            if collecting:
                gc.enable()
            self._running = False

    def _turn(self, main: asyncio.Future[Any] | None) -> None:
        ready = self._ready
        next_collect = self.steps + _COLLECT_EVERY_STEPS
        while True:
            livelock_at = self.steps + MAX_STEPS_PER_INSTANT
            while ready:
                if self._stopping:
                    return
                handle = ready.popleft()
                if handle._cancelled:  # noqa: SLF001 - the loop's own handles
                    continue
                process = handle.process
                if not process.runnable:
                    if process.alive:
                        process.parked.append(handle)
                    continue
                self.steps += 1
                try:
                    handle._context.run(handle._callback, *handle._args)  # noqa: SLF001
                except (SystemExit, KeyboardInterrupt, SimulationError):
                    raise
                except BaseException as error:  # noqa: BLE001 - as asyncio's own loop does
                    self.call_exception_handler(
                        {"message": "exception in callback", "exception": error, "handle": handle}
                    )
                if process.fuse:
                    process.burn()
                if self.steps >= livelock_at:
                    raise LivelockError(self._describe_livelock())
            if self._stopping:
                return
            if self.steps >= next_collect:
                gc.collect(1)
                next_collect = self.steps + _COLLECT_EVERY_STEPS
            if not self._advance():
                if main is None:
                    return
                raise DeadlockError(self._describe_pending())

    def _advance(self) -> bool:
        timers = self._timers
        while timers and timers[0][2]._cancelled:  # noqa: SLF001
            heapq.heappop(timers)
            self._cancelled_timers -= 1
        if not timers or timers[0][0] >= NEVER_NS:
            return False
        self._now_ns = max(self._now_ns, timers[0][0])
        now_ns, ready = self._now_ns, self._ready
        while timers and timers[0][0] <= now_ns:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # noqa: SLF001
            if timer._cancelled:  # noqa: SLF001
                self._cancelled_timers -= 1
            else:
                ready.append(timer)
        return True

    def _finalize_asyncgen(self, generator: AsyncGenerator[Any, Any]) -> None:
        process = PROCESS.get(self.system)
        # One that still runs was left behind in the middle of closing by a process that was killed.
        running = getattr(generator, "ag_running", False)
        if process.alive and not self._closed and not running:
            self.call_soon(self.create_task, generator.aclose())

    def _describe_pending(self) -> str:
        lines = ["nothing is ready and no timer is set; pending tasks:"]
        for process in [self.system, *self._processes.values()]:
            lines += [f"  {process!r}: {task!r}" for task in process.pending()]
        return "\n".join(lines)

    def _describe_livelock(self) -> str:
        waiting = [repr(handle) for handle in itertools.islice(self._ready, 10)]
        return (
            f"{MAX_STEPS_PER_INSTANT} callbacks ran at virtual time {self._now_ns} ns; "
            f"next: {', '.join(waiting)}"
        )

    # Errors, debugging

    def get_debug(self) -> bool:
        """Tells whether asyncio's debug mode is on (never by itself)."""
        return self._debug

    def set_debug(self, enabled: bool) -> None:  # noqa: FBT001 - asyncio's signature
        """Switches asyncio's debug mode."""
        self._debug = enabled

    def get_exception_handler(self) -> Any:
        """Gives the handler that `set_exception_handler` set."""
        return self._exception_handler

    def set_exception_handler(self, handler: Any) -> None:
        """Sets who is told of errors that nobody awaits; None: they gather in `unhandled`."""
        self._exception_handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Keeps the error in `unhandled`: a simulation that ends with any has failed."""
        self.unhandled.append(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tells of an error that nobody awaits; one of a dead process does not count."""
        subject = context.get("future") or context.get("task")
        owner = getattr(subject, "process", None)
        for child in getattr(subject, "_children", ()):  # what asyncio.gather waits for
            owner = owner or getattr(child, "process", None)
        if not (owner or PROCESS.get(self.system)).alive or self._closed:
            return
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        else:
            self.default_exception_handler(context)

    def get_task_factory(self) -> None:
        """Gives None: the loop's own tasks are the deterministic ones."""
        return

    def set_task_factory(self, factory: Any) -> None:
        """Refuses: other tasks would not be deterministic."""
        refuse("set_task_factory")(self, factory)
