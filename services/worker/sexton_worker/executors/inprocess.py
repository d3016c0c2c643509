"""Tasks in this process: coroutines in a loop of their own, other functions in threads.

None of them runs in the control part's loop or thread: what they block, they block for each other.
They can be asked to end, not be killed; the only force is the end of the whole process.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeAlias

from sexton.context import Context
from sexton.task import Isolation, Task
from sexton_core.instants import Instant
from sexton_runtime.telemetry import join_trace
from sexton_worker.contract import Ended, Follow, Listener, Order, PythonWork
from sexton_worker.executors.calls import call, call_async, make_context
from sexton_worker.output import OUTPUT, Tail

_IDLE_THREAD_S: Final = 30.0
_PROGRESS_S: Final = 0.1
"""Progress is passed on this often at most, the newest of each attempt."""


_Report: TypeAlias = Callable[[int, float, str], None]


class _Running:
    """An attempt in this process."""

    __slots__ = ("_context", "_report", "_until", "cancelled", "kept", "order", "task", "work")

    def __init__(
        self, order: Order, task: Task, until: Instant, kept: Tail, report: _Report
    ) -> None:
        self.order = order
        self.task = task
        self.kept = kept
        self.work: asyncio.Task[None] | None = None
        self.cancelled = False
        self._until = until
        self._report = report
        self._context: Context | None = None

    def context(self) -> Context:
        """Gives what its function is told, from any thread. Most never ask, so it is made late."""
        with _CONTEXTS:
            if self._context is None:
                self._context = make_context(
                    self.order,
                    until=self._until,
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
        self._running: dict[int, _Running] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._to_loop: list[tuple[Callable[[_Running], object], _Running]] = []
        self._ends: list[tuple[int, Ended]] = []
        self._progress: dict[int, tuple[float, str]] = {}
        self._progress_waits = False
        self._calls: queue.SimpleQueue[_Running | None] = queue.SimpleQueue()
        self._idle_threads = 0
        self._lock = threading.Lock()

    # Called by the control part

    def __len__(self) -> int:
        """Tells how many attempts run."""
        return len(self._running)

    def __contains__(self, token: int) -> bool:
        return token in self._running

    def begin(self, order: Order, task: Task, until: Instant) -> None:
        """Begins an attempt."""
        kept = Tail(follow=self._follow(order))
        running = _Running(order, task, until, kept, self._report)
        self._running[order.ref.token] = running
        if task.isolation is Isolation.ASYNC:
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

    def _in_loop(self, action: Callable[[_Running], object], running: _Running) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(
                target=self._loop.run_forever, name="sexton-tasks", daemon=True
            ).start()
        with self._lock:
            self._to_loop.append((action, running))
            wake = len(self._to_loop) == 1
        if wake:
            self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        with self._lock:
            actions, self._to_loop = self._to_loop, []
        for action, running in actions:
            action(running)

    def _start(self, running: _Running) -> None:
        assert self._loop is not None
        running.work = self._loop.create_task(self._await(running))

    def _cancel(self, running: _Running) -> None:
        assert running.work is not None, "it was started before it can be cancelled"
        running.work.add_done_callback(lambda work: self._unbegun(running, work))
        running.work.cancel()

    def _unbegun(self, running: _Running, work: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first step never runs, and says nothing itself."""
        if work.cancelled() and running.order.ref.token in self._running:
            self._say(
                running.order.ref.token, Ended.failure("CancelledError", "it had not begun yet")
            )

    async def _await(self, running: _Running) -> None:
        OUTPUT.set(running.kept)
        join_trace(running.order.traceparent)
        work = running.order.work
        assert isinstance(work, PythonWork)
        ended = await call_async(running.task, work.args_json, running.context, running.kept)
        self._say(running.order.ref.token, ended)

    # In threads

    def _in_thread(self, running: _Running) -> None:
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

    def _serve(self, running: _Running | None) -> None:
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

    def _call(self, running: _Running) -> None:
        OUTPUT.set(running.kept)
        join_trace(running.order.traceparent)
        work = running.order.work
        assert isinstance(work, PythonWork)
        ended = call(running.task, work.args_json, running.context, running.kept)
        self._say(running.order.ref.token, ended)

    # Back to the control part

    def _say(self, token: int, ended: Ended) -> None:
        with self._lock:
            self._ends.append((token, ended))
            wake = len(self._ends) == 1
        if wake:
            self._to_control(self._deliver)

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
