"""What SIGSTOP, SIGCONT, kill -9 and odd clocks do to simulated processes."""

from __future__ import annotations

import asyncio

import pytest

from sexton_sim.clock import DEFAULT_WALL_NS
from sexton_sim.errors import SimulationError
from sexton_sim.loop import SimLoop
from sexton_sim.process import Process, current_process

S = 10**9


def test_what_a_process_starts_belongs_to_it(loop: SimLoop) -> None:
    process = loop.process("p")
    seen: list[object] = []

    async def inner() -> None:
        seen.append(current_process())
        loop.call_soon(lambda: seen.append(current_process()))
        loop.call_later(1, lambda: seen.append(current_process()))
        await asyncio.create_task(asyncio.sleep(2))
        seen.append(current_process())

    async def main() -> None:
        await process.spawn(inner())
        assert current_process() is loop.system

    loop.run(main())
    assert seen == [process] * 4


def test_a_process_whose_clock_runs_twice_as_fast_sleeps_half_as_long(loop: SimLoop) -> None:
    fast = loop.process("fast", loop.machine("fast", rate=2.0))
    slow = loop.process("slow", loop.machine("slow", rate=0.5))
    woke: dict[str, int] = {}

    async def sleep(name: str) -> None:
        before = loop.time()
        await asyncio.sleep(10)
        assert loop.time() - before == 10
        woke[name] = loop.now_ns

    async def main() -> None:
        await asyncio.gather(fast.spawn(sleep("fast")), slow.spawn(sleep("slow")))

    loop.run(main())
    assert woke == {"fast": 5 * S, "slow": 20 * S}


def test_a_clock_that_changes_its_rate_takes_its_timers_along(loop: SimLoop) -> None:
    process = loop.process("p")
    woke: list[int] = []

    async def sleep() -> None:
        await asyncio.sleep(10)
        woke.append(loop.now_ns)

    async def main() -> None:
        task = process.spawn(sleep())
        await asyncio.sleep(4)
        process.machine.set_rate(0.5)
        await asyncio.sleep(4)
        process.machine.set_rate(4.0)
        await task

    loop.run(main())
    assert woke == [9 * S]


