"""Which undecided nominal times start, and which are passed over: late, missed, caught up."""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from sexton_core.instants import SECOND, Instant
from sexton_core.policy.job import CatchUp, Definition
from sexton_core.policy.state import JobState, make
from sexton_core.policy.timeline import Timeline
from sexton_core.words import CatchUpPolicy, Decision, Reason

ON_TIME_NS: Final = SECOND
"""What is decided later than this after its due time says so."""


class Start(NamedTuple):
    """A nominal time that goes to the gate."""

    nominal: Instant
    due: Instant
    definition: Definition
    reason: Reason


class Pass(NamedTuple):
    """Nominal times from `first` to `last`, both included, that will not start."""

    first: Instant
    last: Instant
    definition: Definition
    decision: Decision
    reason: Reason


Step: TypeAlias = Start | Pass
Unit: TypeAlias = tuple[Step, ...]


class Plan:
    """What is due and undecided, as steps in the order of nominal time.

    Bounded: a stretch of missed times is a few steps whatever its length; only starts are single
    steps, and `catch_up.max` and `late_after` bound those.

    cursor: the last nominal time of the units taken so far.
    upcoming: the first nominal time after the units taken so far; None: never again. It may be
        due.
    """

    __slots__ = ("_now", "_resumed", "_timeline", "cursor", "upcoming")

    def __init__(self, timeline: Timeline, state: JobState, now: Instant) -> None:
        self._timeline = timeline
        self._now = now
        self.cursor = state.cursor
        self._resumed = state.resumed
        self.upcoming = state.armed

    def units(self) -> Iterator[Unit]:
        """Yields steps that must be decided together; the reader may stop after any unit."""
        timeline, now = self._timeline, self._now
        while (nominal := self.upcoming) is not None:
            stretch = timeline.stretch(nominal)
            due = timeline.due_in(stretch, nominal)
            if due > now:
                return
            definition = stretch.definition
            resumed = nominal == self._resumed
            if resumed or now - due <= definition.catch_up.late_after_ns:
                reason = Reason.ON_TIME if now - due <= ON_TIME_NS else Reason.LATE
                if resumed:
                    reason = Reason.RESUMED
                yield self._next((make(Start, (nominal, due, definition, reason)),))
            else:
                last = self._last_missed(nominal)
                for unit in self._missed(nominal, last, definition):
                    yield self._next(unit)

    def _next(self, unit: Unit) -> Unit:
        timeline = self._timeline
        steps = with_excluded(timeline, self.cursor, unit) if timeline.has_calendars else unit
        self.cursor = cursor = end_of(unit[-1])
        self.upcoming = timeline.next_after(cursor)
        return steps

    def _last_missed(self, first: Instant) -> Instant:
        """Returns the last missed time of the stretch in which `first` was missed."""
        timeline = self._timeline
        _, until, definition = timeline.stretch(first)
        late_from = self._now - definition.catch_up.late_after_ns
        last = timeline.previous_before(min(until, late_from - 1) + 1)
        if last is not None and timeline.due(last) >= late_from:
            last = timeline.previous_before(last)
        assert last is not None, "the first one is missed"
        return last

    def _missed(self, first: Instant, last: Instant, definition: Definition) -> Iterator[Unit]:
        policy = definition.catch_up.policy
        if policy is CatchUpPolicy.NONE:
            yield (_missed(first, last, definition, Reason.NO_CATCH_UP),)
        elif policy is CatchUpPolicy.LATEST:
            yield self._latest(first, last, definition)
        elif policy is CatchUpPolicy.EARLIEST:
            yield self._earliest(first, last, definition)
        else:
            yield from self._all(first, last, definition)

    def _latest(self, first: Instant, last: Instant, definition: Definition) -> Unit:
        newer = self._timeline.next_after(last)
        if newer is not None and self._timeline.due(newer) <= self._now:
            return (_missed(first, last, definition, Reason.PASSED_OVER),)
        if not self._in_window(last, definition.catch_up):
            return (_missed(first, last, definition, Reason.OUTSIDE_WINDOW),)
        return (
            *self._before(first, last, definition, Reason.PASSED_OVER),
            self._caught_up(last, definition),
        )

    def _earliest(self, first: Instant, last: Instant, definition: Definition) -> Unit:
        chosen = self._first_in_window(first, last, definition.catch_up)
        if chosen is None:
            return (_missed(first, last, definition, Reason.OUTSIDE_WINDOW),)
        after: Unit = ()
        if chosen < last:
            following = self._timeline.next_after(chosen)
            assert following is not None, "the last one is ahead"
            after = (_missed(following, last, definition, Reason.PASSED_OVER),)
        return (
            *self._before(first, chosen, definition, Reason.OUTSIDE_WINDOW),
            self._caught_up(chosen, definition),
            *after,
        )

    def _all(self, first: Instant, last: Instant, definition: Definition) -> Iterator[Unit]:
        catch_up = definition.catch_up
        if not self._in_window(last, catch_up):
            yield (_missed(first, last, definition, Reason.OUTSIDE_WINDOW),)
            return
        oldest = last
        reason = Reason.PASSED_OVER
        for _ in range(catch_up.max_starts - 1):
            older = self._timeline.previous_before(oldest)
            if older is None or older < first:
                break
            if not self._in_window(older, catch_up):
                reason = Reason.OUTSIDE_WINDOW
                break
            oldest = older
        before = self._before(first, oldest, definition, reason)
        nominal: Instant | None = oldest
        while nominal is not None and nominal <= last:
            yield (*before, self._caught_up(nominal, definition))
            before = ()
            nominal = self._timeline.next_after(nominal)

    def _first_in_window(self, first: Instant, last: Instant, catch_up: CatchUp) -> Instant | None:
        if catch_up.window_ns is None:
            # Every missed time but the newest is older than its own period.
            return last if self._in_window(last, catch_up) else None
        found = self._timeline.first_due_from(self._now - catch_up.window_ns)
        if found is None or found > last:
            return None
        return max(found, first)

    def _in_window(self, nominal: Instant, catch_up: CatchUp) -> bool:
        following = self._timeline.next_after(nominal) if catch_up.window_ns is None else None
        age_ns = self._now - self._timeline.due(nominal)
        return age_ns <= catch_up.window_of(nominal, following)

    def _before(
        self, first: Instant, chosen: Instant, definition: Definition, reason: Reason
    ) -> Unit:
        if first == chosen:
            return ()
        last = self._timeline.previous_before(chosen)
        assert last is not None, "the first one is earlier"
        return (_missed(first, last, definition, reason),)

    def _caught_up(self, nominal: Instant, definition: Definition) -> Start:
        return Start(nominal, self._timeline.due(nominal), definition, Reason.CAUGHT_UP)


def _missed(first: Instant, last: Instant, definition: Definition, reason: Reason) -> Pass:
    return Pass(first, last, definition, Decision.MISSED, reason)


def with_excluded(timeline: Timeline, cursor: Instant, unit: Unit) -> Unit:
    """Adds what calendars take away, after the cursor and between the steps, as steps."""
    if not timeline.has_calendars:
        return unit
    steps: list[Step] = []
    for step in unit:
        first = step.nominal if isinstance(step, Start) else step.first
        between = timeline.excluded_between(cursor, first)
        if between is not None:
            steps += [
                Pass(*piece, Decision.EXCLUDED, Reason.CALENDAR)
                for piece in timeline.split(*between, unfiltered=True)
            ]
        steps.append(step)
        cursor = end_of(step)
    return tuple(steps)


def end_of(step: Step) -> Instant:
    """Returns the last nominal time of a step."""
    return step.nominal if isinstance(step, Start) else step.last
