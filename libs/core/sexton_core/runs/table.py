"""The run state machine on one screen: states, events, transitions, timers, retention.

This table is the rule; `machine` chooses among the targets of one entry and can do nothing that is
not in it. A pair that is not listed raises `IllegalTransition`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from sexton_core.instants import Duration
from sexton_core.words import RunEvent, RunState

_S = RunState
_E = RunEvent

TRANSITIONS: Final[Mapping[tuple[RunState, RunEvent], tuple[RunState, ...]]] = {
    # In line. Nothing executes; what is asked for happens at once.
    (_S.WAITING, _E.ASSIGN): (_S.RUNNING,),
    (_S.WAITING, _E.EXPIRE): (_S.EXPIRED,),
    (_S.WAITING, _E.DEADLINE): (_S.TIMED_OUT,),
    (_S.WAITING, _E.CANCEL): (_S.CANCELLED,),
    (_S.WAITING, _E.TERMINATE): (_S.TERMINATED,),
    # In line after a failure. It has started once, so `start_within` no longer applies.
    (_S.RETRYING, _E.ASSIGN): (_S.RUNNING,),
    (_S.RETRYING, _E.DEADLINE): (_S.TIMED_OUT,),
    (_S.RETRYING, _E.CANCEL): (_S.CANCELLED,),
    (_S.RETRYING, _E.TERMINATE): (_S.TERMINATED,),
    # With a worker. The report that the attempt began changes what a loss means.
    (_S.RUNNING, _E.START): (_S.RUNNING,),
    (_S.RUNNING, _E.SUCCEED): (_S.SUCCEEDED,),
    # Again while attempts, deliveries and the deadline allow it, else a dead letter.
    (_S.RUNNING, _E.FAIL): (_S.RETRYING, _S.FAILED),
    (_S.RUNNING, _E.FAIL_FOR_GOOD): (_S.FAILED,),
    (_S.RUNNING, _E.TIME_OUT): (_S.RETRYING, _S.TIMED_OUT),
    # The worker stopped the attempt although nobody had asked: a failure like any other.
    (_S.RUNNING, _E.STOP): (_S.RETRYING, _S.FAILED),
    # Unbegun: no failure. The delivery counts, so that no run is passed around for ever.
    (_S.RUNNING, _E.GIVE_BACK): (_S.WAITING, _S.RETRYING, _S.FAILED),
    # Begun: a failure. Unbegun: a delivery. Under `at_most_once` neither is known for sure: LOST.
    (_S.RUNNING, _E.LOSE): (_S.WAITING, _S.RETRYING, _S.FAILED, _S.LOST),
    (_S.RUNNING, _E.CANCEL): (_S.CANCELLING,),
    (_S.RUNNING, _E.TERMINATE): (_S.TERMINATING,),
    # The worker ends an attempt in time; this is for one that does not.
    (_S.RUNNING, _E.DEADLINE): (_S.TERMINATING,),
    # Asked to end. The completion that arrives wins; no way leads back into the line.
    (_S.CANCELLING, _E.START): (_S.CANCELLING,),
    (_S.CANCELLING, _E.SUCCEED): (_S.SUCCEEDED,),
    (_S.CANCELLING, _E.FAIL): (_S.FAILED,),
    (_S.CANCELLING, _E.FAIL_FOR_GOOD): (_S.FAILED,),
    (_S.CANCELLING, _E.TIME_OUT): (_S.TIMED_OUT,),
    (_S.CANCELLING, _E.STOP): (_S.CANCELLED,),
    (_S.CANCELLING, _E.GIVE_BACK): (_S.CANCELLED,),
    (_S.CANCELLING, _E.LOSE): (_S.CANCELLED,),
    (_S.CANCELLING, _E.CANCEL): (_S.CANCELLING,),
    (_S.CANCELLING, _E.TERMINATE): (_S.TERMINATING,),
    (_S.CANCELLING, _E.DEADLINE): (_S.TERMINATING,),
    # Ordered to be killed. A cancel request after that changes nothing.
    (_S.TERMINATING, _E.START): (_S.TERMINATING,),
    (_S.TERMINATING, _E.SUCCEED): (_S.SUCCEEDED,),
    (_S.TERMINATING, _E.FAIL): (_S.FAILED,),
    (_S.TERMINATING, _E.FAIL_FOR_GOOD): (_S.FAILED,),
    (_S.TERMINATING, _E.TIME_OUT): (_S.TIMED_OUT,),
    (_S.TERMINATING, _E.STOP): (_S.TERMINATED, _S.TIMED_OUT),
    (_S.TERMINATING, _E.GIVE_BACK): (_S.TERMINATED, _S.TIMED_OUT),
    (_S.TERMINATING, _E.LOSE): (_S.TERMINATED, _S.TIMED_OUT),
    (_S.TERMINATING, _E.CANCEL): (_S.TERMINATING,),
    (_S.TERMINATING, _E.TERMINATE): (_S.TERMINATING,),
    (_S.TERMINATING, _E.DEADLINE): (_S.TERMINATING,),
}


class Timer(StrEnum):
    """What moves a run by time alone. Mesh time, kept by the queue's owner."""

    # `not_before`: from then on it may be assigned. Stands in the run's record.
    NOT_BEFORE = "not_before"
    # `start_within` after the due time; only until an attempt has started.
    START_WITHIN = "start_within"
    # `deadline` after the creation.
    DEADLINE = "deadline"
    # The session of the worker that holds it; durations only, never two hosts' clocks.
    SESSION = "session"
    # `timeout` of the attempt: kept by the worker, which was told how long remains.
    ATTEMPT_TIMEOUT = "attempt_timeout"


