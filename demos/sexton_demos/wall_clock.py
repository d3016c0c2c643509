"""Time as a person without a plan tells it: by the clock on the wall."""

from __future__ import annotations

import asyncio
from zoneinfo import ZoneInfo

from sexton_core.instants import HOUR, MINUTE, SECOND, Duration, Instant, parse_instant, to_datetime
from sexton_demos.telling import MIDNIGHT
from sexton_sim.loop import SimLoop


def ring_by_own_clock(due: Instant, *, fast_ns: Duration) -> Instant:
    """Tells when somebody whose clock is fast believes that it is time."""
    loop = SimLoop()
    process = loop.process("copy", loop.machine("copy", wall_ns=MIDNIGHT + fast_ns))

    async def ring() -> Instant:
        await asyncio.sleep((due - process.clock.wall_ns()) / SECOND)
        return loop.system.clock.wall_ns()

    async def main() -> Instant:
        return await process.spawn(ring())

    return loop.run(main())


def minutes_showing(day: str, time: str, zone: str) -> list[Instant]:
    """Gives the minutes of a day at which the clocks of a zone show a time: the simplest cron."""
    noon = parse_instant(f"{day}T12:00:00Z")
    return [
        instant
        for instant in range(noon - 26 * HOUR, noon + 26 * HOUR, MINUTE)
        if f"{to_datetime(instant).astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}" == f"{day} {time}"
    ]
