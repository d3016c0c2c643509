"""Idempotency and fencing: what comes twice counts once, and who was replaced is refused."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from sexton.errors import Fenced
from sexton.internal.v1 import records_pb2
from sexton.v1 import run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_core.instants import MINUTE, SECOND, Instant, to_datetime
from sexton_demos.diary import Diary
from sexton_demos.scene import Scene
from sexton_demos.telling import MIDNIGHT, Numbers, Page, Told, by_appearance, plural
from sexton_demos.town import Attempt, Town, at
from sexton_demos.wall_clock import minutes_showing, ring_by_own_clock
from sexton_records import keys
from sexton_runtime.kv.lease_keeper import LeaseKeeper
from sexton_runtime.kv.types import Outcome, Put, Txn
from sexton_sim.mesh.plan import NAMESPACE
from sexton_sim.process import Process

DUE: Final[Instant] = MIDNIGHT + 3 * MINUTE
BACK: Final[Instant] = DUE + 25 * SECOND

# One run, two workers -------------------------------------------------------------------------


async def charge(town: Town) -> None:
    """The customer of the last stage; at last the worker that was cut off is back."""
    await town.until(DUE - MINUTE)
    await town.create("charge", lasts_s=20, schedules=at("00:03:00"))
    await town.until(DUE + 10 * SECOND)
    town.isolate(town.attempts()[0].worker)
    await town.until(BACK)
    town.join_again()
    await town.until(DUE + MINUTE)


class Till:
    """Where money is taken: it remembers the keys under which it has done so."""

    def __init__(self) -> None:
        self.done: set[str] = set()
        self.refused = 0

    def charge(self, key: str) -> bool:
        """Charges, unless it has done so under this key; tells whether it did."""
        known = key in self.done
        self.done.add(key)
        self.refused += known
        return not known


def tell_charge(page: Page) -> tuple[int, int]:
    """Tells it; gives what was charged too often, and how much was refused."""
    town = Town.show(charge)
    first, second = town.attempts()
    assert first.ended is not None
    assert second.ended is not None
    page.say(
        "A run keeps its id from attempt to attempt: the idempotency key of its effect. Each",
        "attempt has a token of its own, a higher one. Two tills, which ask for one of them:",
    )
    lonely, other = by_appearance((first.worker, second.worker)).values()
    page.at(first.began, f"{lonely} begins to charge, and loses its network 10 s later")
    page.at(second.began, f"{other} begins: the same key, a higher token")
    by_key = Till()
    page.at(first.ended, f"{lonely} charges. {both(by_key, first)}")
    page.at(BACK, f"{lonely} is back, and reports that it {first.how}: refused")
    page.at(second.ended, f"{other} charges. {both(by_key, second)}")
    ((_, record),) = town.written(keys.RUNS)
    run = records_pb2.RunRecord.FromString(record)
    names = [run_pb2.AttemptState.Name(attempt.state) for attempt in run.attempts]
    lost, succeeded = (name.removeprefix("ATTEMPT_STATE_").lower() for name in names)
    page.say(f"  Each till has charged once. In the record attempt 1 is {lost}, 2 has {succeeded}.")
    by_token = [first.admitted, second.admitted]
    charged = max(len(by_key.done), sum(by_token))
    return charged - 1, by_key.refused + by_token.count(False) + (run.token != first.token)


def both(by_key: Till, attempt: Attempt) -> str:
    """Says what the two tills do about an attempt's effect."""
    keyed = "done" if by_key.charge(attempt.run_id) else "refused, it was done"
    return f"By key: {keyed}. By token: {'done' if attempt.admitted else 'refused, replaced'}"


