"""Starts that are written shortly before they are due. Pure.

A start that rests on nothing is committed up to `AHEAD_NS` before its time. It does not begin
earlier: its due time is its not-before time (`Run.assignable_at` tells when it may be handed out).
So what is due together is in line when it is due, and starts that are spread are written together.

Whoever changes such a job waits for the time to pass (`ahead_until`), and has the store refuse what
comes earlier. So a change takes effect where it is committed: after that start, and before every
later one.
"""

from collections.abc import Collection, Iterable
from typing import Final

from sexton_core.ids import RunId
from sexton_core.instants import MILLISECOND, SECOND, Duration, Instant
from sexton_core.policy._gate import ASKS
from sexton_core.policy.decide import decide
from sexton_core.policy.job import Job
from sexton_core.policy.state import JobState, Verdict
from sexton_core.words import Overlap

AHEAD_NS: Final[Duration] = 500 * MILLISECOND
"""How long before its due time a start may be committed. A change waits as long at most."""
_SET_BACK_NS: Final[Duration] = 5 * SECOND
"""What is later than this is no start that is ahead, but of before a clock was set back."""


def decide_ahead(
    job: Job, state: JobState, due: Instant, now: Instant, ended: Collection[RunId] = frozenset()
) -> Verdict | None:
    """Decides about what is due next, before it is due; None: that can't be done yet.

    It can where that is one start, which is so whatever happens until then: nothing is live, waits
    or is due beside it, unless all may run together. A policy that ends what is live for a newer
    start must see what is live at its time.

    Args:
        job: as for `decide`.
        state: as last read.
        due: when it is due next, as `due_next` tells.
        now: mesh time, never later than the real one.
        ended: runs of `state.live` that are known to have ended.

    """
    if not now < due <= now + AHEAD_NS or state.buffered:
        return None
    if ahead_until([handle.not_before for handle in state.live], now) is not None:
        return None
    if job.current.overlap is not Overlap.ALLOW_ALL and any(
        handle.run_id not in ended for handle in state.live
    ):
        return None
    verdict = decide(job, state, due, ended)
    if not verdict.is_one_start or job.definition(verdict.runs[0].version).overlap in ASKS:
        return None
    return verdict if verdict.next_due is None or verdict.next_due > due else None


def ahead_until(not_before: Iterable[Instant], now: Instant) -> Instant | None:
    """Returns when the start is due that was written before its time; None: there is none.

    Args:
        not_before: of the job's live runs, as their handles have it.
        now: mesh time, as estimated.

    """
    latest = not_earlier(not_before, now)
    return latest if latest > now else None


def not_earlier(not_before: Iterable[Instant], now: Instant) -> Instant:
    """Returns before which time a change of the job is to be refused, by the store's clock.

    Args:
        not_before: as for `ahead_until`.
        now: mesh time, as estimated.

    """
    latest = max(not_before, default=0)
    return latest if latest <= now + _SET_BACK_NS else 0
