"""What takes long is asked in the background, once, and shown as far as it is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sexton import errors
from sexton_console.web.errands import Errands, Found


class Clock:
    """A clock that is set."""

    now_s = 0.0

    def monotonic_ns(self) -> int:
        return round(self.now_s * 1e9)

    wall_ns = boot_ns = monotonic_ns

    def boot_id(self) -> str:
        return "boot"


class Slow:
    """An answer in two parts, of which the second one waits to be let go."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = asyncio.Event()

    async def parts(self) -> AsyncIterator[int]:
        self.asked += 1
        yield 10 * self.asked + 1
        await self.go.wait()
        yield 10 * self.asked + 2


def test_a_part_is_shown_until_the_whole_is_there_and_nothing_is_asked_twice() -> None:
    async def scenario() -> None:
        clock, slow = Clock(), Slow()
        errands = Errands(clock)

        async def look(wait_s: float = 0.01) -> Found[int]:
            return await errands.answer("k", 2, slow.parts, wait_s=wait_s)

        found = await asyncio.gather(look(), look())
        assert found == [Found(11, complete=False)] * 2
        clock.now_s = 1.0
        slow.go.set()
        assert await look(5) == Found(12, complete=True)
        clock.now_s = 20.9  # it took a second: for twenty it is not asked again
        assert await look(5) == Found(12, complete=True)
        assert slow.asked == 1
        clock.now_s = 21.1
        slow.go.clear()
        assert await look(5) == Found(12, complete=True)  # the old whole, at once
        await asyncio.sleep(0)
        assert slow.asked == 2
        slow.go.set()
        await asyncio.sleep(0.01)
        assert await look(5) == Found(22, complete=True)
        errands.forget()
        assert await look(5) == Found(32, complete=True)
        await errands.stop()

    asyncio.run(scenario())


def test_why_an_answer_is_missing_is_told_and_what_is_known_of_it_stays() -> None:
    async def scenario() -> None:
        errands = Errands(Clock())

        async def fails() -> AsyncIterator[int]:
            yield 1
            raise errors.Unavailable("nobody is there")

        found = await errands.answer("k", 2, fails)
        assert (found.value, found.complete) == (1, True)
        assert "nobody is there" in found.absent
        await errands.stop()

    asyncio.run(scenario())


def test_only_so_many_questions_are_remembered_and_all_end_with_the_console() -> None:
    async def scenario() -> None:
        errands, slow = Errands(Clock()), Slow()
        for number in range(150):
            await errands.answer(str(number), 2, slow.parts, wait_s=0)
        assert sum(task.get_name().startswith("ask") for task in asyncio.all_tasks()) <= 101
        await errands.stop()
        await errands.stop()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("ask")]

    asyncio.run(scenario())
