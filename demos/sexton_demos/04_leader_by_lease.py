"""A leader by lease: three copies, of which one acts, and stand-ins that notice its death."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from sexton_core.instants import MINUTE, SECOND, Instant, format_instant, parse_instant
from sexton_core.schedule import Schedule
from sexton_core.schedules import AtTiming, EveryTiming, ScheduleSpec, build
from sexton_demos.diary import Diary
from sexton_demos.scene import Scene
from sexton_demos.telling import MIDNIGHT, Numbers, Page, Told, plural
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.lease_keeper import LeaseKeeper
from sexton_runtime.kv.types import Put, Txn, prefix_end
from sexton_sim.process import Process

NAMES = ("copy-1", "copy-2", "copy-3")
TTL_S: Final = 2.0
BELLS: Final = 6
BACKUPS: Final = 5
DUE: Final[Instant] = MIDNIGHT + 3 * MINUTE


class Job(NamedTuple):
    """What is to be done, when, and how long it takes."""

    name: str
    schedule: Schedule
    lasts_s: float = 0.0


class Copies:
    """The same program on three machines, around one store."""

    def __init__(self, scene: Scene, jobs: Sequence[Job], *, lease: bool) -> None:
        self.diary = Diary(lambda: scene.now)
        self._scene = scene
        self._jobs = {job.name: job for job in jobs}
        self._keepers: dict[str, LeaseKeeper] = {}
        live = self._compete if lease else self._live
        self._processes = {name: scene.start(name, partial(live, name)) for name in NAMES}

    def kill_leader(self) -> None:
        """Kill -9."""
        leader = self.diary.last("leads").who
        self.diary.note(leader, "dies")
        self._processes[leader].crash()

    def stop_leader(self) -> None:
        """SIGTERM: it gives its lease back."""
        leader = self.diary.last("leads").who
        self.diary.note(leader, "stops")
        self._processes[leader].spawn(self._keepers[leader].stop())

    async def _live(self, name: str, process: Process) -> None:
        """Does what is due, as the others do."""
        async with self._scene.client(process) as store:
            await self._act(name, process, store)

    async def _compete(self, name: str, process: Process) -> None:
        """Does what is due under the lease, or waits until the lease is gone."""
        dice = self._scene.randomness(process)
        async with (
            self._scene.client(process) as store,
            LeaseKeeper(store, clock=process.clock, randomness=dice) as keeper,
        ):
            self._keepers[name] = keeper
            lease = await keeper.acquire("leader", ttl_s=TTL_S)
            self.diary.note(name, "leads")
            acting = asyncio.create_task(self._act(name, process, store))
            await lease.lost.wait()
            acting.cancel()

    async def _act(self, name: str, process: Process, store: StoreClient) -> None:
        """The loop of the second stage: one commit, do, note. What was begun comes first."""
        for kv in (await store.scan(b"runs/", prefix_end(b"runs/"))).kvs:
            if kv.value == b"to do":
                await self._do(name, store, kv.key)
        (kv,) = (await store.get([b"cursor"])).kvs
        cursor = parse_instant(kv.value.decode()) if kv.value else process.clock.wall_ns()
        while True:
            times = {job: it.schedule.next_after(cursor) for job, it in self._jobs.items()}
            cursor = min(time for time in times.values() if time is not None)
            await asyncio.sleep(max(0, cursor - process.clock.wall_ns()) / SECOND)
            text = format_instant(cursor)
            runs = [f"runs/{text}/{job}".encode() for job, time in times.items() if time == cursor]
            noted = (*(Put(key, b"to do") for key in runs), Put(b"cursor", text.encode()))
            await store.commit([Txn(then=noted)])
            for key in runs:
                await self._do(name, store, key)

    async def _do(self, name: str, store: StoreClient, key: bytes) -> None:
        _, time, job = key.decode().split("/")
        self.diary.note(name, job, parse_instant(time))
        await asyncio.sleep(self._jobs[job].lasts_s)
        await store.commit([Txn(then=(Put(key, b"done"),))])


# What is played -------------------------------------------------------------------------------

BELL = Job("rings", build(ScheduleSpec(timing=EveryTiming(period_ns=10 * SECOND))))


async def three_at_once(diaries: list[Diary], scene: Scene) -> None:
    """Lets three copies act for a minute."""
    diaries.append(Copies(scene, [BELL], lease=False).diary)
    await asyncio.sleep(61)


async def one_of_three(diaries: list[Diary], scene: Scene) -> None:
    """Kills the leader just before a bell; later the next one is stopped in order."""
    copies = Copies(scene, [BELL], lease=True)
    diaries.append(copies.diary)
    await asyncio.sleep(29.2)
    copies.kill_leader()
    await asyncio.sleep(15.3)
    copies.stop_leader()
    await asyncio.sleep(16.5)


async def too_much_for_one(diaries: list[Diary], scene: Scene) -> None:
    """Gives the leader five backups at once, a minute each; it dies in the middle of one."""
    once = build(ScheduleSpec(timing=AtTiming(instants=(DUE, DUE + 999 * MINUTE))))
    backups = [Job(f"backup-{number}", once, 60.0) for number in range(1, BACKUPS + 1)]
    copies = Copies(scene, backups, lease=True)
    diaries.append(copies.diary)
    await asyncio.sleep(330.4)
    copies.kill_leader()
    await asyncio.sleep(250)


# The story ------------------------------------------------------------------------------------


def tell() -> Told:
    """Tells the stage."""
    diaries: list[Diary] = []
    for play in (three_at_once, one_of_three, too_much_for_one):
        Scene.show(partial(play, diaries))
    three, one, busy = diaries
    page = Page()
    page.say("Three copies of the sexton on three machines, one store, a bell every 10 seconds.")
    for event in sorted(three.told()[:6], key=lambda event: (event.nominal, event.who)):
        page.at(event.at, f"{event.who} {event.what}")
    page.say(
        f"  After a minute: {len(three.done())} bells instead of {BELLS}."
        " Each copy is right; together they are wrong.",
        "",
        f"A lease is a key in the store that is gone {TTL_S:g} s after its last renewal. Whoever",
        "creates it acts and renews it; the others watch it and wait until it is gone.",
    )
    remarks = {"dies": " (kill -9), just before a bell", "stops": " (SIGTERM)"}
    for event in one.told():
        late = f", {event.late_s:.1f} s late, not lost" if event.late_s > 0.5 else ""
        page.at(event.at, f"{event.who} {event.what}{late}{remarks.get(event.what, '')}")
    died_s, stopped_s = (one.gap_s(after=what, until="leads") for what in ("dies", "stops"))
    page.conclude(
        f"{plural(len(one.done()), 'bell')} in a minute. Who dies is replaced after {died_s:.1f} s,"
        f" who says goodbye after {stopped_s:.1f} s."
    )
    page.say(
        "",
        f"THE WALL: {BACKUPS} backups of a minute each are due at 00:03:00. The leader does them:",
    )
    for event in busy.told()[1:]:
        late = f", {event.late_s / 60:.1f} min late" if event.late_s > 0.5 else ""
        page.at(event.at, f"{event.who} {'begins ' if event.nominal else ''}{event.what}{late}")
    page.say("  One works and two look on. What the dead one had half done is done again.")
    return page.told(
        before=Numbers(doubled=three.doubled(), lost=BELLS - len(three.answered())),
        after=Numbers(doubled=one.doubled(), lost=BELLS - len(one.answered()), gap_s=died_s),
        wall=Numbers(doubled=busy.doubled(), late_s=max(it.late_s for it in busy.done())),
    )
