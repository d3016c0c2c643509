"""Moves a run from state to state: the guards that choose among the table's targets."""

from typing import Final, NamedTuple

from sexton_core.errors import IllegalTransition
from sexton_core.ids import RunId
from sexton_core.instants import MAX_INSTANT, MILLISECOND, Duration, Instant
from sexton_core.runs.policy import RunPolicy
from sexton_core.runs.retry import backoff
from sexton_core.runs.table import ENDED, TRANSITIONS, states_for
from sexton_core.words import Delivery, RunEvent, RunState

HAND_AHEAD_NS: Final[Duration] = 250 * MILLISECOND
"""How long before its not-before time a run may be assigned; its worker keeps it until then."""

_make = tuple.__new__
"""Makes a named tuple of all its parts; its own constructor costs twice as much."""
_AT_MOST_ONCE: Final = Delivery.AT_MOST_ONCE
_RUNNING: Final = RunState.RUNNING
_ASSIGN: Final = RunEvent.ASSIGN
_START: Final = RunEvent.START
_GIVE_BACK: Final = RunEvent.GIVE_BACK
_LOSE: Final = RunEvent.LOSE


class Run(NamedTuple):
    """What a queue's owner knows about a run, and the rules look at.

    A tuple, not a dataclass: the owner makes several of them per run.

    due: from here `start_within` counts.
    not_before: not begun earlier than this, and not assigned earlier than `assignable_at`.
    attempts: deliveries so far: the number of the live or last attempt.
    failures: attempts that failed, or were lost after they had begun.
    token: of the live attempt, or of the last one where the run has ended; 0 where no attempt is
        live. It is a store revision and thus known only after the commit that assigns.
    session: of the worker that holds it; empty where none does, kept where the run has ended.
    started: the live attempt is known to have begun. An owner that has taken over does not know
        which ones have; it applies START right before LOSE, and not earlier.
    ever_started: some attempt has begun.
    completed: it ended by an accepted completion, not by its owner's judgement.
    deadline_passed: it is being terminated because of its deadline.
    """

    run_id: RunId
    policy: RunPolicy
    created_at: Instant
    due: Instant
    not_before: Instant
    state: RunState = RunState.WAITING
    attempts: int = 0
    failures: int = 0
    token: int = 0
    session: str = ""
    started: bool = False
    ever_started: bool = False
    completed: bool = False
    deadline_passed: bool = False
    ended_at: Instant | None = None

    @property
    def expires_at(self) -> Instant | None:
        """Returns when the run ends as EXPIRED if nothing has started; None: never."""
        within = self.policy.start_within_ns
        if within is None or self.ever_started:
            return None
        return min(self.due + within, MAX_INSTANT)

    @property
    def deadline_at(self) -> Instant | None:
        """Returns when the whole run must have ended; None: no bound.

        A run that was created before it was due counts from then.
        """
        deadline_ns = self.policy.deadline_ns
        if deadline_ns is None:
            return None
        return min(max(self.created_at, self.due) + deadline_ns, MAX_INSTANT)

    @property
    def assignable_at(self) -> Instant:
        """Returns from when on the run may be assigned.

        That is a little before it may begin, for the first attempt of a run that does not mind to
        be lost with its worker meanwhile, or given back.
        """
        policy = self.policy
        if self.attempts or policy.exclusive or policy.delivery is _AT_MOST_ONCE:
            return self.not_before
        if policy.max_deliveries == 1:  # it would not come again
            return self.not_before
        return self.not_before - HAND_AHEAD_NS

    @property
    def ended(self) -> bool:
        """Tells whether the run is over for ever."""
        return self.state in ENDED


_STATE: Final = Run._fields.index("state")
_TOKEN: Final = Run._fields.index("token")
_EVER_STARTED: Final = Run._fields.index("ever_started")
_COMPLETED: Final = Run._fields.index("completed")
_OF_TIMERS: Final = frozenset({RunEvent.EXPIRE, RunEvent.DEADLINE})


def assign(run: Run, session: str, now: Instant) -> Run:
    """Gives the next attempt to a session. The token becomes known with the commit.

    Raises:
        IllegalTransition: the run is not in line, or it is too early.

    """
    _check(run, _ASSIGN)
    if now < run.not_before and now < run.assignable_at:
        raise IllegalTransition(
            f"run {run.run_id}", RunEvent.ASSIGN, "waiting for its not-before", "that has passed"
        )
    # In parts here and in `assigned` and `_end`: each run takes these ways, and `_replace` costs
    # six times as much.
    parts = (_RUNNING, run.attempts + 1, run.failures, 0, session, False)
    return _make(Run, (*run[:_STATE], *parts, *run[_EVER_STARTED:]))


def assigned(run: Run, token: int) -> Run:
    """Notes the revision of the commit that made the run RUNNING."""
    assert run.state is _RUNNING, "a token belongs to an assignment"
    assert run.token == 0, "an attempt has one token"
    assert token > 0, "a token is a store revision"
    return _make(Run, (*run[:_TOKEN], token, *run[_TOKEN + 1 :]))


