"""What is expected of the owners of queues, and what becomes of it."""

from __future__ import annotations

import asyncio

from sexton_coordinator.ends import MOST_EXPECTED, Ends, RunEnd


def test_who_asks_before_and_after_a_notice_gets_it() -> None:
    async def scenario() -> None:
        ends = Ends()
        ends.expect(b"run")
        before = ends.of(b"run")
        assert before is not None
        assert not before.done()
        ends.tell(b"run", RunEnd(b"record", 7))
        after = ends.of(b"run")
        assert after is not None
        assert await before == await after == RunEnd(b"record", 7)

    asyncio.run(scenario())


def test_nobody_waits_for_a_notice_that_does_not_come() -> None:
    async def scenario() -> None:
        ends = Ends()
        assert ends.of(b"never pushed") is None
        ends.expect(b"run")
        waited = ends.of(b"run")
        assert waited is not None
        ends.give_up([b"run", b"never pushed"])
        assert await waited is None
        assert ends.of(b"run") is None
        ends.tell(b"run", RunEnd(b"too late", 7))

    asyncio.run(scenario())


def test_of_too_many_the_oldest_are_given_up() -> None:
    async def scenario() -> None:
        ends = Ends()
        for number in range(MOST_EXPECTED + 1):
            ends.expect(b"%d" % number)
        assert ends.of(b"0") is None
        assert ends.of(b"1") is not None

    asyncio.run(scenario())
