"""A durable store: kill the sexton, and nothing is forgotten."""

from __future__ import annotations

import asyncio
from typing import Final

from sexton_core.instants import Instant
from sexton_core.schedule import between
from sexton_demos.crowd import Crowd, count, look_at_every_job
from sexton_demos.ringer import END, EVERY_MINUTE, Sexton, Way, write
from sexton_demos.scene import Scene
from sexton_demos.telling import MIDNIGHT, Numbers, Page, Told
from sexton_runtime.kv.client import StoreClient

JOBS: Final = 10_000

# The ideas ------------------------------------------------------------------------------------


async def in_memory(sexton: Sexton, store: StoreClient, nominal: Instant) -> None:
    """The loop of the first stage."""
    del store
    await sexton.ring(nominal)


async def note_then_do(sexton: Sexton, store: StoreClient, nominal: Instant) -> None:
    """Never twice."""
    await write(store, sexton.cursor(nominal))
    await sexton.ring(nominal)


async def do_then_note(sexton: Sexton, store: StoreClient, nominal: Instant) -> None:
    """Never not at all."""
    await sexton.ring(nominal)
    await write(store, sexton.cursor(nominal))


async def one_commit(sexton: Sexton, store: StoreClient, nominal: Instant) -> None:
    """The decision is a record of its own: the run, and the step of the cursor over it."""
    await write(store, sexton.run(nominal, b"to do"), sexton.cursor(nominal))
    await sexton.ring(nominal)
    await write(store, sexton.run(nominal, b"done"))


# The story ------------------------------------------------------------------------------------

WAYS: dict[Way, str] = {
    in_memory: "in its head",
    note_then_do: "note, then do",
    do_then_note: "do, then note",
    one_commit: "one commit",
}
MOMENTS = {
    "waits": "while it waits, 00:03:30",
    "works": "at work, 00:03:10",
    "after": "after work, before its note",
}
Sextons = dict[tuple[str, Way], Sexton]


async def kill_and_restart(sextons: Sextons, scene: Scene) -> None:
    """Lets every way be killed at every moment, side by side; later the store itself, too."""
    for moment in MOMENTS:
        for way in WAYS:
            sextons[moment, way] = Sexton(scene, way, moment)
            sextons[moment, way].start()
    for moment, pause_s in (("works", 190), ("waits", 20)):
        await asyncio.sleep(pause_s)
        for way in WAYS:
            sextons[moment, way].process.crash()
    await asyncio.sleep(180)
    for sexton in sextons.values():
        sexton.start()
    await asyncio.sleep(120)
    scene.store.crash()  # it is started again a moment later: it has a disk
    await asyncio.sleep(240)


def tell() -> Told:
    """Tells the stage."""
    sextons: Sextons = {}
    Scene.show(lambda scene: kill_and_restart(sextons, scene))
    page = Page()
    page.say(
        "A store keeps what it has acknowledged, also over kill -9. A bell every minute, which",
        "takes 20 s of work. The sexton is killed around 00:03, and is back at 00:06:30:",
        "",
    )
    page.table(
        ("killed ...", *WAYS.values()),
        ((told, *(cell(sextons[it, way]) for way in WAYS)) for it, told in MOMENTS.items()),
    )
    looked = count(look_at_every_job(Crowd(JOBS))).looked
    page.say(
        "",
        "  note, then do   what was noted and not done is lost.",
        "  do, then note   what was done and not noted is done again.",
        "  one commit      writes the run, to do, AND moves the cursor over its time, or neither.",
        "                  Whoever starts next finds the run. The last row still rings twice: no",
        "                  store can know of work that nobody has noted (stage 6).",
        "",
        "At 00:08:30 the store itself was killed, too. Its disk has everything; started again, it",
        "goes on, and no bell of the minutes to 00:10 is missing.",
        "",
        f"THE WALL: the town grows to {JOBS:,} jobs, one of them due each second. At each tick the",
        f"loop asks all of them whether they are due: it looks at {looked:,.0f} jobs to find 1.",
    )
    ours = [judge(sextons[moment, one_commit]) for moment in MOMENTS]
    return page.told(
        after=Numbers(looked=looked, doubled=sum(n for _, n in ours), lost=sum(n for n, _ in ours)),
        wall=Numbers(looked=looked),
    )


def judge(sexton: Sexton) -> tuple[int, int]:
    """Counts the bells that were lost, and those that rang twice."""
    rung = [sexton.rung[nominal] for nominal in between(EVERY_MINUTE, MIDNIGHT, END, 100)]
    return rung.count(0), sum(times > 1 for times in rung)


def cell(sexton: Sexton) -> str:
    """Says it in a word."""
    lost, twice = judge(sexton)
    return f"{lost} LOST" if lost else f"{twice} TWICE" if twice else "ok"
