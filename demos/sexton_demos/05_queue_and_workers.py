"""Queue and workers: who decides does not do, and a run outlives the worker that had it."""

from __future__ import annotations

from collections import Counter

from sexton_core.instants import MINUTE, SECOND, Instant
from sexton_demos.telling import MIDNIGHT, Numbers, Page, Told, plural
from sexton_demos.town import Town, at

DUE: Instant = MIDNIGHT + 3 * MINUTE
KILLED: Instant = DUE + 20 * SECOND
OWNER_KILLED: Instant = DUE + 40 * SECOND
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
    await town.until(DUE + 10 * SECOND)
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
    on_time.sort(key=lambda attempt: attempt.job)
    dead_worker, dead_owner = town.killed()
    for attempt in on_time:
        page.at(attempt.began, f"{attempt.worker} begins {attempt.job}")
    page.at(KILLED, f"{dead_worker} is killed, with all that it has begun")
    for attempt in again:
        number = f"attempt {attempt.number}, under a higher token"
        page.at(attempt.began, f"{attempt.worker} begins {attempt.job}: {number}")
    page.at(OWNER_KILLED, f"{dead_owner} is killed, the owner of the line; the workers work on,")
    page.say("              and report to the other queue, which holds the lease now")
    done = [attempt for attempt in attempts if attempt.how == "succeeded"]
    last = max(attempt.ended or 0 for attempt in done)
    page.at(last, f"the last of {plural(len(done), 'backup')} is done")
    gap_s = (again[0].began - KILLED) / SECOND
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
    page.at(first.began, f"{first.worker} begins")
    page.at(
        DUE + 10 * SECOND, f"{first.worker} loses its network; it lives, works, and tells nobody"
    )
    page.at(second.began, f"{second.worker} begins: attempt {second.number}")
    for attempt in attempts:
        page.at(attempt.ended or 0, f"{attempt.worker} charges the customer")
    charged = sum(attempt.how == "succeeded" for attempt in attempts)
    page.say(f"  One run, and the customer is charged {charged} times.")
    return charged - 1
