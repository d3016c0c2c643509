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
    executor.begin(executor.prepare(ORDER, task), until=0)
    assert executor.cancel(7)
    cancelled.set()
    assert (await hears.ends.get()).result_json == "true"
    assert contexts[0] is contexts[1]
    assert (contexts[0].token, contexts[0].idempotency_key) == (7, "default/ping/t1")


async def test_what_has_been_made_ready_and_never_begins_does_nothing() -> None:
    calls: list[str] = []

    async def notes(payload: str = "") -> None:
        calls.append(payload)

    hears = Hears()
    executor = InProcessExecutor(hears, asyncio.get_running_loop())
    task = Task(name="notes", function=notes, isolation=Isolation.ASYNC, context_parameter=None)
    given_back = PythonWork("notes", '{"payload": "given back"}')
    begins = PythonWork("notes", '{"payload": "begins"}')
    executor.prepare(ORDER._replace(ref=Ref(b"h", 8), work=given_back), task)
    executor.begin(executor.prepare(ORDER._replace(work=begins), task), until=0)
    assert (await hears.ends.get()).succeeded
    assert calls == ["begins"]
    assert len(executor) == 0


async def test_arguments_that_are_no_object_fail_the_attempt_when_it_begins() -> None:
    async def nothing() -> None:
        raise AssertionError("it was called")

    hears = Hears()
    executor = InProcessExecutor(hears, asyncio.get_running_loop())
    task = Task(name="nothing", function=nothing, isolation=Isolation.ASYNC, context_parameter=None)
    ready = executor.prepare(ORDER._replace(work=PythonWork("nothing", "[1]")), task)
    assert hears.ends.empty()
    executor.begin(ready, until=0)
    ended = await hears.ends.get()
    assert (ended.kind, ended.message) == ("arguments", "the arguments are no JSON object")


async def test_all_of_hundreds_that_begin_at_once_end_and_one_cancelled_before_it_began_too() -> (
    None
):
    async def nothing() -> None:
        pass

    hears = Hears()
    executor = InProcessExecutor(hears, asyncio.get_running_loop())
    task = Task(name="nothing", function=nothing, isolation=Isolation.ASYNC, context_parameter=None)
    orders = [ORDER._replace(ref=Ref(b"h", token)) for token in range(1, 301)]
    for order in orders:
        executor.begin(executor.prepare(order, task), until=0)
    assert executor.cancel(300)
    ends = [await hears.ends.get() for _ in orders]
    assert sum(ended.succeeded for ended in ends) >= 299
    assert len(executor) == 0
    executor.begin(executor.prepare(ORDER, task), until=0)  # those after them are told of, too
    assert (await hears.ends.get()).succeeded
