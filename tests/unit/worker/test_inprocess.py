"""Functions in the worker's process: what they learn when they ask late."""

from __future__ import annotations

import asyncio
import threading

from sexton.context import Context, current_context
from sexton.task import Isolation, Task
from sexton_worker.contract import Ended, Order, PythonWork, Ref
from sexton_worker.executors.inprocess import InProcessExecutor

ORDER = Order(Ref(b"h", 7), "s", 1, "default", "ping", "t1", 0, 10**9, "", PythonWork("asks", ""))


class Hears:
    def __init__(self) -> None:
        self.ends: asyncio.Queue[Ended] = asyncio.Queue()

    def ended(self, _token: int, ended: Ended) -> None:
        self.ends.put_nowait(ended)

    def progressed(self, *said: object) -> None:
        raise AssertionError(said)


async def test_a_context_that_is_first_asked_for_after_the_cancellation_tells_of_it() -> None:
    cancelled = threading.Event()
    contexts: list[Context] = []

    def asks() -> bool:
        assert cancelled.wait(20)
        contexts.extend((current_context(), current_context()))
        return contexts[0].cancelled

    hears = Hears()
    executor = InProcessExecutor(hears, asyncio.get_running_loop())
    task = Task(name="asks", function=asks, isolation=Isolation.THREAD, context_parameter=None)
    executor.begin(ORDER, task, until=0)
    assert executor.cancel(7)
    cancelled.set()
    assert (await hears.ends.get()).result_json == "true"
    assert contexts[0] is contexts[1]
    assert (contexts[0].token, contexts[0].idempotency_key) == (7, "default/ping/t1")
