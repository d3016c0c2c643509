"""Queue and workers: who decides does not do, and a run outlives the worker that had it."""

from __future__ import annotations

from collections import Counter

from sexton_core.instants import MINUTE, SECOND, Instant
from sexton_demos.telling import MIDNIGHT, Numbers, Page, Told, by_appearance, plural
from sexton_demos.town import Town, at

DUE: Instant = MIDNIGHT + 3 * MINUTE
KILLED: Instant = DUE + 20 * SECOND
OWNER_KILLED: Instant = DUE + 40 * SECOND
CUT_OFF: Instant = DUE + 10 * SECOND
BACKUPS = 5


async def a_worker_dies(town: Town) -> None:
    """Five backups of a minute at once; a worker is killed, later the owner of the queue."""
    await town.until(DUE - MINUTE)
    for number in range(1, BACKUPS + 1):
        await town.create(f"backup-{number}", lasts_s=60, schedules=at("00:03:00"))
    await town.until(KILLED)
    ((busiest, _),) = Counter(attempt.worker for attempt in town.attempts()).most_common(1)
    town.kill(busiest)
    await town.until(OWNER_KILLED)
    town.kill(await town.owner())
    await town.until(DUE + 90 * SECOND)


async def a_worker_is_cut_off(town: Town) -> None:
    """A worker lives and works, and nobody can reach it."""
    await town.until(DUE - MINUTE)
    await town.create("charge", lasts_s=20, schedules=at("00:03:00"))
    await town.until(CUT_OFF)
    town.isolate(town.attempts()[0].worker)
    await town.until(DUE + 60 * SECOND)


def tell() -> Told:
    """Tells the stage."""
    page = Page()
    page.say(
        "The leader only decides: its one commit puts the run in line. A queue hands it to a",
        "worker that has a free slot, and takes back what became of it. The five backups again:",
    )
    town = Town.show(a_worker_dies)
    attempts = town.attempts()
    on_time, again = attempts[:BACKUPS], attempts[BACKUPS:]
    begun = Counter(attempt.worker for attempt in on_time).most_common()
    names = by_appearance(worker for worker, _ in begun)
    for worker, number in begun:
        page.at(on_time[0].began, f"{names[worker]} begins {plural(number, 'backup')}")
    (dead, number), *_ = begun
    page.at(KILLED, f"{names[dead]} is killed, and {number} backups with it")
    gap_s = (again[0].began - KILLED) / SECOND
    assert all(attempt.number == 2 for attempt in again)
    others = " and ".join(sorted({names[attempt.worker] for attempt in again}))
    page.at(again[0].began, f"{others}: they begin again, as attempt 2, under higher tokens")
    page.at(OWNER_KILLED, "the queue that owns the line is killed. The workers work on, and report")
    page.say("              to the other queue, which holds the lease by then")
    done = [attempt for attempt in attempts if attempt.how == "succeeded"]
    last = max(attempt.ended or 0 for attempt in done)
    page.at(last, f"the last of {plural(len(done), 'backup')} is done")
    page.conclude(
        f"All begin on time. The dead worker's runs are elsewhere after {gap_s:.1f} s: its"
        " connection broke, and it did not come back within the grace of 2 s."
    )
    page.say("")
    charged_again = tell_wall(page)
    return page.told(
        after=Numbers(
            doubled=len(done) - len({attempt.job for attempt in done}),
            lost=BACKUPS - len({attempt.job for attempt in done}),
            late_s=max(attempt.began - DUE for attempt in on_time) / SECOND,
            gap_s=gap_s,
        ),
        wall=Numbers(doubled=charged_again),
    )


def tell_wall(page: Page) -> int:
    """Tells what a queue alone can't help; gives how many effects there were too many."""
    page.say("THE WALL: who is silent need not be dead. A run charges a customer, at its end:")
    first, second = attempts = Town.show(a_worker_is_cut_off).attempts()
    names = by_appearance(attempt.worker for attempt in attempts)
    lonely, other = names.values()
    page.at(first.began, f"{lonely} begins")
    page.at(CUT_OFF, f"{lonely} loses its network; it lives, works, and can tell nobody")
    page.at(second.began, f"{other} begins: attempt {second.number}")
    for attempt in attempts:
        page.at(attempt.ended or 0, f"{names[attempt.worker]} charges the customer")
    charged = sum(attempt.how == "succeeded" for attempt in attempts)
    page.say(f"  One run, and the customer is charged {charged} times.")
    return charged - 1