def test_a_suspended_process_runs_nothing_and_then_all_that_became_due(loop: SimLoop) -> None:
    process = loop.process("p")
    ticks: list[tuple[int, int]] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append((loop.now_ns // S, process.clock.boot_ns() // S - 100))

    async def main() -> None:
        process.spawn(tick())
        await asyncio.sleep(2.5)
        process.suspend()
        process.suspend()
        await asyncio.sleep(10)
        assert len(ticks) == 2
        process.resume()
        await asyncio.sleep(2)

    loop.run(main())
    assert ticks == [(1, 1), (2, 2), (12, 12), (13, 13), (14, 14)]


def test_a_suspended_machine_keeps_wall_and_boot_time_but_not_awake_time(loop: SimLoop) -> None:
    process = loop.process("laptop")
    clock = process.clock
    woke: list[int] = []

    async def sleep() -> None:
        await asyncio.sleep(10)
        woke.append(loop.now_ns)

    async def main() -> None:
        process.spawn(sleep())
        await asyncio.sleep(4)
        before = (clock.wall_ns(), clock.boot_ns(), clock.monotonic_ns(), clock.boot_id())
        process.machine.suspend()
        await asyncio.sleep(3600)
        process.machine.resume()
        after = (clock.wall_ns(), clock.boot_ns(), clock.monotonic_ns(), clock.boot_id())
        assert [b - a for a, b in zip(before[:3], after[:3], strict=True)] == [3600 * S] * 2 + [0]
        assert before[3] == after[3]
        await asyncio.sleep(10)

    loop.run(main())
    assert woke == [3610 * S]


def test_a_wall_clock_jumps_alone_and_a_reboot_starts_boot_time_anew(loop: SimLoop) -> None:
    process = loop.process("p")
    clock = process.clock
    assert clock.wall_ns() == DEFAULT_WALL_NS
    boot, awake, boot_id = clock.boot_ns(), clock.monotonic_ns(), clock.boot_id()
    process.machine.jump_wall(-3600 * S)
    assert clock.wall_ns() == DEFAULT_WALL_NS - 3600 * S
    assert (clock.boot_ns(), clock.monotonic_ns(), clock.boot_id()) == (boot, awake, boot_id)
    process.crash()
    process.machine.reboot()
    assert (clock.boot_ns(), clock.monotonic_ns()) == (0, 0)
    assert clock.boot_id() != boot_id


def test_a_killed_process_stops_at_its_await_and_nothing_of_it_has_an_effect(
    loop: SimLoop,
) -> None:
    process = loop.process("p")
    effects: list[str] = []
    closed: list[str] = []

    async def write() -> None:
        effects.append("written")

    async def work() -> None:
        loop.call_later(5, effects.append, "timer")
        try:
            await asyncio.sleep(10)
            effects.append("woke")
        finally:
            closed.append("finally")
            loop.call_soon(effects.append, "call_soon")
            task = asyncio.create_task(write())
            await task
            effects.append("after the await in finally")

    async def main() -> None:
        task = process.spawn(work())
        process.on_death(lambda: closed.append("told"))
        await asyncio.sleep(1)
        process.crash()
        process.crash()
        await asyncio.sleep(20)
        assert not task.done()
        assert not process.alive

    loop.run(main())
    assert effects == []
    assert closed == ["told", "finally"]


def test_a_process_that_kills_itself_ends_at_its_next_await(loop: SimLoop) -> None:
    process = loop.process("p")
    seen: list[str] = []

    async def work() -> None:
        process.crash()
        seen.append("same step")
        await asyncio.sleep(0)
        seen.append("never")

    async def main() -> None:
        process.spawn(work())
        await asyncio.sleep(1)

    loop.run(main())
    assert seen == ["same step"]


def test_a_process_can_be_struck_between_any_two_of_its_callbacks(loop: SimLoop) -> None:
    struck: list[int] = []
    for callbacks in (1, 2, 3):
        process = loop.process(f"p{callbacks}")
        seen: list[int] = []

        async def work(process: Process = process, seen: list[int] = seen) -> None:
            for number in range(10):
                seen.append(number)
                await asyncio.sleep(0)

        async def main(process: Process = process, callbacks: int = callbacks) -> None:
            process.after(callbacks, process.crash)
            process.spawn(work())
            await asyncio.sleep(1)

        loop.run_until_complete(main())
        struck.append(len(seen))
    assert struck == [1, 2, 3]


def test_coroutines_that_await_while_they_are_closed_are_closed_all_the_same(
    loop: SimLoop, recwarn: pytest.WarningsRecorder
) -> None:
    process = loop.process("p")

    async def stubborn() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(100))
                await asyncio.sleep(100)
        finally:
            for _ in range(3):
                try:
                    await asyncio.sleep(1)
                except GeneratorExit:
                    await asyncio.sleep(1)

    async def main() -> None:
        process.spawn(stubborn())
        process.spawn(asyncio.sleep(1))  # not even begun
        await asyncio.sleep(0)
        process.spawn(asyncio.sleep(1))
        process.crash()
        process.spawn(asyncio.sleep(1))  # born dead
        await asyncio.sleep(1)

    loop.run(main())
    assert not recwarn.list


def test_what_is_started_while_the_loop_closes_is_born_dead(
    loop: SimLoop, recwarn: pytest.WarningsRecorder
) -> None:
    process = loop.process("p")
    ended: list[str] = []

    async def clean_up() -> None:
        ended.append("never")

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.create_task(clean_up())

    async def main() -> None:
        process.spawn(work())
        await asyncio.sleep(1)

    loop.run(main())
    assert ended == []
    assert not recwarn.list


def test_a_restart_is_a_new_process_of_the_same_name_on_the_same_machine(loop: SimLoop) -> None:
    first = loop.process("p")
    with pytest.raises(SimulationError, match="runs already"):
        loop.process("p")
    first.crash()
    second = loop.process("p")
    assert (first.incarnation, second.incarnation) == (1, 2)
    assert second.machine is first.machine
    assert second.alive
