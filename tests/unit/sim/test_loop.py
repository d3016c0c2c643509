"""The laws of virtual time: what runs when, and in which order."""

from __future__ import annotations

import asyncio
import time

import pytest

from sexton_sim.errors import DeadlockError, LivelockError, SimulationError
from sexton_sim.loop import SimLoop


def test_an_hours_sleep_takes_no_time_and_exactly_an_hour(loop: SimLoop) -> None:
    async def main() -> float:
        before = loop.time()
        await asyncio.sleep(3600)
        return loop.time() - before

    began = time.perf_counter()
    assert loop.run(main()) == 3600
    assert loop.now_ns == 3600 * 10**9
    assert time.perf_counter() - began < 5


def test_what_is_ready_runs_first_in_first_out_and_timers_by_time_then_order(
    loop: SimLoop,
) -> None:
    seen: list[str] = []

    async def main() -> None:
        loop.call_later(0.2, seen.append, "late")
        loop.call_later(0.1, seen.append, "early, first")
        loop.call_later(0.1, seen.append, "early, second")
        loop.call_soon(seen.append, "now, first")
        loop.call_soon(seen.append, "now, second")
        await asyncio.sleep(1)

    loop.run(main())
    assert seen == ["now, first", "now, second", "early, first", "early, second", "late"]


def test_asyncios_own_tools_work_unchanged(loop: SimLoop) -> None:
    async def main() -> list[object]:
        got: list[object] = []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        got.append(loop.now_ns)

        async def wait(seconds: float) -> float:
            await asyncio.sleep(seconds)
            return seconds

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(wait(seconds)) for seconds in (3, 1, 2)]
        got.append([task.result() for task in tasks])
        got.append(await asyncio.gather(wait(1), wait(2)))
        done, pending = await asyncio.wait(
            [loop.create_task(wait(seconds)) for seconds in (1, 9)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        got.append((len(done), len(pending)))
        queue: asyncio.Queue[int] = asyncio.Queue()
        loop.call_later(1, queue.put_nowait, 7)
        got.append(await asyncio.wait_for(queue.get(), 2))
        return got

    assert loop.run(main()) == [5 * 10**9, [3, 1, 2], [1, 2], (1, 1), 7]


def test_a_sleeper_never_wakes_before_its_time(loop: SimLoop) -> None:
    process = loop.process("odd", loop.machine("odd", rate=0.7131))

    async def sleeper() -> None:
        for number in range(1, 300):
            due = loop.time() + number * 0.0123457
            await asyncio.sleep(due - loop.time())
            assert loop.time() >= due - 1e-9
            reached = asyncio.Event()
            when = loop.time() + 1 / number
            loop.call_at(when, reached.set)
            await reached.wait()
            assert loop.time() >= when

    async def main() -> None:
        await process.spawn(sleeper())

    loop.run(main())


def test_sets_of_tasks_have_one_order(loop: SimLoop) -> None:
    cancelled: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def main() -> None:
        async with asyncio.timeout(1):
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(wait(number))

    with pytest.raises(TimeoutError):
        loop.run(main())
    first = list(cancelled)

    cancelled.clear()
    with pytest.raises(TimeoutError):
        SimLoop().run(main())
    assert cancelled == first
    assert len(first) == 50


def test_cancelled_timers_do_not_pile_up(loop: SimLoop) -> None:
    async def main() -> int:
        for _ in range(10_000):
            loop.call_later(3600, print).cancel()
        return len(loop._timers)

    assert loop.run(main()) < 500


def test_nothing_to_wait_for_is_a_deadlock_that_names_the_waiting(loop: SimLoop) -> None:
    async def wait_for_nothing() -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match="wait_for_nothing"):
        loop.run(wait_for_nothing())


def test_time_that_can_not_move_is_a_livelock(loop: SimLoop) -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - a fault on purpose
            await asyncio.sleep(0)

    with pytest.raises(LivelockError, match="virtual time"):
        loop.run(spin())


def test_threads_and_sockets_are_refused_loudly(loop: SimLoop) -> None:
    async def threads() -> None:
        await asyncio.to_thread(print)

    async def sockets() -> None:
        await asyncio.open_connection("127.0.0.1", 1)

    async def signals() -> None:
        loop.add_signal_handler(15, print)

    async def main() -> None:
        for attempt in (threads, sockets, signals):
            with pytest.raises(SimulationError, match="real world"):
                await attempt()

    loop.run(main())


def test_an_error_that_nobody_awaits_is_kept(loop: SimLoop) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        loop.call_soon(fail)
        await asyncio.sleep(1)

    loop.run(main())
    (entry,) = loop.unhandled
    assert isinstance(entry["exception"], ZeroDivisionError)
    loop.unhandled.clear()


def test_an_abandoned_generator_is_closed_in_the_loop(loop: SimLoop) -> None:
    closed: list[int] = []

    async def numbers() -> object:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            closed.append(loop.now_ns)

    async def main() -> None:
        async for _number in numbers():  # type: ignore[attr-defined]
            break
        await asyncio.sleep(5)

    loop.run(main())
    assert closed == [10**9]