def apply(run: Run, event: RunEvent, now: Instant, *, retry_after: Duration = 0) -> Run:
    """Returns the run after an event other than ASSIGN.

    The caller has checked the token of what a worker reports (`completion`).

    Args:
        run: as it stands.
        event: what happened.
        now: mesh time.
        retry_after: how long a failed attempt asks to be left alone; at most `max_backoff` counts.

    Raises:
        IllegalTransition: the pair is not in the table, a timer's time has not come, or an
            attempt that has begun is given back.

    """
    assert event is not _ASSIGN, "an assignment needs a session: use assign()"
    targets = _check(run, event)
    if event is _START:
        if run.started:
            return run
        return _make(Run, (*run[: _EVER_STARTED - 1], True, True, *run[_COMPLETED:]))
    if event is _GIVE_BACK and run.started:
        raise IllegalTransition(f"run {run.run_id}", event, "begun", "it has not begun")
    if event in _OF_TIMERS:
        _check_timer(run, event, now)
    target = targets[0] if len(targets) == 1 else _choose(run, event, now, retry_after)
    assert target in targets, "the table is the rule"
    if target in ENDED:
        return _end(run, event, target, now)
    if target is RunState.RETRYING or target is RunState.WAITING:
        return _line_up(run, event, target, _next_attempt(run, event, now, retry_after))
    if target is run.state:
        return run
    return run._replace(state=target, deadline_passed=event is RunEvent.DEADLINE)


def overdue(run: Run, now: Instant) -> RunEvent | None:
    """Returns which of its timers has run out for a run: what the owner is to apply next."""
    expires_at, deadline_at = run.expires_at, run.deadline_at
    if run.state is RunState.WAITING and expires_at is not None and now >= expires_at:
        return RunEvent.EXPIRE
    if deadline_at is None or now < deadline_at or run.ended:
        return None
    # A run that is being killed already waits for its worker or its session.
    return None if run.state is RunState.TERMINATING else RunEvent.DEADLINE


def _check(run: Run, event: RunEvent) -> tuple[RunState, ...]:
    targets = TRANSITIONS.get((run.state, event))
    if targets is None:
        raise IllegalTransition(
            f"run {run.run_id}", event, run.state, f"it is {' or '.join(states_for(event))}"
        )
    return targets


def _check_timer(run: Run, event: RunEvent, now: Instant) -> None:
    timer = run.expires_at if event is RunEvent.EXPIRE else run.deadline_at
    if timer is None or now < timer:
        raise IllegalTransition(f"run {run.run_id}", event, "within its time", "that has passed")


def _choose(run: Run, event: RunEvent, now: Instant, retry_after: Duration) -> RunState:
    """Chooses among several targets; every rule about retries and losses is here."""
    if run.state is RunState.TERMINATING:
        return RunState.TIMED_OUT if run.deadline_passed else RunState.TERMINATED
    if event is RunEvent.GIVE_BACK:
        return _back(run)
    if event is RunEvent.LOSE:
        if run.policy.delivery is Delivery.AT_MOST_ONCE:
            return RunState.LOST
        if not run.started:
            return _back(run)
    over = RunState.TIMED_OUT if event is RunEvent.TIME_OUT else RunState.FAILED
    failures = run.failures + 1
    if failures >= run.policy.retries.max_attempts or run.attempts >= run.policy.max_deliveries:
        return over
    deadline_at = run.deadline_at
    if deadline_at is not None and _next_attempt(run, event, now, retry_after) >= deadline_at:
        return over
    return RunState.RETRYING


def _back(run: Run) -> RunState:
    """Returns where a run goes whose attempt did not begin."""
    if run.attempts >= run.policy.max_deliveries:
        return RunState.FAILED
    return RunState.RETRYING if run.ever_started else RunState.WAITING


def _next_attempt(run: Run, event: RunEvent, now: Instant, retry_after: Duration) -> Instant:
    """Returns when a run may be assigned again.

    A lost worker says nothing about the job: the next one begins at once, or when the first one was
    to begin.
    """
    if event in (RunEvent.LOSE, RunEvent.GIVE_BACK):
        return max(now, run.not_before)
    retries = run.policy.retries
    pause = backoff(retries, run.run_id, run.failures + 1)
    return now + max(pause, min(retry_after, retries.max_backoff_ns))


def _line_up(run: Run, event: RunEvent, target: RunState, not_before: Instant) -> Run:
    unbegun = event is RunEvent.GIVE_BACK or (event is RunEvent.LOSE and not run.started)
    return run._replace(
        state=target,
        failures=run.failures if unbegun else run.failures + 1,
        not_before=not_before,
        token=0,
        session="",
        started=False,
    )


_FAILED: Final = RunState.FAILED
_STOP: Final = RunEvent.STOP
_FAILURES = frozenset({RunEvent.FAIL, RunEvent.FAIL_FOR_GOOD, RunEvent.TIME_OUT})
_COMPLETIONS = _FAILURES | {RunEvent.SUCCEED, RunEvent.STOP}


def _end(run: Run, event: RunEvent, target: RunState, now: Instant) -> Run:
    lost_begun = event is _LOSE and run.started
    failed = event in _FAILURES or (event is _STOP and target is _FAILED)
    failures = run.failures + 1 if failed or lost_begun else run.failures
    completed = event in _COMPLETIONS
    parts = (target, run.attempts, failures)
    return _make(
        Run, (*run[:_STATE], *parts, *run[_TOKEN:_COMPLETED], completed, run.deadline_passed, now)
    )