class StateRules(NamedTuple):
    """What holds while a run is in a state.

    timers: what will move it on if nothing else does. No state that can be left has none, or has
        a place in line or a session instead (S15).
    dead_letter: the run is also listed under `dead/`, and kept twice as long as the others.
    """

    timers: tuple[Timer, ...] = ()
    dead_letter: bool = False


STATES: Final[Mapping[RunState, StateRules]] = {
    _S.WAITING: StateRules((Timer.NOT_BEFORE, Timer.START_WITHIN, Timer.DEADLINE)),
    _S.RETRYING: StateRules((Timer.NOT_BEFORE, Timer.DEADLINE)),
    _S.RUNNING: StateRules((Timer.SESSION, Timer.ATTEMPT_TIMEOUT, Timer.DEADLINE)),
    _S.CANCELLING: StateRules((Timer.SESSION, Timer.ATTEMPT_TIMEOUT, Timer.DEADLINE)),
    _S.TERMINATING: StateRules((Timer.SESSION,)),
    _S.SUCCEEDED: StateRules(),
    _S.FAILED: StateRules(dead_letter=True),
    _S.TIMED_OUT: StateRules(dead_letter=True),
    _S.CANCELLED: StateRules(),
    _S.TERMINATED: StateRules(),
    _S.EXPIRED: StateRules(),
    _S.LOST: StateRules(dead_letter=True),
}

LIVE: Final = frozenset(state for state, _ in TRANSITIONS)
"""States that can be left: the handle exists."""

ENDED: Final = frozenset(RunState) - LIVE
"""States that are for ever: the run is in `runs/`."""

WITH_WORKER: Final = frozenset({_S.RUNNING, _S.CANCELLING, _S.TERMINATING})
"""States in which a session holds the run and its token is live."""

DEAD_LETTER_FACTOR: Final = 2
"""Dead letters are kept this many times as long as other ended runs: somebody has to look."""


def keep_ns(state: RunState, max_age_ns: Duration) -> Duration:
    """Returns how long a run that ended in a state is kept, by its job's retention."""
    assert state in ENDED, "only what has ended is removed"
    return max_age_ns * (DEAD_LETTER_FACTOR if STATES[state].dead_letter else 1)


def allowed_events(state: RunState) -> tuple[RunEvent, ...]:
    """Returns what a run can take in a state, in the order of the vocabulary."""
    return tuple(event for event in RunEvent if (state, event) in TRANSITIONS)


def states_for(event: RunEvent) -> tuple[RunState, ...]:
    """Returns the states in which a run can take an event, in the order of the vocabulary."""
    return tuple(state for state in RunState if (state, event) in TRANSITIONS)
