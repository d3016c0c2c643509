"""What holds for every schedule, whatever it is made of."""

import random
import sys
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from dateutil.relativedelta import relativedelta
from dateutil.rrule import rrulestr
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from unit.core.schedules.specs import (
    LAST,
    all_specs,
    excluded,
    instants,
    rules,
    specs,
    specs_of_intervals,
    walls,
)
from unit.examples import examples

from sexton_core.dst import resolve
from sexton_core.errors import NeverFiresError
from sexton_core.instants import DAY, MAX_INSTANT, MIN_INSTANT, SECOND, from_datetime
from sexton_core.schedule import between
from sexton_core.schedules import (
    JobIdentity,
    RRuleTiming,
    ScheduleCache,
    ScheduleSpec,
    ShortMonth,
    UnionSpec,
    build,
)
from sexton_core.schedules.build import wall_second
from sexton_core.schedules.memo import Memo
from sexton_core.zones import get_zone

pytestmark = pytest.mark.slow

# A loaded machine draws slowly, and the oracle can't judge every rule: neither is a failure.
EXAMPLES = settings(
    max_examples=examples(16),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
JOB = JobIdentity(namespace="default", name="job", uid="a" * 24)


def built(spec):
    try:
        return build(spec, JOB)
    except NeverFiresError:
        assume(False)


def times(schedule, t, count):
    return list(between(schedule, t, MAX_INSTANT, count))


@EXAMPLES
@given(all_specs, instants)
def test_next_is_strictly_later_and_in_order(spec, t):
    found = times(built(spec), t, 20)
    assert all(a < b for a, b in zip([t, *found], found, strict=False))
    assert all(MIN_INSTANT <= due <= MAX_INSTANT and due % SECOND == 0 for due in found)


@EXAMPLES
@given(all_specs, instants)
def test_previous_is_the_inverse_of_next(spec, t):
    schedule = built(spec)
    found = times(schedule, t, 8)
    before = schedule.previous_before(t + 1)
    assert before is None or before <= t
    if before is not None:
        assert schedule.next_after(before - 1) == before
        assert schedule.next_after(before) == (found[0] if found else None)
    chain = [before, *found]
    for earlier, later in zip(chain, found, strict=False):
        assert schedule.previous_before(later) == earlier
        assert schedule.previous_before(later + 1) == later


@EXAMPLES
@given(all_specs, instants, st.integers(0, 10**9))
def test_every_instant_between_two_nominal_times_has_the_same_answers(spec, t, seed):
    schedule = built(spec)
    a = schedule.next_after(t)
    assume(a is not None)
    b = schedule.next_after(a)
    assume(b is not None)
    inside = random.Random(seed).randrange(a, b)
    assert schedule.next_after(inside) == b
    assert schedule.previous_before(inside + 1) == a


@EXAMPLES
@given(st.lists(specs(bounded=False), min_size=1, max_size=4), instants)
def test_a_union_is_the_union_of_its_parts(parts, t):
    alone = [built(part) for part in parts]
    together = built(UnionSpec(parts=tuple(parts)))
    expected = sorted({due for schedule in alone for due in times(schedule, t, 15)})[:15]
    assert times(together, t, 15) == expected


@EXAMPLES
@given(specs(excluding=False), excluded, instants)
def test_a_calendar_takes_away_what_it_covers_and_nothing_else(spec, calendar, t):
    assume(spec.max_runs is None)
    whole = built(spec)
    less = built(replace(spec, exclude=(calendar,)))
    end = (times(whole, t, 40) or [t])[-1]
    all_times = set(between(whole, t, end, 1_000))
    kept = set(between(less, t, end, 1_000))
    assert kept <= all_times
    for due in all_times:
        assert (less.excluded_at(due) is None) == (due in kept)
        assert less.unfiltered.next_after(due - 1) == due


@EXAMPLES
@given(specs(), instants)
def test_nothing_is_outside_its_bounds(spec, t):
    schedule = built(spec)
    found = times(schedule, MIN_INSTANT - 1, 50)
    if spec.start is not None:
        assert found[0] >= spec.start
    last = schedule.previous_before(MAX_INSTANT + 1)
    if spec.end is not None:
        assert last is not None
        assert last <= spec.end
    if spec.max_runs is not None:
        assert len(found) <= spec.max_runs
        assert last == found[-1]


@EXAMPLES
@given(all_specs, st.lists(instants, min_size=1, max_size=12), st.integers(0, 60))
def test_what_is_remembered_is_what_would_be_computed(spec, asked, walk):
    plain = built(spec)
    cache = ScheduleCache()
    for t in asked:
        shared = cache.build(spec, JOB)
        due: int | None = t
        for _ in range(walk):
            if due is None:
                break
            assert shared.previous_before(due) == plain.previous_before(due)
            expected = plain.next_after(due)
            due = shared.next_after(due)
            assert due == expected
        assert shared.next_after(t - 1) == plain.next_after(t - 1)


@EXAMPLES
@given(walls, rules(), st.timedeltas(timedelta(0), timedelta(days=600)))
def test_a_rule_in_utc_is_what_dateutil_says_from_dtstart(start, rule, later):
    # dateutil takes every day of a numbered week; the RFC takes the weekday from DTSTART.
    assume("BYWEEKNO" not in rule or "BYDAY" in rule)
    # Its first week begins at DTSTART, so that BYSETPOS counts in a part of it; ours are whole.
    assume("WEEKLY" not in rule or "BYSETPOS" not in rule)
    # It walks every minute and second from DTSTART on, so the question must be near it.
    fine = "SECONDLY" in rule or "MINUTELY" in rule
    asked = (start + (later / 600 if fine else later)).replace(microsecond=0)
    text = f"DTSTART:{start:%Y%m%dT%H%M%S}\nRRULE:{rule}"
    found = times(built(ScheduleSpec(timing=RRuleTiming(text=text))), utc(asked), 3)
    assume(found and found[-1] < utc(asked) + (2 if fine else 1_500) * DAY)
    expected = [utc(moment) for moment in rrulestr(text).xafter(asked, count=3)]
    assert found == expected


@EXAMPLES
@given(specs_of_intervals, instants)
def test_a_calendar_interval_is_what_adding_months_and_days_from_the_anchor_gives(spec, t):
    timing = spec.timing
    zone = get_zone(spec.timezone)
    steps = {timing.unit.value: timing.count}
    expected = set()
    # Far enough around the question: 60 periods on both sides, by relativedelta, which clamps.
    local = zone.local(t).replace(tzinfo=None)
    days = {"days": 1, "weeks": 7, "months": 30.4, "years": 365.2}[timing.unit.value]
    middle = int((local.date() - timing.anchor).days / days / timing.count)
    for number in range(middle - 60, middle + 60):
        try:
            day = timing.anchor + relativedelta(**{unit: number * n for unit, n in steps.items()})
        except (ValueError, OverflowError):
            continue
        clamped = timing.unit.value in ("months", "years") and day.day != timing.anchor.day
        if not (clamped and timing.short_month is ShortMonth.SKIP):
            wall = wall_second(datetime.combine(day, timing.at))
            expected |= {second * SECOND for second in resolve(zone, wall, spec.dst)}
    schedule = built(spec)
    assert schedule.next_after(t) == min((due for due in expected if due > t), default=None)
    assert schedule.previous_before(t) == max((due for due in expected if due < t), default=None)


def utc(wall):
    return from_datetime(wall.replace(tzinfo=UTC))


@pytest.mark.parametrize("start", ["20260101T000000", "20260331T235959"])
def test_a_memo_answers_beyond_both_ends_of_its_window(start):
    spec = ScheduleSpec(timing=RRuleTiming(text=f"DTSTART:{start}\nFREQ=DAILY;COUNT=600"))
    plain = build(spec)
    memo = Memo(plain)
    all_times = times(plain, MIN_INSTANT - 1, 1_000)
    assert times(memo, MIN_INSTANT - 1, 1_000) == all_times
    assert memo.next_after(all_times[-1]) is None
    assert memo.next_after(all_times[0] - 1) == all_times[0]
    assert memo.previous_before(LAST * 2) == all_times[-1]


MOST_CALLS = 1_200_000
"""Calls of functions, of one search: 20,000 excluded candidates in a row, at 60 for each."""


@EXAMPLES
@given(all_specs, instants)
def test_no_search_is_without_bound(spec, t):
    try:
        with calls_counted() as counted:
            schedule = build(spec, JOB)
    except NeverFiresError:
        schedule = None
    assert counted[0] < MOST_CALLS * (1 if isinstance(spec, ScheduleSpec) else len(spec.parts))
    if schedule is not None:
        for ask in (schedule.next_after, schedule.previous_before):
            with calls_counted() as counted:
                ask(t)
            assert counted[0] < MOST_CALLS


@contextmanager
def calls_counted():
    """Counts the calls of Python functions: a measure of work that no clock disturbs."""
    counted = [0]

    def count(_frame, event, _argument):
        if event == "call":
            counted[0] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield counted
    finally:
        sys.setprofile(before)
