"""Whether what a worker reports about an attempt counts: tokens, repeats, races."""

from enum import StrEnum
from typing import Final, NamedTuple

from sexton_core.instants import Duration, Instant
from sexton_core.runs.machine import Run, apply
from sexton_core.runs.table import WITH_WORKER
from sexton_core.words import RunEvent

COMPLETIONS: Final = frozenset(
    {
        RunEvent.SUCCEED,
        RunEvent.FAIL,
        RunEvent.FAIL_FOR_GOOD,
        RunEvent.TIME_OUT,
        RunEvent.STOP,
    }
)
"""How an attempt ends by its worker's own word."""


class Judgement(StrEnum):
    """What becomes of a report."""

    # It counts: the run moves, in a commit that compares the record's revision.
    ACCEPTED = "accepted"
    # It counted before: answered with the recorded outcome, whatever this one says.
    REPEATED = "repeated"
    # The attempt has been replaced, given back, or given up by the owner. The worker kills what it
    # still runs.
    REFUSED = "refused"


_ACCEPTED: Final = Judgement.ACCEPTED
_make = tuple.__new__
"""Makes a named tuple of all its parts; its own constructor costs twice as much."""


class Settlement(NamedTuple):
    """What becomes of a report, and the run as it then stands."""

    judgement: Judgement
    run: Run


def live_token(token_field: int, mod_revision: int) -> int:
    """Returns the token of a run's live attempt as the store holds it.

    The commit that made the run RUNNING can't contain its own revision, so the record's revision
    is the token; a later write to the record copies it into the field first.
    """
    assert mod_revision > 0, "a record that was read has a revision"
    return token_field or mod_revision


def holds(run: Run, token: int) -> bool:
    """Tells whether a token is that of the run's live attempt."""
    return run.state in WITH_WORKER and run.token == token and token > 0


def complete(
    run: Run, token: int, event: RunEvent, now: Instant, *, retry_after: Duration = 0
) -> Settlement:
    """Judges a completion by the token of its attempt and, if it counts, moves the run.

    A cancel request does not change the token, so that of a completion and a cancel that race the
    completion wins when it arrives.

    Args:
        run: as read; the commit compares that revision.
        token: as the worker was given it.
        event: one of `COMPLETIONS`.
        now: mesh time.
        retry_after: see `apply`.

    """
    assert event in COMPLETIONS, "only a worker's own word completes an attempt"
    if holds(run, token):
        return _make(Settlement, (_ACCEPTED, apply(run, event, now, retry_after=retry_after)))
    if run.ended and run.completed and run.token == token > 0:
        return Settlement(Judgement.REPEATED, run)
    return Settlement(Judgement.REFUSED, run)


def report(run: Run, token: int, event: RunEvent, now: Instant) -> Settlement:
    """Judges a report that ends no run by itself: START, or GIVE_BACK of an unbegun attempt."""
    assert event in (RunEvent.START, RunEvent.GIVE_BACK), "everything else has its own way"
    if not holds(run, token):
        return Settlement(Judgement.REFUSED, run)
    if event is RunEvent.GIVE_BACK and run.started:
        return Settlement(Judgement.REFUSED, run)
    if event is RunEvent.START and run.started:
        return Settlement(Judgement.REPEATED, run)
    return _make(Settlement, (_ACCEPTED, apply(run, event, now)))
