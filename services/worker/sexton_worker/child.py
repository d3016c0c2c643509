"""A task in a process of its own: the order comes on stdin, the result goes to descriptor 3.

The process belongs to a guard, which kills it and all that comes of it. SIGTERM is the request to
end: a coroutine is cancelled, any other function sees `Context.cancelled`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from sexton.context import Context
from sexton.task import Task, registry
from sexton_worker.contract import Ended, Order, PythonWork, Ref
from sexton_worker.executors.calls import call, call_async, make_context, read_arguments
from sexton_worker.output import Tail
from sexton_worker.shim import RESULT_FD


def main(told: Mapping[str, Any]) -> None:
    """Runs the task, says how it ended, and ends the process whatever it left running."""
    os.set_inheritable(RESULT_FD, False)
    order = _order(told)
    said = _Said()
    try:
        for module in told["app"]:
            import_module(module)
    except BaseException as error:  # noqa: BLE001 - anything may happen at import
        said.end(Ended.failure(type(error).__name__, f"the app can't be imported: {error}"))
        return
    task = registry.get(told["task"])
    if task is None:
        said.end(Ended.failure("not started", f"the app registers no task {told['task']!r}"))
        return
    said.end(_run(task, order, said))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _run(task: Task, order: Order, said: _Said) -> Ended:
    until = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + order.timeout
    work = order.work
    assert isinstance(work, PythonWork)
    if order.traceparent.endswith("1"):
        from sexton_runtime.telemetry import join_trace  # noqa: PLC0415 - 0.1 s that others save

        join_trace(order.traceparent)
    context = make_context(order, until=until, kept=_Printed(), report=said.progress)
    if not asyncio.iscoroutinefunction(task.function):
        _on_term(context)
        return call(task, read_arguments(work.args_json), lambda: context, Tail())
    with asyncio.Runner() as runner:
        return runner.run(_await(task, work.args_json, context))


async def _await(task: Task, args_json: str, context: Context) -> Ended:
    this = asyncio.current_task()
    assert this is not None

    def end() -> None:
        context._cancelled.set()  # noqa: SLF001 - the worker is its other half
        this.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    return await call_async(task, read_arguments(args_json), lambda: context, Tail())


def _on_term(context: Context) -> None:
    """Has SIGTERM seen as a cancellation, in a thread: the main one may hold the event's lock."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(writer)

    def watch() -> None:
        while signal.SIGTERM not in os.read(reader, 1):
            pass
        context._cancelled.set()  # noqa: SLF001 - the worker is its other half

    threading.Thread(target=watch, name="sexton-term", daemon=True).start()


class _Printed(Tail):
    """Log lines of a task that is alone in its process: its output, like all that it prints."""

    def write(self, data: bytes) -> None:
        sys.stderr.write(data.decode("utf-8", "replace"))


class _Said:
    """What is written to descriptor 3: a JSON object a line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def progress(self, fraction: float, message: str) -> None:
        self._write({"progress": [fraction, message]})

    def end(self, ended: Ended) -> None:
        self._write({"ended": ended._asdict()})

    def _write(self, message: object) -> None:
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            while data:
                data = data[os.write(RESULT_FD, data) :]


def _order(told: Mapping[str, Any]) -> Order:
    namespace, job, run_id = told["names"]
    return Order(
        ref=Ref(b"", told["token"]),
        session="",
        number=told["number"],
        namespace=namespace,
        job=job,
        run_id=run_id,
        nominal_time=told["nominal_time"],
        timeout=told["timeout_ns"],
        traceparent=told["traceparent"],
        work=PythonWork(told["task"], told["args_json"]),
    )