async def trigger_again(runs: list[str], town: Town) -> None:
    """Somebody asks for a run, hears nothing, and asks again: perhaps another coordinator."""
    await town.until(MIDNIGHT + 5 * SECOND)
    await town.create("report")
    name = f"namespaces/{NAMESPACE}/jobs/report"
    for _ in range(3):
        answer = await town.user.call(
            "TriggerJob", api.TriggerJobRequest(name=name, request_id="x")
        )
        runs.append(answer.run.name)
        await asyncio.sleep(5)


# A leader that slept --------------------------------------------------------------------------


class Oversleeping:
    """A leader is suspended with a write in its hand, and wakes up when another leads."""

    def __init__(self, scene: Scene) -> None:
        self.diary = Diary(lambda: scene.now)
        self.sent: dict[str, Outcome] = {}
        self._scene = scene

    async def play(self) -> None:
        """Plays it."""
        note = self.diary.note
        first = self._scene.start("copy-1", partial(self._live, "copy-1"))
        await asyncio.sleep(2)
        self._scene.start("copy-2", partial(self._live, "copy-2"))
        await asyncio.sleep(1)
        note("copy-1", "is suspended: a paused machine, a closed lid")
        first.suspend()
        await asyncio.sleep(5)
        note("copy-1", "wakes up, and has no idea that it was away")
        first.resume()
        await asyncio.sleep(1)

    async def _live(self, name: str, process: Process) -> None:
        note, dice = self.diary.note, self._scene.randomness(process)
        async with (
            self._scene.client(process) as store,
            LeaseKeeper(store, clock=process.clock, randomness=dice) as keeper,
        ):
            lease = await keeper.acquire("leader", ttl_s=2.0)
            note(name, "leads, and has a write ready")
            write = Txn(then=(Put(b"cursor", name.encode()),))
            fenced = write._replace(compares=(lease.fence(),))
            await asyncio.sleep(5)
            try:
                await lease.commit([write])
            except Fenced:
                note(name, "asks its lease first, as the house does: nothing is sent")
            for how, txn in (("with", fenced), ("without", write)):
                (result,) = await store.commit([txn])
                self.sent[how] = result.outcome
                note(name, f"sends it all the same, {how} its token: {result.outcome.name}")


# The story ------------------------------------------------------------------------------------


def tell() -> Told:
    """Tells the stage."""
    page = Page()
    doubled, refused = tell_charge(page)
    runs: list[str] = []
    town = Town.show(partial(trigger_again, runs))
    page.say(
        f"  A person asks for a run, {len(runs)} times with one request id:"
        f" {plural(len(set(runs)), 'run')}, executed {len(town.attempts())} time.",
        "",
        "A leader has a token, too: the revision of the commit that created its lease. The store",
        "compares it in the very commit that writes. No clock is asked.",
    )
    played: list[Oversleeping] = []

    async def play(scene: Scene) -> None:
        played.append(Oversleeping(scene))
        await played[0].play()

    Scene.show(play)
    for event in played[0].diary.events:
        page.at(event.at, f"{event.who} {event.what}")
    stale = played[0].sent
    page.say(
        "", "THE WALL: all of this is about who, and nobody has asked when. By the wall clock:"
    )
    due = MIDNIGHT + 10 * MINUTE
    early = ring_by_own_clock(due, fast_ns=5 * MINUTE)
    page.at(early, "a copy rings for 00:10, because its clock is five minutes fast")
    lost = again = 0
    for day in ("2027-03-28", "2027-10-31"):
        times = [to_datetime(each) for each in minutes_showing(day, "02:30", "Europe/Berlin")]
        lost, again = lost + (not times), again + max(0, len(times) - 1)
        shown = " and ".join(f"{each:%H:%M} UTC" for each in times) or "never"
        page.say(f"  {day}  the backup of 02:30 in Berlin runs: {shown}")
    return page.told(
        before=Numbers(refused=int(stale["without"] is Outcome.REFUSED)),
        after=Numbers(doubled=doubled, refused=refused + (stale["with"] is Outcome.REFUSED)),
        wall=Numbers(doubled=again, lost=lost),
    )
