"""The heap: what looking at every job costs against looking at one."""

from __future__ import annotations

import asyncio
from functools import partial

from sexton_coordinator.leader.horizon import HORIZON_NS, Horizon
from sexton_core.instants import HOUR, MINUTE, SECOND, Instant, format_duration
from sexton_demos.crowd import Count, Crowd, Tick, count, look_at_every_job
from sexton_demos.scene import Scene
from sexton_demos.telling import MIDNIGHT, Numbers, Page, Told
from sexton_records import keys
from sexton_runtime.kv.types import Put, Txn
from sexton_sim.loop import SimLoop
from sexton_sim.process import Process

SIZES = (10, 100, 1_000, 10_000)
MOST = SIZES[-1]
DIES = MIDNIGHT + 3 * HOUR - 30 * SECOND
BACK = MIDNIGHT + 7 * HOUR + 12 * MINUTE

# The idea -------------------------------------------------------------------------------------


def look_at_the_first(crowd: Crowd) -> Tick:
    """The coordinator's own heap: the soonest job is on top, so that one look says enough."""
    horizon = Horizon()
    horizon.begin_loading(MIDNIGHT + 2 * MOST * SECOND)
    for job, due in crowd.due().items():
        horizon.arm(job, due)

    def tick(now: Instant) -> tuple[list[str], int]:
        done = horizon.take(now, limit=100)
        for job in done:
            horizon.arm(job, crowd.after(job, now))
        return done, len(done)

    return tick


# The story ------------------------------------------------------------------------------------


def tell() -> Told:
    """Tells the stage."""
    counts: list[tuple[int, Count, Count]] = []
    for size in SIZES:
        crowd = Crowd(size)
        counts.append((size, count(look_at_every_job(crowd)), count(look_at_the_first(crowd))))
    page = Page()
    page.say(
        "One job is due each second, and a tick finds it. A comparison asks whether one time",
        "is earlier than another. A hundred ticks, on average:",
        "",
    )
    page.table(
        ("jobs", "every job: looked at", "compared", "the heap: looked at", "compared"),
        (
            (f"{size:,}", *(f"{number:,.0f}" for number in (*every, *heap)))
            for size, every, heap in counts
        ),
    )
    found, read = load_near_horizon(Crowd(MOST))
    page.say(
        "",
        "In a heap the soonest job is on top, and what is put back sinks to its place: ten times",
        "the jobs cost three comparisons more. The heap dies with its process, so the store keeps",
        "the same order: a timer's key begins with its time. Whoever starts reads one minute",
        f"ahead, not everything: {read:,} of {found:,} timers.",
        "",
        "THE WALL: it is one process, on one machine, and it is night.",
    )
    rung = ring_alone()
    before = max(at for at in rung if at < DIES)
    after = min(at for at in rung if at > DIES)
    page.at(before, "a bell rings, as every minute")
    page.at(DIES, "the machine dies. The jobs are safe in the store, and nobody looks")
    page.at(after, "somebody has come to work and started another: a bell rings")
    gap = format_duration(after - DIES)
    page.say(f"  For {gap} nothing happened. So let three processes run at once?")
    return page.told(
        after=Numbers(looked=counts[-1][2].looked),
        wall=Numbers(gap_s=(after - DIES) / SECOND),
    )


def load_near_horizon(crowd: Crowd) -> tuple[int, int]:
    """Keeps timers in the store, in order; gives how many there are, and how many are read."""
    read: list[int] = []

    async def successor(scene: Scene, process: Process) -> None:
        async with scene.client(process) as store:
            timers = [keys.timer_key(0, due, job) for job, due in crowd.due().items()]
            puts = [Put(key, b"") for key in timers]
            for first in range(0, len(puts), 100):
                await store.commit([Txn(then=tuple(puts[first : first + 100]))])
            until = keys.timers_until(0, process.clock.wall_ns() + HORIZON_NS)
            page = await store.scan(keys.timers_prefix(0), until)
            read.extend((len(puts), len(page.kvs)))

    Scene.show(lambda scene: scene.finish("successor", partial(successor, scene)))
    found, near = read
    return found, near


def ring_alone() -> list[Instant]:
    """A bell each minute from one process, which dies; somebody starts another in the morning."""
    rung: list[Instant] = []
    loop = SimLoop()

    async def live(process: Process) -> None:
        while True:
            await asyncio.sleep(60 - process.clock.wall_ns() / SECOND % 60)
            rung.append(process.clock.wall_ns())

    async def night() -> None:
        for since, until in ((MIDNIGHT, DIES), (BACK, BACK + 2 * MINUTE)):
            await asyncio.sleep((since - MIDNIGHT - loop.now_ns) / SECOND)
            process = loop.process("sexton")
            process.spawn(live(process))
            await asyncio.sleep((until - since) / SECOND)
            process.crash()

    loop.run(night())
    return rung
