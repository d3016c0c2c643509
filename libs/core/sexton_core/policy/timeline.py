"""The nominal times of a job across its edits: each version rules from its edit to the next."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from sexton_core.instants import MAX_INSTANT, Instant
from sexton_core.policy.job import Definition, Job
from sexton_core.policy.state import Rule, make
from sexton_core.schedule import Schedule
from sexton_core.schedules.jitter import delay_of

COUNT_LIMIT: Final = 256
"""Nominal times of a range that are counted one by one; beyond it, "at least"."""


class Stretch(NamedTuple):
    """Nominal times later than `after` and not later than `until` are ruled by `definition`."""

    after: Instant
    until: Instant
    definition: Definition


class Timeline:
    """One schedule made of several versions. Every question costs a step or two per version."""

    __slots__ = ("_newest_first", "_stretches", "_uid", "has_calendars")

    def __init__(self, job: Job, rules: tuple[Rule, ...]) -> None:
        assert rules, "a job is ruled by some version"
        self._uid: Final = job.uid
        until = MAX_INSTANT
        stretches: list[Stretch] = []
        has_calendars = False
        for after, version in reversed(rules):
            definition = job.definition(version)
            has_calendars = has_calendars or definition.unfiltered is not None
            stretches.append(make(Stretch, (after, until, definition)))
            until = after
        self._newest_first: Final = stretches
        self._stretches: Final = stretches[::-1]
        self.has_calendars: Final = has_calendars

    @property
    def begins(self) -> Instant:
        """Returns from when on it is known what is asked for: later than this."""
        return self._stretches[0].after

    def stretch(self, nominal: Instant) -> Stretch:
        """Returns what rules a nominal time; the first stretch for times before all of them."""
        for stretch in self._newest_first:
            if nominal > stretch.after:
                return stretch
        return self._stretches[0]

    def next_after(self, t: Instant, *, unfiltered: bool = False) -> Instant | None:
        """Returns the first nominal time later than `t`; None: never again."""
        for after, until, definition in self._stretches:
            if until <= t:
                continue
            schedule = _schedule(definition, unfiltered=True) if unfiltered else definition.schedule
            if schedule is None:
                continue
            found = schedule.next_after(t if t > after else after)
            if found is not None and found <= until:
                return found
        return None

    def previous_before(self, t: Instant, *, unfiltered: bool = False) -> Instant | None:
        """Returns the last nominal time earlier than `t`, none before the first rule."""
        for after, until, definition in self._newest_first:
            if after >= t:
                continue
            schedule = _schedule(definition, unfiltered=unfiltered)
            if schedule is None:
                continue
            found = schedule.previous_before(t if t <= until else until + 1)
            if found is not None and found > after:
                return found
        return None

    def due(self, nominal: Instant) -> Instant:
        """Returns when the start of a nominal time is due: not before it, and before the next.

        An edit does not draw the delay anew, which would put a start that still waits into the
        past; it can only bring it forward to just before the next nominal time.
        """
        return self.due_in(self.stretch(nominal), nominal)

    def due_in(self, stretch: Stretch, nominal: Instant) -> Instant:
        """Returns the same, told what rules the nominal time."""
        _, until, definition = stretch
        if not definition.jitter_ns or definition.schedule is None:
            return nominal
        own = definition.schedule.next_after(nominal)
        due = nominal + delay_of(self._uid, nominal, definition.jitter_ns, own)
        following = own if until == MAX_INSTANT else self.next_after(nominal)
        return due if following is None else min(due, following - 1)

    def first_due_from(self, t: Instant) -> Instant | None:
        """Returns the first nominal time whose start is due at `t` or later."""
        before = self.previous_before(t)
        if before is not None and self.due(before) >= t:
            return before
        return self.next_after(t - 1)

    def excluded_between(self, a: Instant, b: Instant) -> tuple[Instant, Instant] | None:
        """Returns the first and the last time in (a, b) that only calendars take away.

        There must be no nominal time in (a, b).
        """
        if not self.has_calendars:
            return None
        first = self.next_after(a, unfiltered=True)
        if first is None or first >= b:
            return None
        last = self.previous_before(b, unfiltered=True)
        assert last is not None, "the first one is before b"
        return first, last

    def split(
        self, first: Instant, last: Instant, *, unfiltered: bool = False
    ) -> Iterator[tuple[Instant, Instant, Definition]]:
        """Yields a range of nominal times cut where another version begins to rule."""
        for after, until, definition in self._stretches:
            if until < first or after >= last:
                continue
            begin = self.next_after(max(after, first - 1), unfiltered=unfiltered)
            end = self.previous_before(min(until, last) + 1, unfiltered=unfiltered)
            if begin is not None and end is not None and begin <= end:
                yield begin, end, definition

    def count(self, first: Instant, last: Instant, *, unfiltered: bool = False) -> tuple[int, bool]:
        """Counts the nominal times from `first` to `last`, both of them nominal times.

        Returns:
            The number and true, or what was counted until `COUNT_LIMIT` and false.

        """
        t, counted = first, 1
        while t < last:
            if counted == COUNT_LIMIT:
                return counted, False
            following = self.next_after(t, unfiltered=unfiltered)
            assert following is not None, "the last one is ahead"
            t = following
            counted += 1
        return counted, True


def _schedule(definition: Definition, *, unfiltered: bool) -> Schedule | None:
    if unfiltered and definition.unfiltered is not None:
        return definition.unfiltered
    return definition.schedule
