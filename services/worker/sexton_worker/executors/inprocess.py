"""Tasks in this process: coroutines in a loop of their own, other functions in threads.

None of them runs in the control part's loop or thread: what they block, they block for each other.
They can be asked to end, not be killed; the only force is the end of the whole process.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeAlias

from sexton.context import Context
from sexton.task import Isolation, Task
from sexton_core.instants import Instant
from sexton_runtime.telemetry import join_trace
from sexton_worker.contract import Ended, Follow, Listener, Order, PythonWork
from sexton_worker.executors.calls import call, call_async, make_context, read_arguments
from sexton_worker.output import OUTPUT, Tail

_IDLE_THREAD_S: Final = 30.0
_ENDS_S: Final = 0.01
"""Ends wait so long at most while many coroutines begin at once."""
_AT_ONCE: Final = 64
"""Coroutines that are made before the first of them begins."""
_PROGRESS_S: Final = 0.1
"""Progress is passed on this often at most, the newest of each attempt."""


_Report: TypeAlias = Callable[[int, float, str], None]


class Running:
    """An attempt in this process, from when it is made ready."""

    __slots__ = (
        "_context",
        "_report",
        "cancelled",
        "given",
        "kept",
        "order",
        "task",
        "until",
        "work",
    )

    def __init__(self, order: Order, task: Task, kept: Tail, report: _Report) -> None:
        assert isinstance(order.work, PythonWork)
        self.order = order
        self.task = task
        self.kept = kept
        self.given = read_arguments(order.work.args_json)
        self.work: asyncio.Task[None] | None = None
        self.cancelled = False
        self.until: Instant = 0
        self._report = report
        self._context: Context | None = None

    def context(self) -> Context:
        """Gives what its function is told, from any thread. Most never ask, so it is made late."""
        with _CONTEXTS:
            if self._context is None:
                self._context = make_context(
                    self.order,
                    until=self.until,
                    kept=self.kept,
                    report=partial(self._report, self.order.ref.token),
                )
                if self.cancelled:
                    self._context._cancelled.set()  # noqa: SLF001 - the worker is its other half
            return self._context

    def cancel(self) -> None:
        """Has its context, made or not, say that it was asked to end."""
        with _CONTEXTS:
            self.cancelled = True
            if self._context is not None:
                self._context._cancelled.set()  # noqa: SLF001 - as above


_CONTEXTS: Final = threading.Lock()
"""Held while a context is made, and while an attempt is cancelled that may have one."""


class InProcessExecutor:
    """Runs functions; says what became of them to a listener in the control part's loop."""

    def __init__(
        self,
        listener: Listener,
        control: asyncio.AbstractEventLoop,
        follow: Follow = lambda _order: None,
    ) -> None:
        """`follow`: what takes an order's output as it is written."""
        self._follow = follow
        self._listener = listener
        self._control = control
        self._running: dict[int, Running] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._to_loop: list[tuple[Callable[[Running], object], Running]] = []
        self._actions: deque[tuple[Callable[[Running], object], Running]] = deque()
        """What the loop for tasks is still to do, in order."""
        self._beginning = 0
        """Coroutines of which the first step is still to come."""
        self._ends_wait = False
        """Whether the control part has been told to take ends after a moment only."""
        self._ends: list[tuple[int, Ended]] = []
        self._progress: dict[int, tuple[float, str]] = {}
        self._progress_waits = False
        self._calls: queue.SimpleQueue[Running | None] = queue.SimpleQueue()
        self._idle_threads = 0
        self._lock = threading.Lock()

    # Called by the control part

    def __len__(self) -> int:
        """Tells how many attempts run."""
        return len(self._running)

    def __contains__(self, token: int) -> bool:
        return token in self._running

    def prepare(self, order: Order, task: Task) -> Running:
        """Makes an attempt ready. Nothing happens before its begin, which may never come."""
        return Running(order, task, Tail(follow=self._follow(order)), self._report)

    def begin(self, running: Running, until: Instant) -> None:
        """Begins an attempt."""
        running.until = until
        self._running[running.order.ref.token] = running
        if running.task.isolation is Isolation.ASYNC:
            self._in_loop(self._start, running)
        else:
            self._in_thread(running)

    def cancel(self, token: int) -> bool:
        """Asks an attempt to end, a coroutine by cancelling it; tells whether it is known."""
        running = self._running.get(token)
        if running is None:
            return False
        running.cancel()
        if running.task.isolation is Isolation.ASYNC:
            self._in_loop(self._cancel, running)
        return True

    def order(self, token: int) -> Order:
        """Gives the order of an attempt that runs."""
        return self._running[token].order

    # In the loop for tasks

    def _in_loop(self, action: Callable[[Running], object], running: Running) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(
                target=self._loop.run_forever, name="sexton-tasks", daemon=True
            ).start()
        if not self._to_loop:
            # Handed over once all that begins now is there: the other loop, woken sooner, would
            # contend for the interpreter with whoever begins the rest.
            self._control.call_soon(self._hand_over)
        self._to_loop.append((action, running))

    def _hand_over(self) -> None:
        assert self._loop is not None
        actions, self._to_loop = self._to_loop, []
        self._loop.call_soon_threadsafe(self._take, actions)

    def _take(self, actions: list[tuple[Callable[[Running], object], Running]]) -> None:
        goes_on = bool(self._actions)
        self._actions.extend(actions)
        if not goes_on:
            self._act()

    def _act(self) -> None:
        """Does some of it, and the rest after what that has begun: none waits for all to begin."""
        assert self._loop is not None
        for _ in range(min(_AT_ONCE, len(self._actions))):
            action, running = self._actions.popleft()
            action(running)
        if self._actions:
            self._loop.call_soon(self._act)

    def _start(self, running: Running) -> None:
        assert self._loop is not None
        self._beginning += 1
        running.work = self._loop.create_task(self._await(running))

    def _cancel(self, running: Running) -> None:
        assert running.work is not None, "it was started before it can be cancelled"
        running.work.add_done_callback(lambda work: self._unbegun(running, work))
        running.work.cancel()

    def _unbegun(self, running: Running, work: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first step never runs, and says nothing itself."""
        if work.cancelled() and running.order.ref.token in self._running:
            self._beginning -= 1
            self._say(
                running.order.ref.token, Ended.failure("CancelledError", "it had not begun yet")
            )

    async def _await(self, running: Running) -> None:
        self._beginning -= 1
        OUTPUT.set(running.kept)
        join_trace(running.order.traceparent)
        ended = await call_async(running.task, running.given, running.context, running.kept)
        self._say(running.order.ref.token, ended)

    # In threads

    def _in_thread(self, running: Running) -> None:
        with self._lock:
            start = self._idle_threads == 0
            if not start:
                self._idle_threads -= 1
        if start:
            threading.Thread(
                target=self._serve, args=(running,), name="sexton-task", daemon=True
            ).start()
        else:
            self._calls.put(running)

    def _serve(self, running: Running | None) -> None:
        while running is not None:
            copy_context().run(self._call, running)
            running = None
            with self._lock:
                self._idle_threads += 1
            try:
                running = self._calls.get(timeout=_IDLE_THREAD_S)
            except queue.Empty:
                with self._lock:
                    if self._idle_threads > 0:
                        self._idle_threads -= 1
                        return
                running = self._calls.get()  # somebody has just counted on this thread

    def _call(self, running: Running) -> None:
        OUTPUT.set(running.kept)
        join_trace(running.order.traceparent)
        ended = call(running.task, running.given, running.context, running.kept)
        self._say(running.order.ref.token, ended)

    # Back to the control part

    def _say(self, token: int, ended: Ended) -> None:
        with self._lock:
            self._ends.append((token, ended))
            first = len(self._ends) == 1
        if not (self._beginning or self._actions):
            if first or self._ends_wait:
                self._ends_wait = False
                self._to_control(self._deliver)
        elif first:
            # Others are to begin this very moment: for each end that is told now they would wait.
            self._ends_wait = True
            self._to_control(lambda: self._control.call_later(_ENDS_S, self._deliver))

    def _deliver(self) -> None:
        with self._lock:
            ends, self._ends = self._ends, []
        for token, ended in ends:
            del self._running[token]
            self._listener.ended(token, ended)

    def _report(self, token: int, fraction: float, message: str) -> None:
        self._progress[token] = (fraction, message)
        if not self._progress_waits:
            self._progress_waits = True
            self._to_control(lambda: self._control.call_later(_PROGRESS_S, self._deliver_progress))

    def _deliver_progress(self) -> None:
        self._progress_waits = False
        for token in list(self._progress):
            self._listener.progressed(token, *self._progress.pop(token))

    def _to_control(self, action: Callable[[], Any]) -> None:
        try:
            self._control.call_soon_threadsafe(action)
        except RuntimeError:
            return  # the control part has ended, and this process with it
